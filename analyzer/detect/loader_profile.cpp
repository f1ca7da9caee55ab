#include "analyzer/detect/loader_profile.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "analyzer/metrics/series.h"

namespace taut::detect {
namespace {

using metrics::Category;
using metrics::Segment;
using metrics::StepPartition;
using timeline::LoaderPhase;
using timeline::Rank;

double ms(int64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

// Stalls, and waits for peers, which stall in turn or end their step later. A pipeline's own bubble stays: more loaders
// do not shrink it.
bool is_waiting(const Segment& s) {
  if (s.category == Category::loader_stall) return true;
  return s.waits_for >= 0 && s.category != Category::pipeline_bubble;
}

// What the rank did itself within [start, end) of a step.
double own_ms_between(const StepPartition& p, int64_t start, int64_t end) {
  int64_t ns = 0;
  auto segment =
      std::partition_point(p.segments.begin(), p.segments.end(), [&](const Segment& s) { return s.end <= start; });
  for (; segment != p.segments.end() && segment->start < end; ++segment) {
    if (!is_waiting(*segment)) ns += std::min(segment->end, end) - std::max(segment->start, start);
  }
  return ms(ns);
}

// One value per request of the step and one for what follows the last.
std::vector<double> think_times(const Rank& rank, const StepPartition& p) {
  std::vector<double> think;
  int64_t since = p.start;
  for (const timeline::Batch& batch : rank.batches) {
    if (batch.step != p.step || batch.wait_start < p.start || batch.wait_end > p.end) continue;
    think.push_back(own_ms_between(p, since, batch.wait_start));
    since = batch.wait_end;
  }
  think.push_back(own_ms_between(p, since, p.end));
  return think;
}

// How long the workers were busy with each batch, from LOADER_WORK: from the first phase to the end of the last,
// without waiting for a free slot.
struct Work {
  int64_t start = std::numeric_limits<int64_t>::max(), end = std::numeric_limits<int64_t>::min();
  ServicePhases phases;
};
std::map<int64_t, Work> work_by_batch(const Rank& rank) {
  std::map<int64_t, Work> batches;
  for (const timeline::LoaderWork& work : rank.loader_work) {
    double ServicePhases::*phase = nullptr;
    switch (work.phase) {
      case LoaderPhase::read:
        phase = &ServicePhases::read;
        break;
      case LoaderPhase::tokenize:
        phase = &ServicePhases::tokenize;
        break;
      case LoaderPhase::pack:
        phase = &ServicePhases::pack;
        break;
      case LoaderPhase::hand_over:
        phase = &ServicePhases::hand_over;
        break;
      case LoaderPhase::blocked:
      case LoaderPhase::unknown:
        continue;
    }
    Work& batch = batches[work.batch];
    batch.start = std::min(batch.start, work.start);
    batch.end = std::max(batch.end, work.end);
    batch.phases.*phase += ms(work.end - work.start);
  }
  return batches;
}

struct Service {
  std::vector<double> ms;
  ServicePhases phases;  // means
  bool known = false;
};

Service measured_service(const Rank& rank, int64_t from) {
  Service service;
  const auto batches = work_by_batch(rank);
  // Batches prepared before the analysed steps tell about start-up; they count only where there are no others.
  for (const bool late_only : {true, false}) {
    for (const auto& [number, work] : batches) {
      if (late_only && work.start < from) continue;
      service.ms.push_back(ms(work.end - work.start));
      service.phases.read += work.phases.read;
      service.phases.tokenize += work.phases.tokenize;
      service.phases.pack += work.phases.pack;
      service.phases.hand_over += work.phases.hand_over;
    }
    if (!service.ms.empty()) break;
  }
  if (service.ms.empty()) return service;
  const double count = static_cast<double>(service.ms.size());
  service.phases.read /= count;
  service.phases.tokenize /= count;
  service.phases.pack /= count;
  service.phases.hand_over /= count;
  service.known = true;
  return service;
}

// Without LOADER_WORK: inline, a wait is the service; else a worker that never gets ahead delivers every w-th batch.
Service inferred_service(const std::vector<const timeline::Batch*>& batches) {
  Service service;
  for (size_t i = 0; i < batches.size(); ++i) {
    const timeline::Batch& batch = *batches[i];
    if (batch.workers == 0) {
      service.ms.push_back(ms(batch.wait_end - batch.wait_start));
    } else if (i > 0) {
      service.ms.push_back(ms(batch.wait_end - batches[i - 1]->wait_end) * batch.workers);
    }
  }
  if (service.ms.empty()) service.ms.push_back(0);
  return service;
}

int64_t stall_ns(const StepPartition& p) {
  return p.ns[Category::loader_stall];
}

// Step numbers to average over: all analysed ones but the one that stalls longest.
std::set<int64_t> typical_steps(const metrics::Metrics& metrics) {
  std::map<int64_t, int64_t> stalls;
  for (const metrics::RankMetrics& rank : metrics.ranks) {
    for (const StepPartition& p : rank.partitions) stalls[p.step] += stall_ns(p);
  }
  std::set<int64_t> steps;
  for (const auto& [step, ns] : stalls) steps.insert(step);
  if (steps.size() < 3) return steps;
  steps.erase(std::max_element(stalls.begin(), stalls.end(), [](const auto& a, const auto& b) {
                return a.second < b.second;
              })->first);
  return steps;
}

}  // namespace

std::optional<LoaderProfile> profile_loader(const Facts& facts) {
  if (facts.metrics.steps.empty()) return std::nullopt;
  const std::set<int64_t> steps = typical_steps(facts.metrics);
  LoaderProfile profile;
  std::map<int64_t, int64_t> longest;  // step -> slowest rank's duration
  std::vector<double> depths, takes;
  ServicePhases phases;
  double loading_ranks = 0, requests = 0;
  bool is_inline = false;

  for (const metrics::RankMetrics& measured : facts.metrics.ranks) {
    const Rank* rank = facts.timeline.find_rank(measured.rank);
    if (!rank || measured.steps == 0) continue;
    simulate::LoaderTrainer trainer;
    int64_t stalled = 0;
    for (const StepPartition& p : measured.partitions) {
      if (!steps.contains(p.step)) continue;
      trainer.think_ms.push_back(think_times(*rank, p));
      stalled += stall_ns(p);
      longest[p.step] = std::max(longest[p.step], p.duration_ns());
      for (double own : trainer.think_ms.back()) profile.trainers_cpu_ms_per_step += own;
    }
    // A rank that died early has fewer steps than the others; the replay needs them all.
    if (trainer.think_ms.size() != steps.size()) continue;
    profile.stall_ms = std::max(profile.stall_ms, ms(stalled) / static_cast<double>(steps.size()));

    std::vector<const timeline::Batch*> batches;
    for (const timeline::Batch& batch : rank->batches) {
      if (steps.contains(batch.step)) batches.push_back(&batch);
    }
    if (batches.empty()) {
      trainer.service_ms = {0};
      profile.trainers.push_back(std::move(trainer));
      continue;
    }
    const auto first_step = std::find_if(measured.partitions.begin(), measured.partitions.end(),
                                         [&](const StepPartition& p) { return steps.contains(p.step); });
    Service service = measured_service(*rank, first_step->start);
    if (!service.known) service = inferred_service(batches);
    for (const timeline::Batch* batch : batches) {
      profile.workers = std::max<int64_t>(profile.workers, batch->workers);
      is_inline |= batch->workers == 0;
      depths.push_back(batch->queue_depth);
      if (batch->queue_depth > batch->workers) takes.push_back(ms(batch->wait_end - batch->wait_start));
    }
    phases.read += service.phases.read;
    phases.tokenize += service.phases.tokenize;
    phases.pack += service.phases.pack;
    phases.hand_over += service.phases.hand_over;
    profile.phases_known |= service.known;
    trainer.service_ms = std::move(service.ms);
    profile.trainers.push_back(std::move(trainer));
    profile.ranks.push_back(measured.rank);
    requests += static_cast<double>(batches.size()) / static_cast<double>(steps.size());
    loading_ranks += 1;
  }
  if (loading_ranks == 0) return std::nullopt;

  if (is_inline) profile.workers = 0;
  profile.phases = {phases.read / loading_ranks, phases.tokenize / loading_ranks, phases.pack / loading_ranks,
                    phases.hand_over / loading_ranks};
  profile.requests_per_step = requests / loading_ranks;
  profile.queue_depth = metrics::mean(depths);
  // More batches ready than workers: the next one surely was, so the wait is what taking costs.
  const double take_ms = metrics::median(takes);
  for (simulate::LoaderTrainer& trainer : profile.trainers) trainer.take_ms = take_ms;
  for (const auto& [step, ns] : longest) profile.step_ms += ms(ns) / static_cast<double>(longest.size());
  profile.trainers_cpu_ms_per_step /= static_cast<double>(steps.size());

  profile.cpu_ms_per_batch = profile.phases.total();
  if (facts.config && facts.config->data.read_latency_ms > 0) {
    const double waiting =
        facts.config->data.read_latency_ms * static_cast<double>(facts.config->train_micro_batch_size_per_gpu);
    profile.cpu_ms_per_batch -= std::min(profile.phases.read, waiting);
  } else {
    profile.cpu_ms_per_batch -= profile.phases.read;  // storage, until shown otherwise
  }
  return profile;
}

}  // namespace taut::detect
