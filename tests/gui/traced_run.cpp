#include "tests/gui/traced_run.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tests/analyzer/trace_builder.h"

namespace taut::test {
namespace {

constexpr double kUs = 1000;  // microseconds in a millisecond: TraceBuilder counts microseconds
constexpr int kPrefetch = 2;

// A number in [0, 1) that depends on its arguments only: runs must not be equal from step to step, nor change.
double jitter(int64_t a, int64_t b) {
  uint64_t x = static_cast<uint64_t>(a) * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(b) * 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBULL;
  return static_cast<double>((x ^ (x >> 29)) % 1000) / 1000;
}

// What one rank does, in microseconds of the run.
class RankTracer {
 public:
  RankTracer(TraceBuilder& trace, const TracedRun& run, int rank) : trace_(trace), run_(run), rank_(rank) {
    worker_free_.assign(static_cast<size_t>(std::max(run.workers, 1)), 0);
  }

  /// When the batch of `step` is ready: made by the worker whose turn it is, at most kPrefetch batches ahead.
  double prepare_batch(int64_t step) {
    const size_t worker = static_cast<size_t>(step) % worker_free_.size();
    double at = worker_free_[worker];
    const int64_t ahead = step - kPrefetch * static_cast<int64_t>(worker_free_.size());
    if (ahead >= 0 && taken_.size() > static_cast<size_t>(ahead)) at = std::max(at, taken_[static_cast<size_t>(ahead)]);
    const auto phase = [&](const char* name, double length) {
      trace_.work(rank_, static_cast<int>(worker), step, name, at, at + length);
      at += length;
    };
    for (int sample = 0; sample < run_.samples; ++sample) {
      phase("read", run_.read_ms * kUs * (0.96 + 0.08 * jitter(step * 8 + sample, rank_)));
    }
    phase("tokenize", 1.6 * kUs);
    phase("pack", 0.5 * kUs);
    phase("hand_over", 0.1 * kUs);
    worker_free_[worker] = at;
    return at;
  }

  void take_batch(int64_t step, double start, double ready) {
    taken_.push_back(ready);
    trace_.batch(rank_, step, start, ready, run_.workers, 0);
  }

  double pass(int64_t step, char which, double start) {
    const double layer_ms = which == 'F' ? 3.2 : 6.1;
    double at = start + 0.05 * kUs;
    for (int layer = 0; layer < run_.layers; ++layer) {
      const double length = layer_ms * kUs * (0.95 + 0.1 * jitter(step * 100 + layer, which + rank_));
      if (run_.with_ops) layer_ops(which, at, at + length);
      at += length;
    }
    trace_.microbatch(rank_, step, 0, 0, which, start, at + 0.05 * kUs);
    return at + 0.05 * kUs;
  }

 private:
  void layer_ops(char which, double start, double end) {
    static constexpr std::array<const char*, 4> forward{"aten::rms_norm", "aten::linear",
                                                        "aten::scaled_dot_product_attention", "aten::linear"};
    static constexpr std::array<const char*, 4> backward{"LinearBackward0", "ScaledDotProductAttentionBackward0",
                                                         "LinearBackward0", "RmsNormBackward0"};
    static constexpr std::array<double, 5> borders{0, 0.08, 0.4, 0.62, 0.98};
    const auto& names = which == 'F' ? forward : backward;
    for (size_t i = 0; i < names.size(); ++i) {
      const double a = start + (end - start) * borders[i], b = start + (end - start) * borders[i + 1] - 20;
      trace_.op(rank_, names[i], a, b);
      trace_.op(rank_, i == 0 ? "aten::mul" : "aten::mm", a + (b - a) * 0.1, a + (b - a) * 0.85);
    }
  }

  TraceBuilder& trace_;
  const TracedRun& run_;
  int rank_;
  std::vector<double> worker_free_, taken_;
};

}  // namespace

nlohmann::json traced_config(const TracedRun& run, const std::string& data_path) {
  return {{"model",
           {{"hidden_size", 128},
            {"num_layers", run.layers},
            {"num_attention_heads", 4},
            {"seq_length", 128},
            {"vocab_size", 512}}},
          {"data",
           {{"path", data_path},
            {"tokenizer", "byte"},
            {"num_workers", run.workers},
            {"prefetch_factor", kPrefetch},
            {"read_latency_ms", run.read_ms}}},
          {"world_size", run.ranks},
          {"train_micro_batch_size_per_gpu", run.samples},
          {"gradient_accumulation_steps", 1},
          {"train_steps", run.steps}};
}

double write_traced_run(const TracedRun& run, const nlohmann::json& config, const std::filesystem::path& path) {
  TraceBuilder trace;
  trace.config(config);
  trace.cores(8);
  std::vector<RankTracer> ranks;
  for (int rank = 0; rank < run.ranks; ++rank) {
    trace.rank(rank, rank);
    ranks.emplace_back(trace, run, rank);
  }
  std::vector<double> step_ms;
  double start = 2 * kUs;
  for (int64_t step = 0; step < run.steps; ++step) {
    std::vector<double> issued, done;
    for (int rank = 0; rank < run.ranks; ++rank) {
      RankTracer& tracer = ranks[static_cast<size_t>(rank)];
      const double ready = std::max(start + 0.1 * kUs, tracer.prepare_batch(step));
      tracer.take_batch(step, start, ready);
      const double forward = tracer.pass(step, 'F', ready + 0.1 * kUs);
      issued.push_back(forward);
      done.push_back(tracer.pass(step, 'B', forward));
    }
    // Two buckets: one under the backward pass, one that everybody waits for at its end.
    const double last_issue = *std::max_element(issued.begin(), issued.end()),
                 last_done = *std::max_element(done.begin(), done.end());
    const double reduced = last_done + 2.2 * kUs, end = reduced + 1.8 * kUs;
    for (int rank = 0; rank < run.ranks; ++rank) {
      const double own_issue = issued[static_cast<size_t>(rank)], own_done = done[static_cast<size_t>(rank)];
      trace.collective(rank, {.group_size = run.ranks,
                              .seq = 2 * step,
                              .issue = own_issue + 8 * kUs,
                              .end = last_issue + 13 * kUs,
                              .wait_start = own_done,
                              .wait_end = own_done + 0.01 * kUs,
                              .bytes = 2 << 20});
      trace.collective(rank, {.group_size = run.ranks,
                              .seq = 2 * step + 1,
                              .issue = own_done - 1 * kUs,
                              .end = reduced,
                              .wait_start = own_done + 0.02 * kUs,
                              .wait_end = reduced,
                              .bytes = 1 << 20});
      trace.range(rank, "clip_grad", reduced, reduced + 0.3 * kUs);
      trace.range(rank, "optimizer", reduced + 0.3 * kUs, end);
      trace.step(rank, step, start, end, run.samples * 128);
    }
    step_ms.push_back((end - start) / kUs);
    start = end + 0.05 * kUs;
  }
  trace.finish();
  std::filesystem::copy_file(trace.path(), path, std::filesystem::copy_options::overwrite_existing);
  std::nth_element(step_ms.begin(), step_ms.begin() + static_cast<std::ptrdiff_t>(step_ms.size() / 2), step_ms.end());
  return step_ms[step_ms.size() / 2];
}

}  // namespace taut::test
