// Files that appear under their name whole or not at all: a reader never sees half of one, a full disk or a crash
// leaves the old file, and several processes may write the same one at once. Configs, reports, pictures and token files
// are written so. It lies here because this is the one folder that all of them may include.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace taut::config {

/// A file that is written piece by piece to a temporary one beside it, which the destructor removes unless commit() has
/// renamed it. A symbolic link stays one: the file it points to is replaced. What is no regular file (a pipe,
/// /dev/stdout) is written to directly. Every function throws taut::Error when the file cannot be written. Thread
/// safety: none; the constructor reads the umask by setting it for a moment.
class WholeFile {
 public:
  /// `what` names the file in errors ("the tokenizer model"), `hint` says what to do about them; without it a hint
  /// follows from the reason.
  explicit WholeFile(const std::filesystem::path& path, std::string what = {}, std::string hint = {});
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::string_view bytes);
  template <class Number>
  void write(std::span<const Number> numbers) {
    write(std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()));
  }
  uint64_t bytes() const { return bytes_; }

  /// Brings everything to the disk and gives the file its name, which replaces an older one and keeps its permissions.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail(int error) const;

  std::filesystem::path path_, target_;  // as given; links followed
  std::string what_, hint_;
  std::string temporary_;  // empty = written to directly
  unsigned mode_ = 0;
  std::string buffer_;
  uint64_t bytes_ = 0;
  int fd_ = -1;
};

/// The same for a text that is there in full.
void write_file(const std::filesystem::path& path, std::string_view text);

}  // namespace taut::config
