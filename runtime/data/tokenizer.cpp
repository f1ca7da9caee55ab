#include "runtime/data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <filesystem>

#include "taut.h"

namespace taut::data {

Tokenizer::Tokenizer(const std::string& spec) {
  constexpr std::string_view kSentencePiece = "sentencepiece:";
  if (spec == "byte") return;
  if (!spec.starts_with(kSentencePiece) || spec.size() == kSentencePiece.size()) {
    throw Error("data.tokenizer is '" + spec + "'", "\"byte\" or \"sentencepiece:FILE\"");
  }
  const std::string file = spec.substr(kSentencePiece.size());
  if (!std::filesystem::exists(file)) {
    throw Error("the tokenizer model '" + file + "' does not exist",
                "`taut train` trains a missing model from data.path before it starts the ranks");
  }
  model_ = std::make_unique<sentencepiece::SentencePieceProcessor>();
  const auto status = model_->Load(file);
  if (!status.ok()) {
    throw Error("cannot load the tokenizer model '" + file + "': " + status.error_message(),
                "give a SentencePiece .model file; delete a damaged one to have it trained again");
  }
  vocabulary_ = model_->GetPieceSize();
  end_of_document_ = model_->eos_id();
  if (end_of_document_ < 0) {
    throw Error("the tokenizer model '" + file + "' has no end-of-sentence id, which is needed to end documents",
                "train the model with --eos_id");
  }
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

void Tokenizer::encode(std::string_view text, std::vector<int64_t>& ids) const {
  if (is_byte()) {
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return;
  }
  std::vector<int> pieces;
  const auto status = model_->Encode(text, &pieces);
  if (!status.ok()) throw Error(std::string("SentencePiece cannot encode the text: ") + status.error_message());
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

void check_vocabulary(const Tokenizer& tokenizer, int64_t vocab_size) {
  if (tokenizer.vocabulary() <= vocab_size) return;
  const std::string ids = std::to_string(tokenizer.vocabulary());
  throw Error("the tokenizer has " + ids + " ids, but model.vocab_size is " + std::to_string(vocab_size),
              "set model.vocab_size to " + ids + " or more, or name another tokenizer");
}

}  // namespace taut::data
