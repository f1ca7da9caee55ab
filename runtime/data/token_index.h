// Reads and checks the .idx of a pair of token files (the format stands in token_file.h). The file may come from
// anywhere: no number of it is used before it was held against the files' sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/token_file.h"

namespace taut::data {

struct CheckedIndex {
  TokenLayout layout;                   // all but end_of_document
  std::vector<uint64_t> document_ends;  // of at most 1,000 documents that hold tokens, spread evenly; in tokens
};

/// Throws taut::Error that names the file and the number that is wrong.
CheckedIndex read_token_index(const std::string& path, const std::string& bin_path, uint64_t bin_bytes);

}  // namespace taut::data
