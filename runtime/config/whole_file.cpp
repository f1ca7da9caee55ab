#include "runtime/config/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "taut.h"

namespace taut::config {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

mode_t permissions_of_new_files() {
  const mode_t mask = umask(0);
  umask(mask);
  return 0666 & ~mask;
}

bool disk_is_full(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG;
}

std::string hint_for(int error, const std::filesystem::path& path) {
  if (error == ENOENT || error == ENOTDIR)
    return "the folder " + path.parent_path().string() + " does not exist; make it first";
  if (error == EACCES || error == EPERM || error == EROFS) return "choose a place that you may write to";
  if (error == EISDIR) return "that is a folder; name a file";
  return "";
}

}  // namespace

WholeFile::WholeFile(const std::filesystem::path& path, std::string what, std::string hint)
    : path_(path), what_(std::move(what)), hint_(std::move(hint)) {
  struct stat old {};
  const bool exists = ::stat(path_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) fail(EISDIR);
  if (exists && !S_ISREG(old.st_mode)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd_ < 0) fail(errno);
    return;
  }
  std::error_code ignored;
  target_ = std::filesystem::weakly_canonical(path_, ignored);
  if (ignored || target_.empty()) target_ = path_;
  mode_ = exists ? old.st_mode & 07777 : permissions_of_new_files();
  temporary_ = target_.string() + ".XXXXXX";
  fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) fail(errno);
}

WholeFile::~WholeFile() {
  if (fd_ < 0) return;
  close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void WholeFile::fail(int error) const {
  const std::string file = what_.empty() ? path_.string() : what_ + " '" + path_.string() + "'";
  throw Error("cannot write " + file + ": " + std::strerror(error),
              disk_is_full(error) ? "the disk is full; free some space or write elsewhere"
              : hint_.empty()     ? hint_for(error, path_)
                                  : hint_);
}

void WholeFile::write(std::string_view bytes) {
  buffer_ += bytes;
  bytes_ += bytes.size();
  if (buffer_.size() >= kBufferBytes) flush();
}

void WholeFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno == EPIPE) break;  // whoever read the pipe has enough
    if (put < 0 && errno != EINTR) fail(errno);
    if (put > 0) done += static_cast<size_t>(put);
  }
  buffer_.clear();
}

void WholeFile::commit() {
  flush();
  const bool direct = temporary_.empty();
  if (!direct && (fchmod(fd_, mode_) != 0 || fsync(fd_) != 0 || rename(temporary_.c_str(), target_.c_str()) != 0))
    fail(errno);
  if (close(std::exchange(fd_, -1)) != 0 && direct) fail(errno);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  WholeFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace taut::config
