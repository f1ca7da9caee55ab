#include "analyzer/report/write_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "taut.h"

namespace taut::report {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, int error) {
  std::string hint;
  if (error == ENOENT || error == ENOTDIR)
    hint = "the folder " + path.parent_path().string() + " does not exist; make it first";
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    hint = "the disk is full; free some space or write elsewhere";
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose a place that you may write to";
  if (error == EISDIR) hint = "that is a folder; name a file";
  throw Error("cannot write " + path.string() + ": " + std::strerror(error), hint);
}

/// 0 or the errno of the first failure.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

void write_file(const std::filesystem::path& path, std::string_view text) {
  // A symbolic link stays one: the file it points to is replaced.
  std::error_code ignored;
  std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
  if (ignored || target.empty()) target = path;
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode)) fail(path, EISDIR);
  if (exists && !S_ISREG(status.st_mode)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) fail(path, errno);
    const int error = write_all(fd, text);
    ::close(fd);
    if (error != 0 && error != EPIPE) fail(path, error);
    return;
  }
  std::string temporary = target.string() + ".XXXXXX";
  const int fd = ::mkstemp(temporary.data());
  if (fd < 0) fail(path, errno);
  const mode_t mask = ::umask(0);
  ::umask(mask);
  int error = write_all(fd, text);
  if (error == 0 && ::fchmod(fd, exists ? status.st_mode & 07777 : 0666 & ~mask) != 0) error = errno;
  if (error == 0 && ::fsync(fd) != 0) error = errno;
  if (::close(fd) != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), target.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail(path, error);
  }
}

}  // namespace taut::report
