// Everything that decides which tokens a batch holds, and nothing about who makes it.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/config.h"
#include "runtime/data/sampler.h"
#include "runtime/data/source.h"

namespace taut::data {

/// Of text, sample i is what begins at byte i × stride_bytes of the corpus, as seq_length + 1 tokens: documents follow
/// each other with the end-of-document token after each, and after the last comes the first again. Of a token file,
/// sample i is its tokens [i × seq_length, i × seq_length + seq_length + 1), so that each token but the first and those
/// of an incomplete last sample is a label once an epoch.
struct Recipe {
  int64_t seq_length = 0, vocab_size = 0;
  BatchShape shape;
  SampleOrder order;
  uint64_t stride_bytes = 1;   // of text
  bool mock = false;           // tokens are generated from the sample's number
  double read_latency_ms = 0;  // emulation of remote storage: waited for each sample
};

/// The recipe of a run. `config` must be validated. stride_bytes is seq_length × the mean bytes per token: 1 for bytes,
/// else measured on 16 pieces of 16 KiB spread evenly over the corpus. Throws taut::Error if the data are shorter than
/// one sample.
Recipe make_recipe(const config::Config& config, const Source& source);

}  // namespace taut::data
