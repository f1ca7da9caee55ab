// What samples are made from.
#pragma once

#include <cstdint>
#include <variant>

#include "runtime/config/config.h"
#include "runtime/data/corpus.h"
#include "runtime/data/token_file.h"
#include "runtime/data/tokenizer.h"

namespace taut::data {

struct TextSource {
  Corpus corpus;
  Tokenizer tokenizer;
};

/// Nothing (tokens are generated: data.mock), text and what makes tokens of it, or tokens.
using Source = std::variant<std::monostate, TextSource, TokenFile>;

/// Opens what `config` names, and checks that its ids fit model.vocab_size: all of a tokenizer's, some of a token
/// file's (the others when they are read). Throws what Corpus::open, Tokenizer and TokenFile::open throw.
Source open_source(const config::Config& config);

/// The id that ends a document in the batches of `config`: what the documents of a token file all end with, else the
/// tokenizer's; -1 for generated tokens, which have none. Labels that are this id are what data.eod_mask_loss masks.
/// Throws what open_source throws, and taut::Error where a token file's documents end with different ids.
int64_t end_of_document(const config::Config& config);
int64_t end_of_document(const config::Config& config, const Source& source);

}  // namespace taut::data
