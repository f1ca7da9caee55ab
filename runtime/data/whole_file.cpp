#include "runtime/data/whole_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "taut.h"

namespace taut::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;

}  // namespace

WholeFile::WholeFile(std::string path, std::string what, std::string hint)
    : path_(std::move(path)), what_(std::move(what)), hint_(std::move(hint)), temporary_(path_ + ".XXXXXX") {
  fd_ = mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0 || fchmod(fd_, 0644) != 0) fail();
}

WholeFile::~WholeFile() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(temporary_.c_str());
}

void WholeFile::fail() {
  const std::string why = std::strerror(errno);
  throw Error("cannot write " + what_ + " '" + path_ + "': " + why, hint_);
}

void WholeFile::write(std::string_view bytes) {
  buffer_ += bytes;
  bytes_ += bytes.size();
  if (buffer_.size() >= kBufferBytes) flush();
}

void WholeFile::flush() {
  for (size_t done = 0; done < buffer_.size();) {
    const ssize_t put = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
    if (put < 0 && errno != EINTR) fail();
    if (put > 0) done += static_cast<size_t>(put);
  }
  buffer_.clear();
}

void WholeFile::commit() {
  flush();
  if (fsync(fd_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  close(std::exchange(fd_, -1));
}

}  // namespace taut::data
