// Trains a SentencePiece model from the corpus: byte-pair merges, bytes for what the vocabulary lacks, and no
// normalization, so that every text comes back as it was.
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <unordered_map>

#include "runtime/config/load.h"
#include "runtime/config/whole_file.h"
#include "runtime/data/corpus.h"
#include "runtime/data/text.h"
#include "runtime/data/token_file.h"
#include "runtime/data/tokenizer.h"
#include "taut.h"

namespace taut::data {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;
constexpr uint64_t kMaxBlocks = 64;
constexpr size_t kMaxLineBytes = 4000;  // SentencePiece drops sentences above 4192 bytes

/// The corpus line by line: all of it, or kMaxBlocks blocks spread evenly.
class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const Corpus& corpus)
      : corpus_(corpus), blocks_(std::min(kMaxBlocks, (corpus.bytes() + kBlockBytes - 1) / kBlockBytes)) {
    Next();
  }

  bool done() const override { return done_; }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

  void Next() override {
    while (at_ >= text_.size()) {
      if (!read_more()) {
        done_ = true;
        return;
      }
    }
    const size_t newline = std::min(text_.find('\n', at_), text_.size());
    std::string_view line = std::string_view(text_).substr(at_, newline - at_);
    if (line.size() > kMaxLineBytes) {
      line = without_torn_end(line.substr(0, kMaxLineBytes));
      at_ += line.size();
    } else {
      at_ = newline + 1;
    }
    line_ = line;
  }

 private:
  /// The next document's share of the present block, or of the next one.
  bool read_more() {
    while (offset_ >= block_end_) {
      if (block_ == blocks_) return false;
      offset_ = corpus_.bytes() / blocks_ * block_;
      block_end_ = ++block_ == blocks_ ? std::min(offset_ + kBlockBytes, corpus_.bytes())
                                       : std::min(offset_ + kBlockBytes, corpus_.bytes() / blocks_ * block_);
    }
    const Corpus::Position position = corpus_.locate(offset_);
    text_.clear();
    at_ = 0;
    corpus_.read(position.document, position.offset, block_end_ - offset_, text_);
    offset_ += text_.size();
    return true;
  }

  const Corpus& corpus_;
  uint64_t blocks_, block_ = 0, offset_ = 0, block_end_ = 0;
  std::string text_, line_;
  size_t at_ = 0;
  bool done_ = false;
};

std::string train(const Corpus& corpus, int64_t vocab_size) {
  Lines lines(corpus);
  std::string model;
  // One thread: the order of merges must not depend on the machine. A small corpus may fill less than vocab_size.
  const std::unordered_map<std::string, std::string> arguments{{"minloglevel", "2"},
                                                               {"model_type", "bpe"},
                                                               {"byte_fallback", "true"},
                                                               {"normalization_rule_name", "identity"},
                                                               {"add_dummy_prefix", "false"},
                                                               {"remove_extra_whitespaces", "false"},
                                                               {"num_threads", "1"},
                                                               {"hard_vocab_limit", "false"},
                                                               {"vocab_size", std::to_string(vocab_size)}};
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &lines, &model);
  if (!status.ok()) {
    throw Error("cannot train a SentencePiece tokenizer with " + std::to_string(vocab_size) +
                    " ids from data.path: " + status.error_message(),
                "the model holds 256 bytes, 3 marks and the corpus's characters before any merge: set "
                "model.vocab_size to 512 or more, or data.tokenizer to \"byte\"");
  }
  return model;
}

void write_model(const std::string& file, const std::string& content) {
  config::WholeFile model(file, "the tokenizer model",
                          "data.tokenizer must name a file in a folder that exists and can be written to");
  model.write(content);
  model.commit();
}

}  // namespace

bool ensure_tokenizer(const config::Config& config) {
  if (config.data.mock) return false;
  const std::string file = config::tokenizer_file(config);
  const bool missing = !file.empty() && !std::filesystem::exists(file);
  if (token_file_prefix(config.data.path)) return false;  // nothing is left to be tokenized
  if (missing) write_model(file, train(Corpus::open(config.data.path), config.model.vocab_size));
  check_vocabulary(Tokenizer(config.data.tokenizer), config.model.vocab_size);
  return missing;
}

}  // namespace taut::data
