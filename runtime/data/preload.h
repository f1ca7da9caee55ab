// The whole data set in memory, read once per node (keeper.h).
//
// Text goes into shared memory. A token file is memory already, once it is in the page cache: the keeper brings it
// there and locks it as far as the limit of locked memory allows (ulimit -l), and all processes map the same pages.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "runtime/data/available_memory.h"
#include "runtime/data/corpus.h"
#include "runtime/data/token_file.h"

namespace taut::data {

class Keeper;

/// Keeps the corpus available to other processes while it lives.
class PreloadedCorpus {
 public:
  /// Returns when the text is in memory. `job` tells jobs on one node apart (the rendezvous address). The files are
  /// read in order in blocks of 1 MiB, each of which waits `read_latency_ms` (emulated remote storage); reading from
  /// memory afterwards waits for nothing. Throws what Corpus::open throws, and taut::Error if the text does not fit in
  /// memory.
  PreloadedCorpus(const std::filesystem::path& path, const std::string& job, double read_latency_ms);
  ~PreloadedCorpus();
  PreloadedCorpus(const PreloadedCorpus&) = delete;
  PreloadedCorpus& operator=(const PreloadedCorpus&) = delete;

  const Corpus& corpus() const;
  /// This process read the text; false = it was already there.
  bool is_keeper() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Keeps a token file in memory while it lives.
class PreloadedTokens {
 public:
  /// Returns when the file is in memory; parameters as above. Throws taut::Error if it is larger than
  /// `available_bytes`.
  PreloadedTokens(const TokenFile& file, const std::string& job, double read_latency_ms,
                  uint64_t available_bytes = available_memory());
  ~PreloadedTokens();
  PreloadedTokens(const PreloadedTokens&) = delete;
  PreloadedTokens& operator=(const PreloadedTokens&) = delete;

  /// This process read the file; false = it was already there.
  bool is_keeper() const;

 private:
  TokenFile file_;
  std::unique_ptr<Keeper> keeper_;
};

/// Throws taut::Error, with both numbers and the key to change, if `bytes` of data at `path` are more than
/// `available_bytes`.
void check_preload_memory(const std::string& path, uint64_t bytes, uint64_t available_bytes);

}  // namespace taut::data
