// expert-imbalance: some expert-parallel ranks get more tokens than others, and the rest wait for them.
//
// Every mixture-of-experts layer ends in an all-to-all, so the busiest rank of an ep group sets the pace layer by
// layer: with rows r_g the group loses Σ over layers of (max r_g − mean r_g) rows of expert work. What a row costs
// comes from the experts' share of the model's floating-point operations; where all-to-alls are traced, no more than
// the measured waiting for their last member is claimed. Another placement of the same experts
// (parallel.expert_placement) evens the ranks out without changing what is learned: experts in order of load to the
// least loaded rank with room (longest processing time first, Graham 1969), the same number on every rank.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "analyzer/detect/rule.h"
#include "analyzer/metrics/peers.h"
#include "analyzer/metrics/series.h"
#include "runtime/config/model_math.h"

namespace taut::detect {
namespace {

using timeline::ExpertLoad;
using timeline::Rank;

constexpr double kLeastCostShare = 0.005;
constexpr double kLeastRecovery = 0.2;  // of the imbalance; less is noise of the routing
constexpr double kNotableExpert = 3;    // an expert with that many times the mean load
constexpr double kNotableDrops = 0.02;  // of all choices
constexpr double kLargestExpertShare = 0.95;
constexpr size_t kEvidenceRows = 6;

using Placement = std::vector<std::vector<int64_t>>;
// Rows of each expert in one layer of one ep group in one step: what its ranks compute between two all-to-alls.
using Loads = std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, std::vector<double>>;  // step, layer, stage, edp

struct Routing {
  Loads loads;
  std::vector<double> per_expert;  // rows over all
  double tokens = 0, dropped = 0;
  int64_t ep = 1;
  Placement placement;
};

// The busiest rank's rows against the mean rank's, both summed over all layers and steps.
struct Balance {
  double busiest = 0, mean = 0;
  double factor() const { return mean > 0 ? busiest / mean : 1; }
};

Placement contiguous(int64_t experts, int64_t ranks) {
  Placement placement(static_cast<size_t>(ranks));
  for (int64_t expert = 0; expert < experts; ++expert) {
    placement[static_cast<size_t>(expert * ranks / experts)].push_back(expert);
  }
  return placement;
}

bool holds_every_expert(const Placement& placement, size_t experts) {
  std::set<int64_t> seen;
  size_t places = 0;
  for (const auto& held : placement) {
    seen.insert(held.begin(), held.end());
    places += held.size();
  }
  return places == experts && seen.size() == experts && *seen.begin() == 0 &&
         *seen.rbegin() + 1 == static_cast<int64_t>(experts);
}

Routing collect(const Facts& facts) {
  Routing routing;
  int64_t experts = 0, cp = 1;
  for (const Rank& rank : facts.timeline.ranks) {
    cp = std::max<int64_t>(cp, rank.cp + 1);
    routing.ep = std::max<int64_t>(routing.ep, rank.ep + 1);
    for (const ExpertLoad& load : rank.expert_loads) experts = std::max<int64_t>(experts, load.expert + 1);
  }
  // Numbers from a file are no reason to allocate without bound.
  constexpr int64_t kMostExperts = 1 << 20;
  if (experts == 0 || experts > kMostExperts || routing.ep > experts) return {};
  routing.per_expert.assign(static_cast<size_t>(experts), 0);
  for (const Rank& rank : facts.timeline.ranks) {
    const int64_t edp = (rank.dp * cp + rank.cp) / routing.ep;
    for (const ExpertLoad& load : rank.expert_loads) {
      if (load.expert < 0 || !facts.steps.contains(load.step)) continue;
      const double rows = static_cast<double>(load.tokens - load.dropped);
      std::vector<double>& of_layer = routing.loads[{load.step, load.layer, rank.pp, edp}];
      of_layer.resize(static_cast<size_t>(experts), 0);
      of_layer[static_cast<size_t>(load.expert)] += rows;
      routing.per_expert[static_cast<size_t>(load.expert)] += rows;
      routing.tokens += static_cast<double>(load.tokens);
      routing.dropped += static_cast<double>(load.dropped);
    }
  }
  routing.placement = contiguous(experts, routing.ep);
  if (facts.config && facts.config->parallel.expert_placement &&
      static_cast<int64_t>(facts.config->parallel.expert_placement->size()) == routing.ep &&
      holds_every_expert(*facts.config->parallel.expert_placement, static_cast<size_t>(experts))) {
    routing.placement = *facts.config->parallel.expert_placement;
  }
  return routing;
}

Balance balance_of(const Loads& loads, const Placement& placement) {
  Balance balance;
  for (const auto& [where, rows] : loads) {
    double busiest = 0;
    for (const auto& held : placement) {
      double sum = 0;
      for (const int64_t expert : held) sum += rows[static_cast<size_t>(expert)];
      busiest = std::max(busiest, sum);
    }
    balance.busiest += busiest;
    balance.mean += std::accumulate(rows.begin(), rows.end(), 0.0) / static_cast<double>(placement.size());
  }
  return balance;
}

Placement balanced_placement(const std::vector<double>& per_expert, int64_t ranks) {
  const size_t experts = per_expert.size(), count = static_cast<size_t>(ranks), room = (experts + count - 1) / count;
  std::vector<int64_t> order(experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return per_expert[static_cast<size_t>(a)] > per_expert[static_cast<size_t>(b)];
  });
  Placement placement(count);
  std::vector<double> load(count, 0);
  for (const int64_t expert : order) {
    size_t best = count;
    for (size_t rank = 0; rank < count; ++rank) {
      if (placement[rank].size() < room && (best == count || load[rank] < load[best])) best = rank;
    }
    placement[best].push_back(expert);
    load[best] += per_expert[static_cast<size_t>(expert)];
  }
  for (auto& held : placement) std::sort(held.begin(), held.end());
  return placement;
}

// Mean over ranks of what they wait a step for the last member of an all-to-all; empty when none is traced.
std::optional<double> all_to_all_wait_ms(const Facts& facts) {
  const metrics::PeerIndex peers(facts.timeline);
  std::vector<double> ranks;
  bool any = false;
  for (const metrics::RankMetrics& measured : facts.metrics.ranks) {
    if (measured.partitions.empty()) continue;
    const Rank& rank = *facts.timeline.find_rank(measured.rank);
    double waited = 0;
    for (const timeline::Collective& c : rank.collectives) {
      if (c.op != timeline::Op::all_to_all || c.start < measured.partitions.front().start ||
          c.start >= measured.partitions.back().end) {
        continue;
      }
      any = true;
      if (const auto wait = peers.wait_for_peer(rank.rank, c)) {
        waited += static_cast<double>(wait->end - wait->start) * 1e-6;
      }
    }
    ranks.push_back(waited / static_cast<double>(measured.partitions.size()));
  }
  if (!any) return std::nullopt;
  return metrics::mean(ranks);
}

// Milliseconds a step that the mean rank computes experts.
std::optional<double> expert_compute_ms(const Facts& facts) {
  if (!facts.config) return std::nullopt;
  const config::Model& m = facts.config->model;
  const double ffn = static_cast<double>(m.ffn_hidden_size > 0 ? m.ffn_hidden_size : 4 * m.hidden_size);
  const double matrices = m.activation == config::Activation::swiglu ? 3 : 2;
  const double per_token = 6.0 * static_cast<double>(m.num_layers * m.moe_router_topk * m.hidden_size) * matrices * ffn;
  const double share = std::min(per_token / config::flops_per_token(m), kLargestExpertShare);
  return share * facts.metrics.summary.utilization * facts.metrics.summary.step_ms;
}

std::string text_of(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", factor);
  return text;
}

std::vector<Evidence> pick_evidence(const Facts& facts) {
  std::vector<std::pair<const Rank*, const ExpertLoad*>> rows;
  for (const Rank& rank : facts.timeline.ranks) {
    for (const ExpertLoad& load : rank.expert_loads) {
      if (facts.steps.contains(load.step)) rows.emplace_back(&rank, &load);
    }
  }
  const size_t count = std::min(rows.size(), kEvidenceRows);
  std::partial_sort(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count), rows.end(),
                    [](const auto& a, const auto& b) { return a.second->tokens > b.second->tokens; });
  std::vector<Evidence> evidence;
  for (size_t i = 0; i < count; ++i) {
    const auto& [rank, load] = rows[i];
    evidence.push_back({timeline::table_name(timeline::Table::expert), load->rowid, rank->rank, load->time, load->time,
                        "step " + std::to_string(load->step) + ", layer " + std::to_string(load->layer) + ": " +
                            std::to_string(load->tokens) + " of the rank's tokens went to expert " +
                            std::to_string(load->expert) + ", " + std::to_string(load->dropped) + " found no room"});
  }
  return evidence;
}

Suggestion place_anew(const Placement& placement, const Balance& before, const Balance& after) {
  Suggestion suggestion;
  suggestion.patch["parallel"]["expert_placement"] = placement;
  suggestion.why = "The same experts in other places lower the busiest rank's load from " + text_of(before.factor()) +
                   " to " + text_of(after.factor()) +
                   " times the mean of the routing seen here; what is learned stays the same. Checkpoints of the old "
                   "placement have to be resharded.";
  return suggestion;
}

Suggestion raise_coefficient(const Facts& facts) {
  Suggestion suggestion;
  suggestion.why = "A larger load-balancing loss makes the router spread its choices.";
  suggestion.risk = "This changes what the model learns: too large a coefficient costs quality.";
  if (!facts.config) return suggestion;
  const double now = facts.config->model.moe_aux_loss_coeff;
  const double larger = now > 0 ? 2 * now : 0.01;
  suggestion.patch["model"]["moe_aux_loss_coeff"] = larger;
  return suggestion;
}

std::string explain(const Routing& routing, const Balance& balance, double busiest_expert) {
  std::string text = "The router sent the busiest of " + std::to_string(routing.per_expert.size()) + " experts " +
                     text_of(busiest_expert) + " times the mean number of tokens.";
  if (routing.ep > 1) {
    text += " Summed over layers, the busiest of " + std::to_string(routing.ep) + " expert-parallel ranks computed " +
            text_of(balance.factor()) +
            " times the mean rank's rows, and the others waited for it in the all-to-all that ends each layer.";
  }
  if (routing.dropped > 0) {
    text += " " + format_percent(routing.dropped / routing.tokens) +
            " of the choices found no room at their expert (moe_capacity_factor) and were skipped.";
  }
  return text;
}

}  // namespace

std::vector<Finding> detect_expert_imbalance(const Facts& facts) {
  const double now_ms = facts.metrics.summary.step_ms;
  const Routing routing = collect(facts);
  if (now_ms <= 0 || routing.tokens <= 0) return {};

  const Balance balance = balance_of(routing.loads, routing.placement);
  const double mean_load = std::accumulate(routing.per_expert.begin(), routing.per_expert.end(), 0.0) /
                           static_cast<double>(routing.per_expert.size());
  const double busiest_expert =
      mean_load > 0 ? *std::max_element(routing.per_expert.begin(), routing.per_expert.end()) / mean_load : 1;
  double lost_ms = 0;
  if (routing.ep > 1) {
    const auto waited = all_to_all_wait_ms(facts);
    const auto computed = expert_compute_ms(facts);
    const double by_load = computed ? *computed * (balance.factor() - 1) : now_ms;
    lost_ms = std::min(waited ? *waited : (computed ? by_load : 0.0), by_load);
  }

  const bool notable = busiest_expert >= kNotableExpert || routing.dropped >= kNotableDrops * routing.tokens;
  Finding finding;
  const double balanced_ms = now_ms - lost_ms;
  if (routing.ep > 1 && lost_ms >= kLeastCostShare * now_ms) {
    const Placement placement = balanced_placement(routing.per_expert, routing.ep);
    const Balance after = balance_of(routing.loads, placement);
    const double recovered = 1 - (after.factor() - 1) / (balance.factor() - 1);
    if (recovered >= kLeastRecovery) {
      Suggestion better = place_anew(placement, balance, after);
      const double gain = recovered * lost_ms;
      better.predicted = predict(now_ms, now_ms - gain, balanced_ms, now_ms - 0.5 * gain);
      finding.suggestions.push_back(std::move(better));
    }
  } else if (!notable) {
    return {};
  }
  Suggestion loss = raise_coefficient(facts);
  loss.predicted = predict(now_ms, now_ms - 0.5 * lost_ms, balanced_ms, now_ms);
  finding.suggestions.push_back(std::move(loss));

  finding.cost_ms_per_step = now_ms - finding.suggestions.front().predicted.step_ms;
  finding.cost_share = finding.cost_ms_per_step / now_ms;
  finding.title = routing.ep > 1 ? "The busiest expert-parallel rank gets " + text_of(balance.factor()) +
                                       " times the mean load; the others wait " + format_ms(lost_ms) + " a step"
                                 : "The busiest expert gets " + text_of(busiest_expert) + " times the mean load";
  finding.explanation = explain(routing, balance, busiest_expert);
  for (const Rank& rank : facts.timeline.ranks) {
    if (!rank.expert_loads.empty()) finding.ranks.push_back(rank.rank);
  }
  finding.evidence = pick_evidence(facts);
  return {std::move(finding)};
}

}  // namespace taut::detect
