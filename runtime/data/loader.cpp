#include "runtime/data/loader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/data/batch_maker.h"
#include "runtime/data/handover.h"
#include "runtime/data/job.h"
#include "runtime/data/preload.h"
#include "runtime/data/recipe.h"
#include "runtime/data/tokenizer.h"
#include "runtime/data/worker_process.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::data {
namespace {

/// Owns a descriptor.
struct Descriptor {
  explicit Descriptor(int number = -1) : fd(number) {}
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd, other.fd);
    return *this;
  }
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  int fd;
};

Descriptor checked(int fd) {
  if (fd < 0) {
    throw Error(std::string("cannot start the data loader: ") + std::strerror(errno),
                "raise the limit of open files (ulimit -n), or lower data.num_workers");
  }
  return Descriptor(fd);
}

/// The trainer's side of one worker.
struct Worker {
  Descriptor taken_event, produced_event;  // eventfds; the second is unused with a pipe
  Descriptor pipe;                         // read end, without shared memory
  WorkerProcess process;
};

/// Ranks of one job on one node share the preloaded text.
std::string job_name() {
  std::string name;
  for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"}) {
    const char* value = std::getenv(variable);
    name.append(value != nullptr ? value : "").push_back(':');
  }
  return name;
}

Worker start_worker(const std::filesystem::path& program, int64_t number, const SharedMemory& job, Ring& ring,
                    const RingShape& shape, int corpus_fd) {
  Descriptor taken = checked(eventfd(0, EFD_CLOEXEC)), produced, pipe_read, pipe_write;
  if (shape.slots) {
    produced = checked(eventfd(0, EFD_CLOEXEC));
  } else {
    int ends[2] = {-1, -1};
    if (pipe2(ends, O_CLOEXEC) != 0) ends[0] = -1;
    pipe_read = checked(ends[0]);
    pipe_write = Descriptor(ends[1]);
    fcntl(pipe_read.fd, F_SETFL, O_NONBLOCK);
    // Room for what the worker may be ahead, as far as the system allows; a smaller pipe only makes it wait earlier.
    const int64_t wanted = shape.prefetch_factor * (shape.tokens_per_batch * 8 + 4096);
    fcntl(pipe_read.fd, F_SETPIPE_SZ, static_cast<int>(std::min<int64_t>(wanted, 1 << 20)));
  }
  const WorkerDescriptors descriptors{job.fd(), taken.fd, shape.slots ? produced.fd : pipe_write.fd, ring.fd(),
                                      corpus_fd};
  WorkerProcess process(program, number, descriptors);
  return {std::move(taken), std::move(produced), std::move(pipe_read), std::move(process)};
}

}  // namespace

struct Loader::Impl {
  LoaderPlace place;
  int64_t microbatches = 1, end_batch = 0, next_batch = 0, first_batch = 0;
  int64_t rows = 0, columns = 0;
  std::vector<int64_t> own_tokens;  // inline and pipe
  std::unique_ptr<PreloadedCorpus> preloaded;
  std::optional<BatchMaker> maker;  // inline
  RingShape shape;
  std::unique_ptr<SharedMemory> job;
  std::unique_ptr<Ring> ring;
  std::vector<Worker> workers;

  ~Impl() {
    // All at once, then each in turn: 64 workers end in the time of one.
    for (Worker& worker : workers) {
      worker.process.ask_to_end();
      worker.pipe = Descriptor();
    }
  }

  int64_t queue_depth() const {
    int64_t ready = 0;
    for (int64_t worker = 0; worker < static_cast<int64_t>(workers.size()); ++worker) {
      ready += static_cast<int64_t>(ring->produced(worker).value.load() - ring->taken(worker).value.load());
    }
    return ready;
  }

  std::vector<pollfd> lives() const {
    std::vector<pollfd> polled;
    for (const Worker& worker : workers) polled.push_back({worker.process.life_fd(), POLLIN | POLLRDHUP, 0});
    return polled;
  }

  [[noreturn]] void throw_end_of(size_t number) {
    const WorkerProcess::End end = workers[number].process.end();
    const std::string who = "loader worker " + std::to_string(number) + " of rank " + std::to_string(place.rank) +
                            (end.own_words ? ": " : " ");
    throw Error(who + end.what, end.hint);
  }

  /// `lives` as polled: ends with the error of the first worker that spoke.
  void throw_if_ended(const std::vector<pollfd>& lives) {
    const auto spoke = std::find_if(lives.begin(), lives.end(), [](const pollfd& life) { return life.revents != 0; });
    if (spoke != lives.end()) throw_end_of(static_cast<size_t>(spoke - lives.begin()));
  }

  void receive_from_slot(int64_t number, uint64_t n, Batch& batch) {
    const Worker& worker = workers[static_cast<size_t>(number)];
    Counter& produced = ring->produced(number);
    if (produced.value.load() <= n) {
      std::vector<pollfd> polled = lives();
      if (!wait_above(produced, n, worker.produced_event.fd, polled)) throw_if_ended(polled);
    }
    batch.tokens = ring->tokens(number, n);
    batch.sample_hash = ring->hash(number, n);
  }

  void receive_from_pipe(int64_t number, Batch& batch) {
    PipeHeader header{};
    read_pipe(number, &header, sizeof header);
    read_pipe(number, own_tokens.data(), own_tokens.size() * sizeof(int64_t));
    batch.tokens = own_tokens.data();
    batch.sample_hash = header.sample_hash;
  }

  void read_pipe(int64_t number, void* to, size_t bytes) {
    const int fd = workers[static_cast<size_t>(number)].pipe.fd;
    for (size_t done = 0; done < bytes;) {
      const ssize_t got = ::read(fd, static_cast<char*>(to) + done, bytes - done);
      if (got > 0) {
        done += static_cast<size_t>(got);
      } else if (got == 0) {
        throw_end_of(static_cast<size_t>(number));
      } else if (errno == EAGAIN) {
        std::vector<pollfd> polled = lives();
        polled.push_back({fd, POLLIN, 0});
        if (poll(polled.data(), polled.size(), -1) <= 0 || polled.back().revents != 0) continue;
        polled.pop_back();
        throw_if_ended(polled);
      } else if (errno != EINTR) {
        throw Error(std::string("cannot read from a loader worker: ") + std::strerror(errno));
      }
    }
  }

  Batch receive(int64_t number) {
    const auto count = static_cast<int64_t>(workers.size());
    const auto n = static_cast<uint64_t>((next_batch - first_batch_of(number, count, first_batch)) / count);
    Batch batch;
    if (shape.slots) {
      receive_from_slot(number, n, batch);
    } else {
      receive_from_pipe(number, batch);
    }
    raise(ring->taken(number), n + 1, workers[static_cast<size_t>(number)].taken_event.fd);
    return batch;
  }
};

Loader::Loader(const config::Config& config, LoaderPlace place, int64_t first_step, std::filesystem::path program)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.place = place;
  impl.microbatches = config.gradient_accumulation_steps;
  impl.first_batch = impl.next_batch = first_step * impl.microbatches;
  impl.end_batch = config.train_steps * impl.microbatches;
  impl.rows = config.train_micro_batch_size_per_gpu;
  impl.columns = config.model.seq_length + 1;

  Recipe recipe;
  std::optional<Corpus> corpus;
  std::optional<Tokenizer> tokenizer;
  if (config.data.mock) {
    recipe = make_mock_recipe(config);
  } else {
    tokenizer.emplace(config.data.tokenizer);
    check_vocabulary(*tokenizer, config.model.vocab_size);
    if (config.data.preload) {
      impl.preloaded = std::make_unique<PreloadedCorpus>(config.data.path, job_name(), config.data.read_latency_ms);
      corpus = impl.preloaded->corpus();
    } else {
      corpus = Corpus::open(config.data.path);
    }
    recipe = make_recipe(config, *corpus, *tokenizer);
    if (config.data.preload) recipe.read_latency_ms = 0;  // it was paid while loading
  }

  const int64_t tokens = impl.rows * impl.columns;
  impl.shape = {config.data.num_workers, config.data.prefetch_factor, tokens, config.data.shared_memory};
  if (config.data.num_workers == 0 || !impl.shape.slots) impl.own_tokens.resize(static_cast<size_t>(tokens));
  if (config.data.num_workers == 0) {
    const auto wait = [](double milliseconds) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
    };
    impl.maker.emplace(recipe, MakerIdentity{place.dp_rank, place.rank, -1}, std::move(corpus), std::move(tokenizer),
                       wait);
    return;
  }

  Job job{recipe,
          config.data.tokenizer,
          {},
          corpus && corpus->memory(),
          impl.shape,
          place.dp_rank,
          place.rank,
          impl.first_batch,
          impl.end_batch,
          getpid()};
  if (corpus) job.documents = corpus->documents();
  const std::vector<uint8_t> encoded = encode_job(job);
  impl.job = std::make_unique<SharedMemory>(encoded.size(), "the loader's job");
  std::copy(encoded.begin(), encoded.end(), impl.job->data());
  impl.ring = std::make_unique<Ring>(impl.shape);
  if (program.empty()) program = loader_program();
  for (int64_t number = 0; number < impl.shape.workers; ++number) {
    impl.workers.push_back(start_worker(program, number, *impl.job, *impl.ring, impl.shape,
                                        job.corpus_memory ? corpus->memory()->fd() : -1));
  }
}

Loader::~Loader() = default;

Batch Loader::next() {
  static const annotate::Name kWait("batch_wait"), kResult("batch_result");
  Impl& impl = *impl_;
  const int64_t batch_number = impl.next_batch, step = batch_number / impl.microbatches;
  if (batch_number >= impl.end_batch) {
    throw Error("the loader has no batch for step " + std::to_string(step),
                "train_steps says how many steps there are");
  }
  const auto microbatch = static_cast<int32_t>(batch_number % impl.microbatches);
  const auto rank = static_cast<int32_t>(impl.place.rank);
  const auto workers = static_cast<int32_t>(impl.workers.size());
  const annotate::BatchWait waits{step, rank, microbatch, workers, static_cast<int32_t>(impl.queue_depth())};
  const annotate::Range range(kWait, waits);

  Batch batch;
  if (impl.maker) {
    batch.sample_hash = impl.maker->make(batch_number, impl.own_tokens.data());
    batch.tokens = impl.own_tokens.data();
  } else {
    const int64_t number = batch_number % workers;
    batch = impl.receive(number);
    batch.worker = static_cast<int32_t>(number);
  }
  batch.step = step;
  batch.microbatch = microbatch;
  batch.rows = impl.rows;
  batch.columns = impl.columns;
  ++impl.next_batch;
  annotate::mark(kResult, annotate::BatchResult{batch.sample_hash, batch.bytes(), batch.worker, 0});
  return batch;
}

int64_t Loader::queue_depth() const {
  return impl_->queue_depth();
}

}  // namespace taut::data
