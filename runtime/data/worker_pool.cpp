#include "runtime/data/worker_pool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace taut::data {
namespace {

constexpr int64_t kMostDeaths = 3;  // of a worker on one batch

Descriptor checked(int fd) {
  if (fd < 0) {
    throw Error(std::string("cannot start the data loader: ") + std::strerror(errno),
                "raise the limit of open files (ulimit -n), or lower data.num_workers");
  }
  return Descriptor(fd);
}

}  // namespace

WorkerPool::WorkerPool(Job job, Source source, std::filesystem::path program)
    : job_(std::move(job)),
      source_(std::move(source)),
      program_(std::move(program)),
      slots_(std::make_shared<Slots>(job_.ring)),
      buffers_(static_cast<size_t>(job_.ring.tokens_per_batch)),
      workers_(static_cast<size_t>(job_.ring.workers)) {
  const std::vector<uint8_t> encoded = encode_job(job_);
  job_memory_ = std::make_unique<SharedMemory>(encoded.size(), "the loader's job");
  std::copy(encoded.begin(), encoded.end(), job_memory_->data());
  if (program_.empty()) program_ = loader_program();
  for (int64_t number = 0; number < workers(); ++number) start(number);
}

WorkerPool::~WorkerPool() {
  // All at once, then each in turn: 64 workers end in the time of one.
  for (Worker& worker : workers_) {
    if (worker.process) worker.process->ask_to_end();
    worker.pipe = Descriptor();
  }
}

std::span<std::byte> WorkerPool::ring_memory() {
  return job_.ring.slots > 0 ? slots_->ring().memory() : std::span<std::byte>();
}

void WorkerPool::start(int64_t number) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  Descriptor pipe_write;
  if (job_.ring.slots > 0) {
    if (worker.produced_event.fd < 0) worker.produced_event = checked(eventfd(0, EFD_CLOEXEC));
  } else {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) ends[0] = -1;
    worker.pipe = checked(ends[0]);
    pipe_write = Descriptor(ends[1]);
    // Room for what the worker may be ahead, as far as the system allows; a smaller pipe only makes it wait earlier.
    const int64_t wanted = job_.ring.prefetch_factor * (job_.ring.tokens_per_batch * 8 + 4096);
    fcntl(worker.pipe.fd, F_SETPIPE_SZ, static_cast<int>(std::min<int64_t>(wanted, 1 << 20)));
  }
  const WorkerDescriptors descriptors{job_memory_->fd(), slots_->taken_event(number),
                                      job_.ring.slots > 0 ? worker.produced_event.fd : pipe_write.fd,
                                      slots_->ring().fd(), source_fd(source_)};
  worker.process.emplace(program_, number, descriptors);
  ++worker.starts;
}

int64_t WorkerPool::batch_of(int64_t number, uint64_t n) const {
  return first_batch_of(number, workers(), job_.first_batch) + static_cast<int64_t>(n) * workers();
}

std::vector<pollfd> WorkerPool::lives() const {
  std::vector<pollfd> polled;
  for (const Worker& worker : workers_) {
    polled.push_back({worker.process ? worker.process->life_fd() : -1, POLLIN | POLLRDHUP, 0});
  }
  return polled;
}

void WorkerPool::look_after(const std::vector<pollfd>& lives) {
  for (size_t number = 0; number < lives.size(); ++number) {
    if (lives[number].revents != 0) bury(static_cast<int64_t>(number));
  }
}

void WorkerPool::bury(int64_t number) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  const WorkerProcess::End end = worker.process->end();
  worker.process.reset();
  const std::string who = "loader worker " + std::to_string(number) + " of rank " + std::to_string(job_.rank);
  if (end.own_words) {
    if (!failure_) failure_ = Error(who + ": " + end.what, end.hint);
    return;
  }
  Counter& produced = slots_->ring().produced(number);
  const int64_t batch = batch_of(number, produced.value.load());
  worker.deaths = batch == worker.death_batch ? worker.deaths + 1 : 1;
  worker.death_batch = batch;
  // What a pipe holds ends somewhere inside a batch; all that was not received is made again.
  if (job_.ring.slots == 0) produced.value.store(slots_->received(number));
  if (batch_of(number, produced.value.load()) >= job_.end_batch) return;  // it had made all of its batches
  const std::string what = who + " " + end.what + " while it made batch " + std::to_string(batch);
  if (worker.deaths >= kMostDeaths) {
    if (!failure_) {
      failure_ =
          Error(what + ", for the " + std::to_string(worker.deaths) + "rd time",
                end.hint.empty() ? "look at this batch's data, or see what happens with data.num_workers 0" : end.hint);
    }
    return;
  }
  start(number);
  std::fprintf(stderr, "note: %s; started it again there (death %lld of at most %lld on this batch)\n", what.c_str(),
               static_cast<long long>(worker.deaths), static_cast<long long>(kMostDeaths - 1));
}

Batch WorkerPool::receive(int64_t batch_number) {
  const int64_t number = batch_number % workers();
  const uint64_t n = slots_->received(number);
  if (slots_->is_full(number, n)) {
    throw Error("the loader has no slot for batch " + std::to_string(batch_number) + ": the trainer keeps " +
                    std::to_string(job_.ring.slots) + " batches of worker " + std::to_string(number),
                "release batches before asking for more (Batch::release)");
  }
  std::vector<pollfd> polled = lives();
  if (poll(polled.data(), polled.size(), 0) > 0) look_after(polled);
  Batch batch;
  batch.worker = static_cast<int32_t>(number);
  if (job_.ring.slots > 0) {
    receive_from_slot(number, n, batch);
  } else {
    receive_from_pipe(number, batch);
  }
  auto slot = slots_->hold(number, n);
  if (slot) batch.slot = std::move(slot);
  return batch;
}

void WorkerPool::receive_from_slot(int64_t number, uint64_t n, Batch& batch) {
  Ring& ring = slots_->ring();
  while (ring.produced(number).value.load() <= n) {
    if (failure_) throw *failure_;
    std::vector<pollfd> polled = lives();
    const int event = workers_[static_cast<size_t>(number)].produced_event.fd;
    if (!wait_above(ring.produced(number), n, event, polled)) look_after(polled);
  }
  batch.tokens = ring.tokens(number, n);
  batch.sample_hash = ring.hash(number, n);
}

void WorkerPool::receive_from_pipe(int64_t number, Batch& batch) {
  const std::shared_ptr<int64_t> tokens = buffers_.take();
  PipeHeader header{};
  // Once more from the start when the worker died half-way.
  while (!read_pipe(number, &header, sizeof header) ||
         !read_pipe(number, tokens.get(), static_cast<size_t>(job_.ring.tokens_per_batch) * sizeof(int64_t))) {
  }
  batch.tokens = tokens.get();
  batch.sample_hash = header.sample_hash;
  batch.slot = tokens;
}

/// False if the worker was started again meanwhile, with a pipe of its own.
bool WorkerPool::read_pipe(int64_t number, void* to, size_t bytes) {
  Worker& worker = workers_[static_cast<size_t>(number)];
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::read(worker.pipe.fd, static_cast<char*>(to) + done, bytes - done);
    if (got > 0) {
      done += static_cast<size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno != EAGAIN) {
      throw Error(std::string("cannot read from a loader worker: ") + std::strerror(errno));
    }
    if (failure_) throw *failure_;
    std::vector<pollfd> polled = lives();
    polled.push_back({got == 0 ? -1 : worker.pipe.fd, POLLIN, 0});  // a closed pipe: the worker's end is about to show
    if (poll(polled.data(), polled.size(), -1) <= 0) continue;
    if (polled.back().revents != 0) continue;
    polled.pop_back();
    const int64_t starts = worker.starts;
    look_after(polled);
    if (worker.starts != starts) return false;
  }
  return true;
}

}  // namespace taut::data
