#include "runtime/data/source.h"

#include "taut.h"

namespace taut::data {

Source open_source(const config::Config& config) {
  if (config.data.mock) return {};
  if (const auto prefix = token_file_prefix(config.data.path)) {
    TokenFile file = TokenFile::open(*prefix);
    check_some_ids(file, config.model.vocab_size);
    return file;
  }
  Tokenizer tokenizer(config.data.tokenizer);
  check_vocabulary(tokenizer, config.model.vocab_size);
  return TextSource{Corpus::open(config.data.path), std::move(tokenizer)};
}

int64_t end_of_document(const config::Config& config) {
  if (config.data.mock) return -1;
  if (const auto prefix = token_file_prefix(config.data.path)) {
    return end_of_document(config, Source(TokenFile::open(*prefix)));
  }
  return Tokenizer(config.data.tokenizer).end_of_document();
}

int64_t end_of_document(const config::Config& config, const Source& source) {
  if (const auto* text = std::get_if<TextSource>(&source)) return text->tokenizer.end_of_document();
  const auto* file = std::get_if<TokenFile>(&source);
  if (file == nullptr) return -1;
  const TokenLayout& layout = file->layout();
  if (layout.documents > 1 && layout.end_of_document < 0) {
    throw Error("the documents of '" + layout.path + "' end with different tokens, so none of them marks an end",
                "write the files with end-of-document tokens: taut train CONFIG --prepare, or Megatron's "
                "preprocess_data.py --append-eod");
  }
  // A single document's last token says nothing by itself.
  return layout.documents > 1 ? layout.end_of_document : Tokenizer(config.data.tokenizer).end_of_document();
}

}  // namespace taut::data
