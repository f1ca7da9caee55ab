// What the trainer sees of data loading: `next()` gives one microbatch after the other.
//
// With num_workers = 0 the calling thread reads, tokenizes and packs. Otherwise `taut-loader` processes do, each up to
// prefetch_factor batches ahead; batch b = step × gradient_accumulation_steps + microbatch is made by worker
// b % num_workers, and batches arrive strictly in order. The token stream depends on the config's model.seq_length,
// tokenizer, data.seed, data.shuffle and batch sizes alone: never on num_workers, prefetch_factor, shared_memory or
// preload.
//
// shared_memory = true: a worker packs into a ring of slots in anonymous shared memory (a memfd: it leaves nothing
// behind in /dev/shm whatever dies, and /dev/shm's size does not limit it) and `next()` returns a view of the slot,
// which can be wrapped as a tensor without a copy. false: batches come through a pipe and are copied out; a worker gets
// ahead as far as the pipe takes whole batches (at most /proc/sys/fs/pipe-max-size).
//
// data.path names text (corpus.h) or token files (token_file.h), which are mapped and need no tokenizing.
// preload = true: the whole data set is brought into memory once per node before the first batch (preload.h).
// mock = true: tokens are generated from the sample's number, nothing is read.
// read_latency_ms is an emulation of remote storage: each sample read waits that long in the process that reads it.
//
// A worker that dies is started again, and the batches stay the same (worker_pool.h).
//
// Annotated (tracer/annotate): each `next()` is a `batch_wait` range with a `batch_result` mark inside it; every moment
// of a worker is in one of read, tokenize, pack, hand_over and blocked, or in `loader_start` before its first batch or
// `loader_done` after its last.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "runtime/config/config.h"
#include "runtime/data/batch.h"
#include "runtime/data/handover.h"

namespace taut::data {

/// Who asks: the loader of one data-parallel replica. `rank` is the global rank, for traces and messages.
struct LoaderPlace {
  int64_t dp_rank = 0;
  int64_t rank = 0;
};

/// Batches that a trainer with this config keeps at once, from next() to the end of the backward pass: the microbatches
/// that are in the pipeline, and one more that it asks for before it drops the oldest.
int64_t batches_kept(const config::Config& config);

/// The ring of a loader with this config: each worker's slots are prefetch_factor and its share of batches_kept().
RingShape ring_shape(const config::Config& config);

/// Thread safety: one thread at a time, which must live as long as the loader (the kernel ends the workers when the
/// thread that started them ends). What next() returned may be released by any thread.
class Loader {
 public:
  /// Starts the workers; they begin to read at once. `config` must be validated (config::validate). The first batch is
  /// microbatch 0 of `first_step`; the last belongs to step config.train_steps - 1. `program` is the loader's
  /// executable; empty means `taut-loader` beside this process's own.
  /// Throws taut::Error: data missing, not text or damaged, shorter than one sequence, tokenizer or token file that do
  /// not fit model.vocab_size, not enough memory for the ring or for preloading, workers that cannot start.
  Loader(const config::Config& config, LoaderPlace place, int64_t first_step = 0, std::filesystem::path program = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next microbatch. Blocks, without spinning, until it is ready. It stays valid until it is released, or all
  /// copies of its `slot` are gone. Keeping up to batches_kept() of them costs nothing; each further one takes a place
  /// from the batches prepared ahead, and when there is none left next() throws.
  /// Throws taut::Error when a worker fails, or dies for the third time on one batch (naming worker, signal and batch),
  /// and after the last step's last batch.
  Batch next();

  /// Batches that are ready and not yet taken; always 0 inline. Never more than num_workers × prefetch_factor.
  int64_t queue_depth() const;

  /// The memory that batches lie in, for pinning it (cudaHostRegister); page-aligned, and mapped as long as the loader
  /// or a batch of it lives. Empty without workers or with pipes.
  std::span<std::byte> ring_memory() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::data
