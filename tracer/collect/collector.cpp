#include "tracer/collect/collector.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "tracer/collect/assembler.h"
#include "tracer/collect/ring_reader.h"
#include "tracer/collect/sampler.h"
#include "tracer/store/ids.h"
#include "tracer/store/writer.h"

namespace taut::collect {
namespace {

namespace fs = std::filesystem;
using store::TableId;

constexpr const char* kFolderPrefix = "taut-rings-";
constexpr uint64_t kWantedShm = 256ull * 1024 * 1024;  // a ring file has 2 MiB a thread
constexpr std::chrono::milliseconds kLookForDead{1000};

int64_t clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string utc_time(int64_t epoch_ns) {
  const time_t seconds = epoch_ns / 1'000'000'000;
  tm parts{};
  gmtime_r(&seconds, &parts);
  char text[64];
  const size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(text + length, sizeof text - length, ".%06dZ", static_cast<int>(epoch_ns % 1'000'000'000 / 1000));
  return text;
}

/// /dev/shm where it has room (containers often give it 64 MiB), else the disk.
std::string default_ring_folder() {
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) == 0 && access("/dev/shm", W_OK) == 0 &&
      uint64_t{info.f_bavail} * info.f_frsize >= kWantedShm)
    return "/dev/shm";
  const char* temporary = getenv("TMPDIR");
  return temporary && *temporary ? temporary : "/tmp";
}

/// A collector that was killed leaves its rings; nobody holds their folder's lock any more.
void remove_stale(const std::string& parent) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().string().starts_with(kFolderPrefix)) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) continue;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    close(fd);
  }
}

/// The folder for the rings, locked for as long as this object lives and removed with it.
class RingFolder {
 public:
  explicit RingFolder(const std::string& parent) {
    remove_stale(parent);
    std::string pattern = parent + "/." + kFolderPrefix + "XXXXXX";  // hidden until it is locked
    if (!mkdtemp(pattern.data()))
      throw Error("cannot create a folder for the trace's rings in " + parent + ": " + std::strerror(errno),
                  "set TMPDIR to a writable folder");
    path_ = pattern;
    fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd_ >= 0) flock(fd_, LOCK_EX | LOCK_NB);
    const std::string shown = parent + "/" + pattern.substr(parent.size() + 2);
    if (rename(path_.c_str(), shown.c_str()) == 0) path_ = shown;
  }
  ~RingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (fd_ >= 0) close(fd_);
  }
  RingFolder(const RingFolder&) = delete;
  RingFolder& operator=(const RingFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
};

std::string library_beside_program() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "libtaut_inject.so").string();
}

}  // namespace

struct Collector::Impl {
  struct Traced {
    std::unique_ptr<RingReader> ring;
    std::unique_ptr<ProcessTrace> trace;
    std::string path;
    std::chrono::steady_clock::time_point looked;  // when it was last asked whether it lives
  };

  Options options;
  int64_t session_start_ns;
  RingFolder folder;
  store::Writer writer;
  TraceState state;
  Sampler sampler;
  std::vector<Traced> processes;
  std::set<std::string> seen;
  Stats stats;

  std::thread thread;
  std::mutex mutex;
  std::condition_variable wake;
  bool stop = false, finished = false;
  std::optional<Error> error;  // under mutex

  explicit Impl(Options given)
      : options(std::move(given)),
        session_start_ns(clock_ns(CLOCK_MONOTONIC)),
        folder(options.ring_folder.empty() ? default_ring_folder() : options.ring_folder),
        writer(options.path),
        state(writer, options.node, session_start_ns),
        sampler(writer) {}

  void describe() {
    const int64_t utc = clock_ns(CLOCK_REALTIME) - (clock_ns(CLOCK_MONOTONIC) - session_start_ns);
    utsname machine{};
    uname(&machine);
    writer.begin();
    for (const TableId table : {TableId::NVTX_EVENTS, TableId::PROCESSES, TableId::ThreadNames, TableId::TAUT_LOSS})
      writer.create(table);
    writer.set_meta("session_start_utc", utc_time(utc));
    writer.set_meta("host", machine.nodename);
    writer.set_meta("traced.nvtx", "true");
    writer.set_meta("traced.cuda", "false");
    writer.set_meta("traced.memory", options.sample_hz > 0 ? "true" : "false");
    writer.set_meta(
        "traced.steps",
        options.steps ? std::to_string(options.steps->first) + ":" + std::to_string(options.steps->second) : "all");
    for (const auto& [key, value] : options.meta) writer.set_meta(key, value);
    const std::string local = utc_time(utc).substr(0, 19);
    writer.insert(TableId::TARGET_INFO_SESSION_START_TIME, {utc, local, local, session_start_ns});
    const int64_t machine_id = store::global_tid(options.node, 0, 0);
    const auto environment = [&](const char* name, int number, const std::string& value) {
      writer.insert(TableId::TARGET_INFO_SYSTEM_ENV, {machine_id, "Local (CLI)", name, number, value});
    };
    environment("Hostname", 619, machine.nodename);
    environment("SoftwareReleaseVersion", 618, machine.release);
    environment("HasNvtxEvents", 809, "1");
    writer.insert(TableId::META_DATA_CAPTURE, {"CAPTURE_EVENT_TYPE", "NvtxEvents"});
    // One node has one clock: CLOCK_MONOTONIC, read by every process.
    writer.insert(TableId::TAUT_CLOCK, {options.node, 0, 0, "CLOCK_MONOTONIC, one node"});
    writer.commit();
  }

  void look_for_processes() {
    std::unique_ptr<DIR, int (*)(DIR*)> listing(opendir(folder.path().c_str()), closedir);
    if (!listing) return;
    while (const dirent* entry = readdir(listing.get())) {
      const std::string name = entry->d_name;
      if (!name.ends_with(".ring") || seen.contains(name)) continue;
      const std::string path = folder.path() + "/" + name;
      auto ring = RingReader::open(path);
      if (!ring) continue;
      seen.insert(name);
      auto trace = std::make_unique<ProcessTrace>(state, *ring);
      processes.push_back({std::move(ring), std::move(trace), path, {}});
      ++stats.processes;
    }
  }

  size_t drain(Traced& process) {
    size_t count = 0;
    for (size_t lane = 0; lane < process.ring->lane_count(); ++lane)
      count += process.ring->drain(lane, [&](const Record& record, const unsigned char* payload) {
        process.trace->take(lane, record, payload);
      });
    return count;
  }

  void end(Traced& process) {
    stats.dropped += process.trace->finish();
    sampler.forget(process.trace->global_pid());
    unlink(process.path.c_str());
  }

  void drain_all() {
    writer.begin();
    look_for_processes();
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(processes, [&](Traced& process) {
      const size_t count = drain(process);
      stats.events += static_cast<int64_t>(count);
      if (count > 0 || now - process.looked < kLookForDead) return false;
      process.looked = now;
      if (!process.ring->writer_gone()) return false;
      stats.events += static_cast<int64_t>(drain(process));  // what it wrote between the drain and its end
      end(process);
      return true;
    });
    writer.commit();
  }

  void sample_all() {
    const int64_t time = clock_ns(CLOCK_MONOTONIC) - session_start_ns;
    writer.begin();  // the next drain commits
    for (const Traced& process : processes) sampler.sample(process.trace->global_pid(), process.ring->pid(), time);
  }

  void run() {
    using Clock = std::chrono::steady_clock;
    const auto sample_every = options.sample_hz > 0
                                  ? std::chrono::nanoseconds(static_cast<int64_t>(1e9 / options.sample_hz))
                                  : Clock::duration::max();
    auto next_drain = Clock::now() + options.drain_every;
    auto next_sample = options.sample_hz > 0 ? Clock::now() + sample_every : Clock::time_point::max();
    std::unique_lock lock(mutex);
    while (!wake.wait_until(lock, std::min(next_drain, next_sample), [&] { return stop; })) {
      lock.unlock();
      try {
        const auto now = Clock::now();
        if (now >= next_drain) {
          drain_all();
          next_drain = Clock::now() + options.drain_every;
        }
        if (now >= next_sample) {
          sample_all();
          next_sample = now + sample_every;
        }
      } catch (const Error& failure) {
        writer.discard();
        lock.lock();
        error = failure;
        return;
      }
      lock.lock();
    }
  }

  void stop_thread() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    wake.notify_all();
    if (thread.joinable()) thread.join();
  }
};

Collector::Collector(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {
  try {
    impl_->describe();
  } catch (...) {
    impl_->writer.discard();
    throw;
  }
}

Collector::~Collector() {
  impl_->stop_thread();
  if (!impl_->finished) impl_->writer.discard();
}

std::vector<std::string> Collector::environment() const {
  const Options& options = impl_->options;
  std::vector<std::string> variables = {
      "NVTX_INJECTION64_PATH=" + (options.inject_library.empty() ? library_beside_program() : options.inject_library),
      "TAUT_TRACE_DIR=" + impl_->folder.path()};
  if (options.steps)
    variables.push_back("TAUT_TRACE_STEPS=" + std::to_string(options.steps->first) + ":" +
                        std::to_string(options.steps->second));
  return variables;
}

void Collector::start() {
  impl_->thread = std::thread([this] { impl_->run(); });
}

std::optional<Error> Collector::error() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->error;
}

Collector::Stats Collector::finish() {
  impl_->stop_thread();
  if (impl_->error) throw *impl_->error;
  try {
    impl_->drain_all();
    impl_->writer.begin();
    for (Impl::Traced& process : impl_->processes) {
      impl_->stats.events += static_cast<int64_t>(impl_->drain(process));
      impl_->end(process);
    }
    impl_->processes.clear();
    impl_->writer.finish();
  } catch (...) {
    impl_->writer.discard();
    throw;
  }
  impl_->finished = true;
  impl_->stats.rows = impl_->state.nvtx_rows;
  impl_->stats.bytes = impl_->writer.bytes();
  return impl_->stats;
}

}  // namespace taut::collect
