// The config that the tests mutate: small, valid, every batch number derivable.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/config/load.h"
#include "taut.h"

namespace taut::config {

inline Json small_config() {
  return Json::parse(R"({
    "model": {"hidden_size": 64, "num_layers": 4, "num_attention_heads": 8, "num_query_groups": 4, "ffn_hidden_size": 256,
              "seq_length": 32, "vocab_size": 512},
    "data": {"mock": true},
    "train_batch_size": 16, "train_micro_batch_size_per_gpu": 2
  })");
}

/// small_config() changed by an RFC 7386 patch, read and validated.
inline Config load_patched(const std::string& patch) {
  Config config = from_json(merge_patch(small_config(), Json::parse(patch)), "/configs");
  validate(config);
  return config;
}

/// What `body` throws.
template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error("");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace taut::config
