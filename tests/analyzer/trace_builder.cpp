#include "tests/analyzer/trace_builder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "tracer/store/ids.h"
#include "tracer/store/schema.h"

namespace taut::test {
namespace {

using store::TableId;

constexpr int64_t kTautDomain = 1, kPyTorchDomain = 2;

int64_t ns(double microseconds) {
  return std::llround(microseconds * 1000);
}

std::string next_path() {
  static int count = 0;
  return testing::TempDir() + "taut_analyzer_" + std::to_string(getpid()) + "_" + std::to_string(count++) + ".db";
}

int64_t worker_tid(int rank, int worker) {
  return store::global_tid(0, 5000 + 100 * rank + worker, 5000 + 100 * rank + worker);
}

}  // namespace

int64_t trainer_tid(int rank) {
  return store::global_tid(0, 1000 + rank, 1000 + rank);
}

TraceBuilder::TraceBuilder() : path_(next_path()), writer_(std::make_unique<store::Writer>(path_)) {
  writer_->begin();
}

TraceBuilder::~TraceBuilder() {
  if (!finished_) writer_->discard();
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

int64_t TraceBuilder::event(int type, int64_t domain, int64_t global_tid, const char* name, double start, double end) {
  store::NvtxEvent event;
  event.start = ns(start);
  if (type != store::kNvtxMark) event.end = ns(end);
  event.event_type = type;
  event.global_tid = global_tid;
  event.text_id = writer_->string_id(name);
  event.domain_id = domain;
  return writer_->insert_nvtx(event);
}

void TraceBuilder::rank(int rank, int dp, int tp, int pp, int device, int ep) {
  const int64_t tid = trainer_tid(rank);
  writer_->insert(TableId::TAUT_RANK, {rank, store::global_pid_of(tid), 0, dp, tp, pp, 0, ep, device});
  for (const auto& [id, name] : {std::pair(kTautDomain, "taut"), std::pair(kPyTorchDomain, "PyTorch")}) {
    store::NvtxEvent domain;
    domain.event_type = store::kNvtxDomain;
    domain.global_tid = tid;
    domain.domain_id = id;
    domain.text = name;
    writer_->insert_nvtx(domain);
  }
}

void TraceBuilder::config(const nlohmann::json& config) {
  writer_->set_meta("config", config.dump());
}

void TraceBuilder::cores(int count) {
  writer_->insert(TableId::TARGET_INFO_SYSTEM_ENV, {0, "Local", "CpuCores", 1, std::to_string(count)});
}

void TraceBuilder::step(int rank, int64_t step, double start, double end, int64_t tokens) {
  writer_->insert(TableId::TAUT_STEP, {rank, step, ns(start), ns(end), tokens, 1.0});
  range(rank, "step", start, end);
}

int64_t TraceBuilder::range(int rank, const char* name, double start, double end) {
  return event(store::kNvtxPushPop, kTautDomain, trainer_tid(rank), name, start, end);
}

int64_t TraceBuilder::op(int rank, const char* name, double start, double end) {
  return event(store::kNvtxPushPop, kPyTorchDomain, trainer_tid(rank), name, start, end);
}

int64_t TraceBuilder::microbatch(int rank, int64_t step, int microbatch, int stage, char pass, double start, double end,
                                 int chunk) {
  const std::string text(1, pass);
  const int64_t id = range(rank, ("microbatch " + text).c_str(), start, end);
  return writer_->insert(TableId::TAUT_MICROBATCH, {id, rank, step, microbatch, stage, chunk, text});
}

int64_t TraceBuilder::collective(int rank, const CollectiveSpec& spec) {
  const int64_t id = event(store::kNvtxStartEnd, kTautDomain, trainer_tid(rank), spec.op, spec.issue, spec.end);
  std::optional<int64_t> wait_start, wait_end;
  if (spec.wait_start >= 0) {
    wait_start = ns(spec.wait_start);
    wait_end = ns(spec.wait_end);
    range(rank, "wait", spec.wait_start, spec.wait_end);
  }
  return writer_->insert(TableId::TAUT_COLLECTIVE,
                         {id, rank, spec.op, spec.group, spec.group_size, spec.seq, spec.bytes, "float32",
                          spec.tensor_id, spec.tensor_version, spec.peer, spec.is_async ? 1 : 0, wait_start, wait_end});
}

int64_t TraceBuilder::batch(int rank, int64_t step, double start, double end, int workers, int queue_depth,
                            std::optional<uint64_t> hash) {
  const int64_t id = range(rank, "batch_wait", start, end);
  return writer_->insert(TableId::TAUT_BATCH, {id, rank, step, ns(start), ns(end), workers, queue_depth,
                                               hash ? static_cast<int64_t>(*hash) : id});
}

int64_t TraceBuilder::work(int rank, int worker, int64_t batch, const char* phase, double start, double end) {
  const int64_t tid = worker < 0 ? trainer_tid(rank) : worker_tid(rank, worker);
  const int64_t id = event(store::kNvtxPushPop, kTautDomain, tid, phase, start, end);
  return writer_->insert(TableId::TAUT_LOADER_WORK, {id, rank, worker, batch, 8, phase});
}

void TraceBuilder::tensor_use(int rank, int64_t id, int64_t version, int64_t used, int64_t total, double time) {
  const int64_t event_id = event(store::kNvtxMark, kTautDomain, trainer_tid(rank), "tensor_use", time, time);
  writer_->insert(TableId::TAUT_TENSOR_USE, {event_id, rank, id, version, used, total});
}

int64_t TraceBuilder::expert(int rank, int64_t step, int layer, int expert, int64_t tokens, int64_t dropped,
                             double time) {
  const int64_t id = event(store::kNvtxMark, kTautDomain, trainer_tid(rank), "expert_load", time, time);
  return writer_->insert(TableId::TAUT_EXPERT, {id, rank, step, layer, expert, tokens, dropped});
}

int64_t TraceBuilder::kernel(int rank, int device, int stream, const char* name, double start, double end) {
  const int64_t name_id = writer_->string_id(name), pid = store::global_pid_of(trainer_tid(rank));
  return writer_->insert(TableId::CUPTI_ACTIVITY_KIND_KERNEL,
                         {ns(start), ns(end), device,  0,       nullptr, stream,  nullptr, pid,     name_id, name_id,
                          nullptr,   nullptr, nullptr, 32,      1,       1,       1,       128,     1,       1,
                          0,         0,       0,       0,       1,       nullptr, nullptr, nullptr, nullptr, nullptr,
                          nullptr,   nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, ""});
}

int64_t TraceBuilder::memcpy(int rank, int device, int stream, double start, double end) {
  return writer_->insert(TableId::CUPTI_ACTIVITY_KIND_MEMCPY, {ns(start), ns(end), device, 0, nullptr, stream, nullptr,
                                                               store::global_pid_of(trainer_tid(rank)), 4096, 1});
}

void TraceBuilder::finish() {
  if (finished_) return;
  writer_->commit();
  writer_->finish();
  finished_ = true;
}

timeline::Timeline TraceBuilder::load() {
  finish();
  return timeline::load(path_);
}

}  // namespace taut::test
