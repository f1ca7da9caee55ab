#include "analyzer/simulate/loader_queue.h"

#include <algorithm>
#include <numeric>

#include "taut.h"

namespace taut::simulate {
namespace {

// One rank in the replay: its clock, and when each of its batches was finished and taken.
class Trainer {
 public:
  Trainer(const LoaderTrainer& trace, const LoaderSettings& settings) : trace_(trace), settings_(settings) {}

  // Runs one step from `start`; returns its end and adds what the trainer stalled to `stall`.
  double step(double start, const std::vector<double>& think, double& stall) {
    double now = start;
    for (size_t request = 0; request + 1 < think.size(); ++request) {
      now += think[request];
      const double taken = take(now);
      stall += taken - now;
      now = taken;
    }
    return think.empty() ? now : now + think.back();
  }

 private:
  double take(double now) {
    const size_t batch = taken_.size();
    const double service = trace_.service_ms[batch % trace_.service_ms.size()];
    double ready = now + service;  // inline
    if (settings_.workers > 0) {
      const size_t workers = static_cast<size_t>(settings_.workers);
      const size_t slots = workers * static_cast<size_t>(std::max<int64_t>(1, settings_.prefetch));
      double begin = batch >= workers ? finished_[batch - workers] : 0;
      if (batch >= slots) begin = std::max(begin, taken_[batch - slots]);  // a slot has to be free first
      finished_.push_back(begin + service);
      ready = std::max(now, finished_.back()) + trace_.take_ms;
    }
    taken_.push_back(ready);
    return ready;
  }

  const LoaderTrainer& trace_;
  LoaderSettings settings_;
  std::vector<double> finished_, taken_;
};

}  // namespace

LoaderReplay replay_loader(const std::vector<LoaderTrainer>& trainers, const LoaderSettings& settings) {
  if (trainers.empty() || trainers[0].think_ms.empty()) throw Error("a loader replay needs at least one step");
  const size_t steps = trainers[0].think_ms.size();
  std::vector<Trainer> ranks;
  for (const LoaderTrainer& trace : trainers) {
    if (trace.think_ms.size() != steps || trace.service_ms.empty()) {
      throw Error("a loader replay needs equally many steps of every rank, and what its batches cost");
    }
    ranks.emplace_back(trace, settings);
  }

  // The first round fills the queues; what follows is the steady state.
  constexpr size_t kLeastSteps = 40;
  const size_t rounds = 2 + kLeastSteps / steps;
  double now = 0, stall = 0;
  std::vector<double> measured;
  for (size_t round = 0; round < rounds; ++round) {
    if (round == 1) stall = 0;
    for (size_t s = 0; s < steps; ++s) {
      double end = now;
      for (size_t r = 0; r < ranks.size(); ++r) end = std::max(end, ranks[r].step(now, trainers[r].think_ms[s], stall));
      if (round > 0) measured.push_back(end - now);
      now = end;
    }
  }
  const double count = static_cast<double>(measured.size());
  LoaderReplay replay;
  replay.step_ms = std::accumulate(measured.begin(), measured.end(), 0.0) / count;
  replay.stall_ms = stall / count / static_cast<double>(ranks.size());
  const auto middle = measured.begin() + static_cast<std::ptrdiff_t>(measured.size() / 2);
  std::nth_element(measured.begin(), middle, measured.end());
  replay.step_ms_median = *middle;
  return replay;
}

}  // namespace taut::simulate
