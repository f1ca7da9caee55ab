#include "runtime/data/worker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/handover.h"
#include "runtime/data/job.h"
#include "runtime/data/phases.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::data {
namespace {

/// The trainer is gone, or wants this worker to be.
struct TrainerGone {};

pollfd trainer() {
  return {kLifeFd, POLLIN | POLLRDHUP, 0};
}

/// Waits without using the processor, and no longer than the trainer lives.
void wait_milliseconds(double milliseconds) {
  const auto seconds = static_cast<time_t>(milliseconds / 1e3);
  const timespec time{seconds, std::lround((milliseconds - static_cast<double>(seconds) * 1e3) * 1e6)};
  pollfd life = trainer();
  if (ppoll(&life, 1, &time, nullptr) > 0) throw TrainerGone{};
}

void write_to_pipe(const PipeHeader& header, const std::vector<int64_t>& tokens, const PhaseMarks& marks) {
  iovec parts[] = {{const_cast<PipeHeader*>(&header), sizeof header},
                   {const_cast<int64_t*>(tokens.data()), tokens.size() * sizeof(int64_t)}};
  size_t part = 0;
  // As much as the pipe takes; false when it is full.
  const auto hand_over = [&] {
    const auto range = marks.hand_over();
    while (part < 2) {
      const ssize_t put = writev(kOutputFd, parts + part, static_cast<int>(2 - part));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) return false;
      if (put < 0) throw TrainerGone{};
      for (auto left = static_cast<size_t>(put); part < 2;) {
        const size_t step = std::min(left, parts[part].iov_len);
        parts[part].iov_base = static_cast<char*>(parts[part].iov_base) + step;
        parts[part].iov_len -= step;
        left -= step;
        if (parts[part].iov_len > 0) break;
        ++part;
      }
    }
    return true;
  };
  while (!hand_over()) {
    const auto range = marks.blocked();
    pollfd room[] = {{kOutputFd, POLLOUT, 0}, trainer()};
    while (poll(room, 2, -1) < 0) {
    }
    if (room[1].revents != 0) throw TrainerGone{};
  }
}

/// What the worker is busy with before its first batch and after its last one, which no phase describes.
constexpr const char *kStarting = "loader_start", *kDone = "loader_done";

BatchMaker make_batch_maker(const Job& job, int64_t number) {
  const MakerIdentity identity{job.dp_rank, job.rank, static_cast<int32_t>(number)};
  return BatchMaker(job.recipe, identity, source_of(job, kSourceFd), wait_milliseconds);
}

/// `own_tokens` takes batches that go through a pipe.
void make_batches(const Job& job, int64_t number, Ring& ring, BatchMaker& maker, std::vector<int64_t>& own_tokens) {
  const auto prefetch = static_cast<uint64_t>(job.ring.prefetch_factor);

  // Batches of this worker so far: a predecessor that died may have made some.
  uint64_t n = ring.produced(number).value.load();
  int64_t batch =
      first_batch_of(number, job.ring.workers, job.first_batch) + static_cast<int64_t>(n) * job.ring.workers;
  for (; batch < job.end_batch; batch += job.ring.workers, ++n) {
    const PhaseMarks marks{batch, job.rank, static_cast<int32_t>(number), job.recipe.shape.micro_batch};
    if (n >= prefetch && ring.taken(number).value.load() <= n - prefetch) {
      const auto range = marks.blocked();
      pollfd life = trainer();
      if (!wait_above(ring.taken(number), n - prefetch, kTakenFd, {&life, 1})) return;
    }
    int64_t* tokens = job.ring.slots > 0 ? ring.tokens(number, n) : own_tokens.data();
    const uint64_t hash = maker.make(batch, tokens);
    if (job.ring.slots > 0) {
      const auto range = marks.hand_over();
      ring.hash(number, n) = hash;
      raise(ring.produced(number), n + 1, kOutputFd);
    } else {
      write_to_pipe({batch, hash}, own_tokens, marks);
      ring.produced(number).value.store(n + 1);
    }
  }
}

/// From the first moment to the last, so that a trace shows where all of the worker's time went.
void work(int64_t number) {
  std::optional<annotate::Range> starting(std::in_place, annotate::Name(kStarting));
  const SharedMemory memory(kJobFd, SharedMemory::Access::read_only);
  const Job job = decode_job(memory.data(), memory.bytes());
  if (number < 0 || number >= job.ring.workers) throw Error("this loader has no worker " + std::to_string(number));
  if (getppid() != job.trainer_pid) return;  // it died before prctl took effect
  Ring ring(job.ring, kRingFd);
  BatchMaker maker = make_batch_maker(job, number);
  std::vector<int64_t> own_tokens(job.ring.slots > 0 ? 0 : static_cast<size_t>(job.ring.tokens_per_batch));
  starting.reset();

  make_batches(job, number, ring, maker, own_tokens);
  const annotate::Range done{annotate::Name(kDone)};
  pollfd life = trainer();
  while (poll(&life, 1, -1) < 0) {
  }
}

void say_last_words(const LastWords& words) {
  const std::vector<uint8_t> message = encode_last_words(words);
  // Shorter than a socket's buffer, so one call takes it all; if the trainer is gone, nobody misses it.
  static_cast<void>(send(kLifeFd, message.data(), message.size(), MSG_NOSIGNAL));
}

}  // namespace

int run_worker(int64_t number) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, ("loader " + std::to_string(number)).c_str());
  signal(SIGINT, SIG_IGN);  // Ctrl-C is the trainer's to handle
  signal(SIGPIPE, SIG_IGN);
  struct stat status {};
  if (fstat(kLifeFd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    throw Error("taut-loader was not started by a training rank", "`taut train` starts it; it is of no use alone", 2);
  }
  for (int fd = kJobFd; fd <= kSourceFd; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  try {
    work(number);
    return 0;
  } catch (const TrainerGone&) {
    return 0;
  } catch (const Error& error) {
    say_last_words({error.what(), error.hint()});
  } catch (const std::exception& error) {
    say_last_words({error.what(), ""});
  }
  return 1;
}

}  // namespace taut::data
