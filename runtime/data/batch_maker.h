// Makes one microbatch: read the samples' text, tokenize it, pack the ids into rows; or read the samples' tokens, where
// the source is a token file, and check them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/data/recipe.h"
#include "runtime/data/source.h"

namespace taut::data {

/// Who works, for the annotations.
struct MakerIdentity {
  int64_t dp_rank = 0, rank = 0;
  int32_t worker = -1;  // -1 = inline
};

struct PhaseMarks;

/// Thread safety: one thread at a time.
class BatchMaker {
 public:
  /// Waits that many milliseconds without using the processor (the emulated read latency).
  using Wait = std::function<void(double milliseconds)>;

  /// `recipe` was made for `source`.
  BatchMaker(Recipe recipe, MakerIdentity identity, Source source, Wait wait);

  /// Writes batch number `batch` (step × microbatches + microbatch) to `tokens` [micro_batch, seq_length + 1] and
  /// returns its sample hash. Marks the phases read, tokenize (but for a token file) and pack. Throws taut::Error if
  /// the data cannot be read any more, or a token file holds an id that model.vocab_size does not allow.
  uint64_t make(int64_t batch, int64_t* tokens);

  int64_t columns() const { return recipe_.seq_length + 1; }
  int64_t tokens_per_batch() const { return recipe_.shape.micro_batch * columns(); }
  const Recipe& recipe() const { return recipe_; }

 private:
  /// Text of one sample, perhaps of several documents; each of `ends` is a length of `text` at which one ends.
  struct Text {
    std::string text;
    std::vector<size_t> ends;
    bool torn = false;  // text stops inside a document
  };

  uint64_t make_from_tokens(const TokenFile& file, const PhaseMarks& marks, int64_t batch, int64_t* tokens);
  /// `source` is null for a mock.
  uint64_t make_from_text(const TextSource* source, const PhaseMarks& marks, int64_t batch, int64_t* tokens);
  void choose_samples(int64_t batch);
  void read(const TextSource& source, uint64_t sample, uint64_t bytes, Text& to) const;
  void tokenize(const TextSource& source, uint64_t sample, Text& text, std::vector<int64_t>& ids) const;

  Recipe recipe_;
  MakerIdentity identity_;
  Source source_;
  Wait wait_;
  uint64_t window_bytes_ = 0;      // read for each sample
  std::vector<uint64_t> samples_;  // of the present batch, by row
  std::vector<Text> texts_;
  std::vector<std::vector<int64_t>> ids_;
};

}  // namespace taut::data
