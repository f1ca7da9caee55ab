// Text to token ids: bytes, or a SentencePiece model.
//
//   byte                 ids 0 … 255 are the bytes, 256 ends a document; vocabulary 257
//   sentencepiece:FILE   the model's ids; its </s> ends a document
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/config.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace taut::data {

/// Thread safety: const functions may be called from several threads.
class Tokenizer {
 public:
  /// `spec` is data.tokenizer. Throws taut::Error if the model file is missing, damaged or has no end-of-sentence id.
  explicit Tokenizer(const std::string& spec);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Appends the ids of `text` (UTF-8 for SentencePiece, any bytes for byte) to `ids`. No begin or end marks are added.
  void encode(std::string_view text, std::vector<int64_t>& ids) const;

  /// Ids are below this.
  int64_t vocabulary() const { return vocabulary_; }
  /// The id that ends a document.
  int64_t end_of_document() const { return end_of_document_; }
  /// One id per byte, whatever the text.
  bool is_byte() const { return model_ == nullptr; }

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> model_;
  int64_t vocabulary_ = 257, end_of_document_ = 256;
};

/// Makes sure that the tokenizer that `config` names exists and fits: trains a missing "sentencepiece:FILE" from the
/// corpus at data.path (vocabulary = model.vocab_size) and writes it whole or not at all; then checks that the
/// vocabulary is not larger than model.vocab_size. The same corpus and size give the same file, byte for byte. Reads
/// at most 64 MiB of text, spread evenly over the corpus. Does nothing when data.mock is set, or
/// data.path names token files. Takes seconds when it
/// trains; returns whether it did.
bool ensure_tokenizer(const config::Config& config);

/// Throws taut::Error if `tokenizer` has more ids than the model has embeddings.
void check_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size);

}  // namespace taut::data
