// A file that appears under its name whole or not at all: a reader never sees half of it, and several processes may
// write the same one at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace taut::data {

/// Written to a temporary file beside it, which the destructor removes unless commit() has renamed it.
class WholeFile {
 public:
  /// `what` names the file in errors ("the tokenizer model"), `hint` says what to do about them. Every function throws
  /// taut::Error when the file cannot be written.
  WholeFile(std::string path, std::string what, std::string hint);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  void write(std::string_view bytes);
  template <class Number>
  void write(std::span<const Number> numbers) {
    write(std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()));
  }
  uint64_t bytes() const { return bytes_; }

  /// Brings everything to the disk and gives the file its name, which replaces an older one.
  void commit();

 private:
  void flush();
  [[noreturn]] void fail();

  std::string path_, what_, hint_, temporary_;
  std::string buffer_;
  uint64_t bytes_ = 0;
  int fd_ = -1;
};

}  // namespace taut::data
