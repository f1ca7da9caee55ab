// The worker processes of one loader: started, listened to, started again when they die.
//
// A worker that is killed, or exits without saying why, is replaced by one that begins with the batch that was not
// finished: batches are a function of their number, so nothing else changes. Its end shows at once to a trainer that
// waits for a batch, and at the next request to one that does not: the worker's end of a socket closes with it. Each
// death is one line on stderr. The third death of a worker on the same batch is an error, as is what a worker says
// itself (its data cannot be read): that would not be better the next time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/data/batch.h"
#include "runtime/data/buffers.h"
#include "runtime/data/job.h"
#include "runtime/data/slots.h"
#include "runtime/data/worker_process.h"
#include "taut.h"

namespace taut::data {

/// Thread safety: one thread at a time, which must live as long as the pool (the kernel ends a process that was started
/// by a thread when that thread ends).
class WorkerPool {
 public:
  /// Starts job.ring.workers processes. `source` is what the job describes. Throws taut::Error.
  WorkerPool(Job job, Source source, std::filesystem::path program);
  /// Ends them, all at once.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Batch number `batch`, the one after that of the last call: tokens, hash, worker and slot are filled in. Blocks
  /// until it is there. Throws taut::Error: workers that failed, a slot that it needs and the caller keeps.
  Batch receive(int64_t batch);

  int64_t workers() const { return job_.ring.workers; }
  /// Batches finished and not received.
  int64_t ready() { return slots_->ready(); }
  /// The ring that batches lie in; empty with pipes.
  std::span<std::byte> ring_memory();

 private:
  struct Worker {
    Descriptor produced_event;  // eventfd; with pipes unused
    Descriptor pipe;            // read end
    std::optional<WorkerProcess> process;
    int64_t starts = 0;
    int64_t death_batch = -1, deaths = 0;  // the batch that it last died on, and how often
  };

  void start(int64_t number);
  int64_t batch_of(int64_t number, uint64_t n) const;
  std::vector<pollfd> lives() const;
  void look_after(const std::vector<pollfd>& lives);
  void bury(int64_t number);
  void receive_from_slot(int64_t number, uint64_t n, Batch& batch);
  void receive_from_pipe(int64_t number, Batch& batch);
  bool read_pipe(int64_t number, void* to, size_t bytes);

  Job job_;
  Source source_;
  std::filesystem::path program_;
  std::unique_ptr<SharedMemory> job_memory_;
  std::shared_ptr<Slots> slots_;
  Buffers buffers_;  // with pipes
  std::vector<Worker> workers_;
  std::optional<Error> failure_;  // of a worker that is not started again; thrown when what is ready has been received
};

}  // namespace taut::data
