// Writes small traces by hand through tracer/store, as a run of the runtime would have. Times are microseconds.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "analyzer/timeline/timeline.h"
#include "tracer/store/writer.h"

namespace taut::test {

struct CollectiveSpec {
  const char* op = "all_reduce";
  int64_t group = 1, group_size = 2, seq = 0;
  double issue = 0, end = 0;
  double wait_start = -1, wait_end = -1;  // -1 = not marked
  bool is_async = true;
  int peer = -1;
  int64_t bytes = 4096, tensor_id = 0, tensor_version = 0;
};

class TraceBuilder {
 public:
  /// The file lies in the test's temporary folder and is removed again.
  TraceBuilder();
  ~TraceBuilder();

  void rank(int rank, int dp = 0, int tp = 0, int pp = 0, int device = -1, int ep = 0);
  void config(const nlohmann::json& config);
  void cores(int count);
  void step(int rank, int64_t step, double start, double end, int64_t tokens = 1000);
  /// A push/pop range on the trainer's thread in domain "taut"; returns its rowid.
  int64_t range(int rank, const char* name, double start, double end);
  /// A push/pop range in domain "PyTorch".
  int64_t op(int rank, const char* name, double start, double end);
  int64_t microbatch(int rank, int64_t step, int microbatch, int stage, char pass, double start, double end,
                     int chunk = 0);
  int64_t collective(int rank, const CollectiveSpec& spec);
  /// Without `hash`, samples of its own.
  int64_t batch(int rank, int64_t step, double start, double end, int workers, int queue_depth,
                std::optional<uint64_t> hash = {});
  /// A phase of worker `worker` (-1 = the trainer itself).
  int64_t work(int rank, int worker, int64_t batch, const char* phase, double start, double end);
  void tensor_use(int rank, int64_t id, int64_t version, int64_t used, int64_t total, double time);
  /// What rank `rank`'s router sent to an expert in a step.
  int64_t expert(int rank, int64_t step, int layer, int expert, int64_t tokens, int64_t dropped, double time);
  int64_t kernel(int rank, int device, int stream, const char* name, double start, double end);
  int64_t memcpy(int rank, int device, int stream, double start, double end);

  store::Writer& writer() { return *writer_; }
  const std::string& path() const { return path_; }
  /// Closes the file.
  void finish();
  timeline::Timeline load();

 private:
  int64_t event(int type, int64_t domain, int64_t global_tid, const char* name, double start, double end);

  std::string path_;
  std::unique_ptr<store::Writer> writer_;
  bool finished_ = false;
};

/// Process and trainer thread of a rank.
int64_t trainer_tid(int rank);

}  // namespace taut::test
