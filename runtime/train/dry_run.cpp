#include "runtime/train/dry_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "runtime/comm/process_group.h"
#include "runtime/config/model_math.h"
#include "runtime/model/gpt.h"
#include "runtime/parallel/schedule.h"
#include "taut.h"

namespace taut::train {
namespace {

comm::MeshSize mesh_of(const config::Config& c) {
  comm::MeshSize size;
  size.pp = static_cast<int>(c.parallel.pipeline_parallel_size);
  size.cp = static_cast<int>(c.parallel.context_parallel_size);
  size.ep = static_cast<int>(c.parallel.expert_parallel_size);
  size.tp = static_cast<int>(c.parallel.tensor_parallel_size);
  size.dp = static_cast<int>(c.data_parallel_size());
  return size;
}

std::string shape_text(at::IntArrayRef shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text.append(i > 0 ? ", " : "").append(std::to_string(shape[i]));
  return text + "]";
}

[[noreturn]] void fail(int rank, const std::string& what) {
  throw Error("dry run: rank " + std::to_string(rank) + ": " + what,
              "the runtime does not build what the config says: please report it with this config");
}

/// What tensor parallelism leaves of the whole shape: one dimension divided, block by block.
std::vector<int64_t> expected_shape(const parallel::Parameter& parameter, int64_t tp) {
  std::vector<int64_t> shape = parameter.full_shape;
  if (parameter.shard.dim < 0) return shape;
  int64_t& divided = shape[static_cast<size_t>(parameter.shard.dim)];
  int64_t sum = 0, share = 0;
  for (const int64_t block : parameter.shard.blocks) {
    sum += block;
    share += (block + tp - 1) / tp;
  }
  if (sum != divided) return {};
  divided = share;
  return shape;
}

/// The parameters of one rank, all its chunks.
std::vector<parallel::Parameter> build(const config::Config& c, comm::Communicator& communicator) {
  parallel::TensorParallel tp{&communicator.tp(), c.parallel.gather_output, c.parallel.sequence_parallel};
  std::vector<parallel::Parameter> parameters;
  int unit = 0;
  for (int chunk = 0; chunk < c.parallel.virtual_pipeline_stages; ++chunk) {
    model::StageContext context{tp};
    context.cp = &communicator.cp();
    context.ep = &communicator.ep();
    if (c.model.num_experts > 0) context.experts = model::place_experts(c.model, c.parallel);
    context.chunk = chunk;
    context.first_unit = unit;
    const model::StagePlan plan = model::plan_stage(c, communicator.at().pp, chunk);
    const model::GptStage stage(c.model, plan, context, c.seed, at::kMeta);
    parameters.insert(parameters.end(), stage.parameters().begin(), stage.parameters().end());
    unit = stage.end_unit();
  }
  return parameters;
}

DryRank check(const config::Config& c, const comm::MeshSize& size, int rank,
              const std::vector<parallel::Parameter>& parameters) {
  DryRank result{rank, comm::coordinates_of(size, rank), 0, 0};
  std::set<std::string> names;
  for (const parallel::Parameter& parameter : parameters) {
    if (!names.insert(parameter.name).second) fail(rank, "parameter " + parameter.name + " exists twice");
    const auto expected = expected_shape(parameter, size.tp);
    if (parameter.value.sizes() != at::IntArrayRef(expected)) {
      fail(rank, "parameter " + parameter.name + " is " + shape_text(parameter.value.sizes()) + ", expected " +
                     shape_text(expected) + " of the whole " + shape_text(parameter.full_shape));
    }
    ++result.tensors;
    result.parameters += parameter.value.numel();
  }
  const int64_t expected = config::parameter_count_on_stage(c, result.at.pp, result.at.ep);
  if (result.parameters != expected) {
    fail(rank, "holds " + std::to_string(result.parameters) + " parameters, expected " + std::to_string(expected));
  }
  return result;
}

int64_t whole_elements(const parallel::Parameter& parameter) {
  int64_t elements = 1;
  for (const int64_t size : parameter.full_shape) elements *= size;
  return elements;
}

std::string schedule_text(const config::Config& c) {
  if (c.parallel.pipeline_parallel_size == 1) return "";
  const auto schedule = parallel::make_schedule(
      c.parallel.pipeline_schedule, static_cast<int>(c.parallel.pipeline_parallel_size),
      static_cast<int>(c.gradient_accumulation_steps), static_cast<int>(c.parallel.virtual_pipeline_stages));
  parallel::validate(schedule);
  return parallel::to_text(schedule);
}

}  // namespace

DryRun dry_run(const config::Config& c) {
  const comm::MeshSize size = mesh_of(c);
  DryRun run;
  run.schedule = schedule_text(c);
  const std::set<int> tp_ranks{0, size.tp - 1};
  const std::set<int> ep_ranks{0, size.ep - 1};
  for (int pp = 0; pp < size.pp; ++pp) {
    for (const int ep : ep_ranks) {
      for (const int tp : tp_ranks) {
        // The first ep ranks are the first of the data × context ranks.
        const int rank = comm::rank_of(size, {pp, ep / size.cp, ep % size.cp, ep, tp});
        comm::Communicator communicator = comm::Communicator::dry(size, rank);
        const auto parameters = build(c, communicator);
        run.ranks.push_back(check(c, size, rank, parameters));
        if (ep > 0 || tp > 0) continue;
        for (const parallel::Parameter& parameter : parameters) {
          if (!parameter.second_copy && !parameter.expert) run.parameters += whole_elements(parameter);
        }
      }
    }
  }
  // Every expert is on some rank; which ones a rank holds was counted above.
  const int64_t all = config::parameter_count(c.model);
  int64_t experts = 0;
  for (int64_t pp = 0; pp < size.pp; ++pp) {
    for (int64_t ep = 0; ep < size.ep; ++ep) experts += config::held_parameters(c, pp, ep).experts * size.tp;
  }
  run.parameters += experts;
  if (run.parameters != all) {
    throw Error("dry run: the stages hold " + std::to_string(run.parameters) + " parameters together, the model has " +
                    std::to_string(all),
                "the runtime does not build what the config says: please report it with this config");
  }
  return run;
}

std::string dry_run_text(const DryRun& run) {
  constexpr size_t kColumns = 150;
  std::string text;
  if (!run.schedule.empty()) {
    text += "\nschedule, forward 1 and backward 2 units of time:\n";
    for (size_t start = 0; start < run.schedule.size();) {
      const size_t end = std::min(run.schedule.find('\n', start), run.schedule.size());
      const std::string line = run.schedule.substr(start, end - start);
      text += line.size() > kColumns ? line.substr(0, kColumns) + " …\n" : line + "\n";
      start = end + 1;
    }
  }
  text += "\nbuilt without memory, every shape as the config says (" + std::to_string(run.ranks.size()) +
          " of the ranks):\n";
  for (const DryRank& rank : run.ranks) {
    text += "rank " + std::to_string(rank.rank) + ": pp " + std::to_string(rank.at.pp) + ", dp " +
            std::to_string(rank.at.dp) + ", cp " + std::to_string(rank.at.cp) + ", tp " + std::to_string(rank.at.tp) +
            ", ep " + std::to_string(rank.at.ep) + "; " + std::to_string(rank.tensors) + " tensors, " +
            std::to_string(rank.parameters) + " parameters\n";
  }
  return text;
}

std::string dry_run_json(const DryRun& run) {
  nlohmann::ordered_json json{{"ranks", nlohmann::ordered_json::array()}, {"parameters", run.parameters}};
  for (const DryRank& rank : run.ranks) {
    json["ranks"].push_back({{"rank", rank.rank},
                             {"pp", rank.at.pp},
                             {"dp", rank.at.dp},
                             {"cp", rank.at.cp},
                             {"tp", rank.at.tp},
                             {"ep", rank.at.ep},
                             {"tensors", rank.tensors},
                             {"parameters", rank.parameters}});
  }
  return json.dump();
}

}  // namespace taut::train
