#include "tests/cli/synthetic_run.h"

#include <unistd.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tracer/store/ids.h"
#include "tracer/store/writer.h"

namespace taut::tests {
namespace {

using store::TableId;

constexpr int64_t kDomain = 1;

int64_t to_ns(double ms) {
  return std::llround(ms * 1e6);
}

class RankWriter {
 public:
  RankWriter(store::Writer& writer, const SyntheticRun& run, int rank)
      : writer_(writer), run_(run), rank_(rank), tid_(store::global_tid(0, 1000 + rank, 1000 + rank)) {}

  void describe() {
    writer_.insert(TableId::TAUT_RANK, {rank_, store::global_pid_of(tid_), 0, rank_, 0, 0, 0, 0, -1});
    store::NvtxEvent domain;
    domain.event_type = store::kNvtxDomain;
    domain.global_tid = tid_;
    domain.domain_id = kDomain;
    domain.text = "taut";
    writer_.insert_nvtx(domain);
  }

  /// Writes one step that begins at `start`; returns its end.
  int64_t step(int64_t step, int64_t start) {
    const int64_t wait = to_ns(run_.wait_ms(step, rank_)), compute = to_ns(run_.compute_ms(step, rank_));
    const int64_t computing = start + wait, backward = computing + compute / 3,
                  optimizer = computing + compute * 9 / 10;
    const int64_t end = computing + compute;
    range("step", start, end);
    const int64_t batch = range("batch_wait", start, computing);
    writer_.insert(TableId::TAUT_BATCH, {batch, rank_, step, start, computing, run_.workers, 0, step * 100 + rank_});
    if (run_.workers == 0 && wait > 0) {
      const int64_t read_end = start + std::llround(double(wait) * run_.read_share);
      const int64_t read = range("read", start, read_end);
      writer_.insert(TableId::TAUT_LOADER_WORK, {read, rank_, 0, step, 4, "read"});
    }
    const int64_t f = range("microbatch F", computing, backward);
    writer_.insert(TableId::TAUT_MICROBATCH, {f, rank_, step, 0, 0, 0, "F"});
    const int64_t b = range("microbatch B", backward, optimizer);
    writer_.insert(TableId::TAUT_MICROBATCH, {b, rank_, step, 0, 0, 0, "B"});
    range("optimizer", optimizer, end);
    writer_.insert(TableId::TAUT_STEP, {rank_, step, start, end, run_.tokens, run_.loss(step)});
    return end;
  }

 private:
  int64_t range(const char* name, int64_t start, int64_t end) {
    store::NvtxEvent event;
    event.start = start;
    event.end = end;
    event.event_type = store::kNvtxPushPop;
    event.global_tid = tid_;
    event.text_id = writer_.string_id(name);
    event.domain_id = kDomain;
    return writer_.insert_nvtx(event);
  }

  store::Writer& writer_;
  const SyntheticRun& run_;
  int rank_;
  int64_t tid_;
};

}  // namespace

void write_trace(const SyntheticRun& run, const std::filesystem::path& path) {
  store::Writer writer(path.string());
  writer.begin();
  if (!run.config.empty()) writer.set_meta("config", run.config);
  writer.insert(TableId::TAUT_GROUP, {1, run.group_name, run.ranks});
  if (run.dropped > 0) writer.insert(TableId::TAUT_LOSS, {store::global_pid(0, 1000), "trainer", run.dropped});
  for (int rank = 0; rank < run.ranks; ++rank) {
    RankWriter rank_writer(writer, run, rank);
    rank_writer.describe();
    int64_t now = to_ns(1);
    for (int64_t i = 0; i < run.steps; ++i) now = rank_writer.step(run.first_step + i, now);
  }
  writer.commit();
  writer.finish();
}

TemporaryFolder::TemporaryFolder(const std::string& name)
    : path_(std::filesystem::temp_directory_path() / ("taut-" + name + "-" + std::to_string(::getpid()))) {
  std::filesystem::remove_all(path_);
  std::filesystem::create_directories(path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace taut::tests
