// What the trainer sees of data loading: `next()` gives one microbatch after the other.
//
// With num_workers = 0 the calling thread reads, tokenizes and packs. Otherwise `taut-loader` processes do, each up to
// prefetch_factor batches ahead; batch b = step × gradient_accumulation_steps + microbatch is made by worker
// b % num_workers, and batches arrive strictly in order. The token stream depends on the config's model.seq_length,
// tokenizer, data.seed, data.shuffle and batch sizes alone: never on num_workers, prefetch_factor, shared_memory or
// preload.
//
// shared_memory = true: a worker packs into a ring of slots in anonymous shared memory (a memfd: it leaves nothing
// behind in /dev/shm whatever dies) and `next()` returns a view of the slot. false: batches come through a pipe and are
// copied out; a worker gets ahead as far as the pipe takes whole batches (at most /proc/sys/fs/pipe-max-size).
//
// preload = true: the whole corpus is brought into shared memory once per node before the first batch (preload.h).
// mock = true: tokens are generated from the sample's number, nothing is read.
// read_latency_ms is an emulation of remote storage: each sample read waits that long in the process that reads it.
//
// Annotated (tracer/annotate): each `next()` is a `batch_wait` range with a `batch_result` mark inside it; workers mark
// read, tokenize, pack, hand_over and blocked, one range per phase and batch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "runtime/config/config.h"
#include "runtime/data/batch.h"

namespace taut::data {

/// Who asks: the loader of one data-parallel replica. `rank` is the global rank, for traces and messages.
struct LoaderPlace {
  int64_t dp_rank = 0;
  int64_t rank = 0;
};

/// Thread safety: one thread at a time. Build it in a thread that lives as long as the loader (the kernel ends the
/// workers when the thread that started them ends).
class Loader {
 public:
  /// Starts the workers; they begin to read at once. `config` must be validated (config::validate). The first batch is
  /// microbatch 0 of `first_step`; the last belongs to step config.train_steps - 1. `program` is the loader's
  /// executable; empty means `taut-loader` beside this process's own.
  /// Throws taut::Error: data missing or not text, tokenizer missing or too large for model.vocab_size, not enough
  /// memory for the ring, workers that cannot start.
  Loader(const config::Config& config, LoaderPlace place, int64_t first_step = 0, std::filesystem::path program = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next microbatch. Blocks, without spinning, until it is ready; the batch returned before becomes invalid.
  /// Throws taut::Error when a worker fails or dies (naming worker and signal, as soon as it is noticed missing), and
  /// after the last step's last batch.
  Batch next();

  /// Batches that are ready and not yet taken; always 0 inline. Never more than num_workers × prefetch_factor.
  int64_t queue_depth() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::data
