// What `taut train` checks of the data before it starts a rank: everything that would make all of them fail alike.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/data/available_memory.h"
#include "runtime/data/source.h"

namespace taut::data {

/// Memory that the loaders of all ranks of `config` take on one machine, in bytes.
struct LoaderMemory {
  int64_t loaders = 0;          // ranks that load: each data-parallel replica's first and last pipeline stage
  uint64_t ring_bytes = 0;      // of one loader
  uint64_t unpacked_bytes = 0;  // of one loader: .gz text
  uint64_t preload_bytes = 0;   // of all together

  uint64_t total() const { return static_cast<uint64_t>(loaders) * (ring_bytes + unpacked_bytes) + preload_bytes; }
};
LoaderMemory loader_memory(const config::Config& config, const Source& source);

/// Opens the data and checks what can be known without training: files and their format, the tokenizer against
/// model.vocab_size, at least one sequence of tokens, an end-of-document token where data.eod_mask_loss needs one, and
/// the loaders' memory against `available_bytes`. The tokenizer's model must exist (ensure_tokenizer). `config` must be
/// validated. Throws taut::Error; returns remarks for the user.
std::vector<std::string> check_data(const config::Config& config, uint64_t available_bytes = available_memory());

}  // namespace taut::data
