#include "runtime/data/token_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/data/token_index.h"
#include "taut.h"

namespace taut::data {
namespace fs = std::filesystem;
namespace {

constexpr const char* kDamagedHint = "copy the two files again, or write them again: taut train CONFIG --prepare";

template <class Id>
void widen(const char* from, int64_t* to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    Id id;  // a .bin may place sequences at any byte
    std::memcpy(&id, from + i * sizeof id, sizeof id);
    to[i] = static_cast<int64_t>(id);
  }
}

void widen(TokenType type, const char* from, int64_t* to, size_t count) {
  switch (type) {
    case TokenType::uint8:
      return widen<uint8_t>(from, to, count);
    case TokenType::int8:
      return widen<int8_t>(from, to, count);
    case TokenType::int16:
      return widen<int16_t>(from, to, count);
    case TokenType::int32:
      return widen<int32_t>(from, to, count);
    case TokenType::int64:
      return widen<int64_t>(from, to, count);
    case TokenType::uint16:
      return widen<uint16_t>(from, to, count);
    case TokenType::float64:
    case TokenType::float32:
      break;  // refused when the file is opened
  }
}

/// The id that ends every document looked at; -1 if they differ or the index names no documents.
int64_t common_end(const TokenFile& file, const std::vector<uint64_t>& document_ends) {
  int64_t common = -1;
  for (const uint64_t end : document_ends) {
    int64_t last = 0;
    file.read(end - 1, {&last, 1});
    if (common != -1 && last != common) return -1;
    common = last;
  }
  return common;
}

}  // namespace

size_t token_bytes(TokenType type) {
  switch (type) {
    case TokenType::uint8:
    case TokenType::int8:
      return 1;
    case TokenType::int16:
    case TokenType::uint16:
      return 2;
    case TokenType::int32:
    case TokenType::float32:
      return 4;
    case TokenType::int64:
    case TokenType::float64:
      break;
  }
  return 8;
}

std::optional<fs::path> token_file_prefix(const fs::path& path) {
  const fs::path extension = path.extension();
  std::error_code ec;
  if ((extension == ".bin" || extension == ".idx") && !fs::is_directory(path, ec)) {
    return fs::path(path).replace_extension();
  }
  if (fs::exists(path, ec) || !path.has_filename()) return std::nullopt;
  const auto with = [&](const char* suffix) { return fs::exists(path.string() + suffix, ec); };
  return with(".bin") && with(".idx") ? std::optional(path) : std::nullopt;
}

TokenFile TokenFile::open(const fs::path& prefix) {
  const std::string name = prefix.string() + ".bin";
  Descriptor bin(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (bin.fd < 0 || fstat(bin.fd, &status) != 0) {
    throw Error("cannot read '" + name + "': " + std::strerror(errno),
                "token files are a pair, NAME.bin and NAME.idx; data.path names one of them, or NAME");
  }
  if (status.st_size == 0) throw Error("'" + name + "' is empty", kDamagedHint);
  CheckedIndex index = read_token_index(prefix.string() + ".idx", name, static_cast<uint64_t>(status.st_size));
  TokenFile file(index.layout, std::move(bin));
  index.layout.end_of_document = common_end(file, index.document_ends);
  file.layout_ = std::make_shared<const TokenLayout>(std::move(index.layout));
  return file;
}

TokenFile::TokenFile(TokenLayout layout, Descriptor bin) : layout_(std::make_shared<const TokenLayout>(layout)) {
  auto mapped = std::make_shared<Bin>();
  mapped->descriptor = std::move(bin);
  void* address = mmap(nullptr, layout.bin_bytes, PROT_READ, MAP_SHARED, mapped->descriptor.fd, 0);
  if (address == MAP_FAILED) {
    throw Error("cannot map '" + layout.path + "': " + std::strerror(errno), "check the file and its permissions");
  }
  mapped->data = static_cast<const char*>(address);
  mapped->bytes = layout.bin_bytes;
  bin_ = std::move(mapped);
  check_size();
}

TokenFile::Bin::~Bin() {
  if (data != nullptr) munmap(const_cast<char*>(data), bytes);
}

void TokenFile::check_size() const {
  // Touching a mapped page behind the file's end would be a bus error.
  struct stat status {};
  if (fstat(fd(), &status) == 0 && static_cast<uint64_t>(status.st_size) >= bin_->bytes) return;
  throw Error("'" + layout_->path + "' became shorter while it was being read",
              "do not change the data of a run that is going on");
}

void TokenFile::read(uint64_t first, std::span<int64_t> to) const {
  check_size();
  const std::vector<TokenRun>& runs = layout_->runs;
  auto run = std::upper_bound(runs.begin(), runs.end(), first,
                              [](uint64_t token, const TokenRun& r) { return token < r.first_token; }) -
             1;
  const size_t width = token_bytes(layout_->type);
  for (size_t done = 0; done < to.size(); ++run) {
    const uint64_t at = first + done;
    const uint64_t run_end = run + 1 == runs.end() ? layout_->tokens : (run + 1)->first_token;
    const size_t count = std::min<uint64_t>(to.size() - done, run_end - at);
    widen(layout_->type, bin_->data + run->byte_offset + (at - run->first_token) * width, to.data() + done, count);
    done += count;
  }
}

void TokenFile::load(uint64_t offset, uint64_t count) const {
  check_size();
  constexpr uint64_t kPage = 4096;
  const uint64_t begin = offset / kPage * kPage;
  if (mlock(bin_->data + begin, offset + count - begin) == 0) return;
  volatile char touched = 0;
  for (uint64_t at = begin; at < offset + count; at += kPage) touched = bin_->data[at];
  static_cast<void>(touched);
}

void check_ids(const TokenFile& file, uint64_t first, std::span<const int64_t> tokens, int64_t vocab_size) {
  const auto limit = static_cast<uint64_t>(vocab_size);
  // Branch-free over the batch; a negative id is a large one here.
  uint64_t largest = 0;
  for (const int64_t token : tokens) largest = std::max(largest, static_cast<uint64_t>(token));
  if (largest < limit) return;
  const auto bad = std::find_if(tokens.begin(), tokens.end(),
                                [limit](int64_t token) { return static_cast<uint64_t>(token) >= limit; });
  throw Error("'" + file.layout().path + "' holds the token id " + std::to_string(*bad) + " at position " +
                  std::to_string(first + static_cast<uint64_t>(bad - tokens.begin())) + ", but model.vocab_size is " +
                  std::to_string(vocab_size),
              "the file was written with another tokenizer: set model.vocab_size to that tokenizer's size, or write "
              "token files with this config's: taut train CONFIG --prepare with data.path on the text");
}

void check_some_ids(const TokenFile& file, int64_t vocab_size) {
  constexpr uint64_t kPieces = 64, kPieceTokens = 16 << 10;
  std::vector<int64_t> tokens(std::min(kPieceTokens, file.tokens()));
  const uint64_t last = file.tokens() - tokens.size();
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    const auto first = static_cast<uint64_t>(static_cast<double>(last) / (kPieces - 1) * static_cast<double>(piece));
    const uint64_t begin = piece + 1 == kPieces ? last : std::min(first, last);
    file.read(begin, tokens);
    check_ids(file, begin, tokens, vocab_size);
    if (last == 0) return;
  }
}

}  // namespace taut::data
