// `taut train --prepare`: text to token files (token_file.h), once, so that training has nothing left to tokenize.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "runtime/config/config.h"
#include "runtime/data/token_file.h"

namespace taut::data {

struct Prepared {
  std::filesystem::path prefix;  // NAME of NAME.bin and NAME.idx: what data.path is to be
  TokenType type = TokenType::uint16;
  uint64_t tokens = 0, documents = 0;
  uint64_t text_bytes = 0, file_bytes = 0;  // read, and written in both files
};

/// NAME of the token files of `config`: `<name of the data>_<tokenizer>_text_document`, as Megatron's preprocessing
/// calls them, beside data.path; where that folder cannot be written to, in `config_folder`.
std::filesystem::path prepared_prefix(const config::Config& config, const std::filesystem::path& config_folder);

/// Tokenizes every document of data.path, on all cores, and writes the ids, an end-of-document token after each
/// document, as uint16 (int32 if the tokenizer has 65,500 ids or more); one sequence a document. A document above 16
/// KiB is tokenized in pieces that end with a line (as long as lines are shorter). The files replace older ones of
/// their name, whole or not at all. The tokenizer's model must exist (ensure_tokenizer). `progress` hears how many
/// bytes of how many have been read, from time to time. Throws taut::Error: what Corpus::open and Tokenizer throw,
/// data.mock, data that are token files already, files that cannot be written.
Prepared prepare(const config::Config& config, const std::filesystem::path& config_folder,
                 const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace taut::data
