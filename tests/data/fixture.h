// A folder with data of its own, and configs that read it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/config/config.h"
#include "runtime/data/loader.h"
#include "taut.h"

namespace taut::data {

/// A temporary folder, removed at the end of the test.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "taut-data-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }

  std::string write(const std::string& name, const std::string& content) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << content;
    return file.string();
  }

  std::string write_gzip(const std::string& name, const std::string& content) const {
    const std::string file = (path_ / name).string();
    gzFile gz = gzopen(file.c_str(), "wb");
    gzwrite(gz, content.data(), static_cast<unsigned>(content.size()));
    gzclose(gz);
    return file;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// English-like text of about `bytes` bytes, different for each `seed`.
inline std::string prose(size_t bytes, unsigned seed) {
  static const char* const kWords[] = {"the", "loader", "reads", "a",     "slow", "disk",    "and",  "trainer", "waits",
                                       "for", "every",  "batch", "until", "more", "workers", "help", "naïve",   "it"};
  std::string text;
  for (unsigned state = seed * 2654435761u + 1; text.size() < bytes;) {
    state = state * 1664525u + 1013904223u;
    text += kWords[(state >> 16) % std::size(kWords)];
    text += (state >> 28) == 0 ? ".\n" : " ";
  }
  return text;
}

/// 3 steps of `accumulation` microbatches of 2 rows of 16 tokens, on `dp` replicas, byte tokenizer, 2 workers.
inline config::Config small_config(const std::string& path, int64_t dp = 1, int64_t accumulation = 4) {
  config::Config config;
  config.model.seq_length = 16;
  config.model.vocab_size = 512;
  config.data.path = path;
  config.data.num_workers = 2;
  config.train_micro_batch_size_per_gpu = 2;
  config.gradient_accumulation_steps = accumulation;
  config.train_batch_size = 2 * accumulation * dp;
  config.world_size = dp;
  config.train_steps = 3;
  return config;
}

/// A batch that outlives the loader's slot.
struct Kept {
  int64_t step;
  int32_t microbatch;
  std::vector<int64_t> tokens;
  uint64_t sample_hash;
  bool operator==(const Kept&) const = default;
};

inline Kept keep(const Batch& batch) {
  return {batch.step, batch.microbatch, {batch.span().begin(), batch.span().end()}, batch.sample_hash};
}

/// Every batch of one data-parallel rank from `first_step` to the end.
inline std::vector<Kept> all_batches(const config::Config& config, int64_t dp_rank = 0, int64_t first_step = 0) {
  Loader loader(config, {dp_rank, dp_rank}, first_step);
  std::vector<Kept> batches;
  const int64_t count = (config.train_steps - first_step) * config.gradient_accumulation_steps;
  for (int64_t i = 0; i < count; ++i) batches.push_back(keep(loader.next()));
  return batches;
}

/// Runs `action`, which must throw taut::Error, and returns "what | hint".
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return std::string(error.what()) + " | " + error.hint();
  }
  ADD_FAILURE() << "no taut::Error was thrown";
  return {};
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace taut::data
