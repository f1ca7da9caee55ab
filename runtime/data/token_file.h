// Memory-mapped token files: Megatron's indexed data set, read as it is.
//
// Two files of one name: NAME.bin holds the token ids of all sequences, NAME.idx says where each begins. All numbers
// are little-endian. NAME.idx (Megatron-LM, megatron/core/datasets/indexed_dataset.py):
//
//   bytes            what
//   9                "MMIDIDX\0\0"
//   8                version, 1
//   1                type of the ids: 1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 6 float64, 7 float32, 8 uint16
//   8, 8             S sequences, D document boundaries
//   S × 4            int32: tokens of each sequence
//   S × 8            int64: where each sequence begins in NAME.bin, in bytes
//   D × 8            int64: the sequence with which each document begins, the last being S
//   S × 1, or none   int8: modes of multimodal sequences; not looked at
//
// The token stream is all sequences in the index's order, with nothing between them: an end-of-document token is there
// where the file has one, which Megatron's preprocessing writes with --append-eod and ours always (prepare.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/data/descriptor.h"

namespace taut::data {

/// The type codes of the format.
enum class TokenType : uint8_t { uint8 = 1, int8, int16, int32, int64, float64, float32, uint16 };

/// Bytes of one id.
size_t token_bytes(TokenType type);

/// Sequences that follow each other in the .bin without a gap; the usual file is one run.
struct TokenRun {
  uint64_t first_token = 0;  // position in the token stream
  uint64_t byte_offset = 0;  // in the .bin
};

/// What reading tokens takes, once the index has been checked.
struct TokenLayout {
  std::string path;  // NAME.bin
  TokenType type = TokenType::uint16;
  uint64_t tokens = 0;     // of the whole stream
  uint64_t documents = 0;  // 0 = the index names none
  uint64_t bin_bytes = 0;
  std::vector<TokenRun> runs;
  int64_t end_of_document = -1;  // the id with which every document looked at ends; -1 = they differ
};

/// NAME, when `path` means token files: "NAME.bin" or "NAME.idx", or NAME itself where nothing has just that name but
/// NAME.bin and NAME.idx are there. Does not look into them.
std::optional<std::filesystem::path> token_file_prefix(const std::filesystem::path& path);

/// Thread safety: const functions may be called from several threads. Copying is cheap (the mapping is shared).
class TokenFile {
 public:
  /// Opens NAME.bin and checks every number of NAME.idx against the files' sizes. O(sequences).
  /// Throws taut::Error: missing or unreadable file, not this format, counts or places outside the files, ids that are
  /// no integers, no tokens.
  static TokenFile open(const std::filesystem::path& prefix);

  /// A file that another process opened and checked.
  TokenFile(TokenLayout layout, Descriptor bin);

  const TokenLayout& layout() const { return *layout_; }
  uint64_t tokens() const { return layout_->tokens; }
  /// Of the .bin; stays open, and owned by this object.
  int fd() const { return bin_->descriptor.fd; }

  /// Writes tokens [first, first + to.size()) of the stream, which must hold them. What is not in memory is read from
  /// the disk here. Throws taut::Error if the file became shorter since it was opened.
  void read(uint64_t first, std::span<int64_t> to) const;

  /// Brings bytes [offset, offset + count) of the .bin into memory, and keeps them there while this object lives where
  /// the limit of locked memory allows.
  void load(uint64_t offset, uint64_t count) const;

 private:
  struct Bin {
    Descriptor descriptor;
    const char* data = nullptr;
    size_t bytes = 0;
    ~Bin();
  };

  void check_size() const;

  std::shared_ptr<const TokenLayout> layout_;
  std::shared_ptr<const Bin> bin_;
};

/// Throws taut::Error, naming file, id and position, if an id of `tokens` (those from `first` on) is not below
/// `vocab_size`: the file was made with another tokenizer.
void check_ids(const TokenFile& file, uint64_t first, std::span<const int64_t> tokens, int64_t vocab_size);

/// The same for 64 pieces of 16 Ki tokens spread evenly over the file, first and last among them.
void check_some_ids(const TokenFile& file, int64_t vocab_size);

}  // namespace taut::data
