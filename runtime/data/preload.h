// The whole corpus in shared memory, read once per node.
//
// The first process to come on a node reads and keeps the text; others that ask for the same job's path receive its
// memory over an abstract Unix socket. Nothing has a name in the file system, so nothing is left behind whatever dies;
// if the keeper dies, the memory lives on with those who have it, and the next to ask becomes keeper.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "runtime/data/corpus.h"

namespace taut::data {

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

}  // namespace taut::data
