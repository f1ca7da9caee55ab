#include "runtime/config/layout.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "runtime/config/memory.h"
#include "runtime/config/model_math.h"
#include "runtime/config/names.h"
#include "runtime/config/pipeline_math.h"
#include "runtime/config/traffic.h"

namespace taut::config {
namespace {

// 1234567 -> "1,234,567".
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (int place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), 1, ',');
  return digits;
}

std::string scaled(double value, const char* unit) {
  constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P"};
  size_t prefix = 0;
  while (value >= 1000 && prefix + 1 < std::size(kPrefix)) {
    value /= 1000;
    ++prefix;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.3g ", value);
  return text + std::string(kPrefix[prefix]) + unit;
}

std::string counted(int64_t count, const std::string& thing) {
  const bool hisses = thing.ends_with("ch");
  return grouped(count) + " " + thing + (count == 1 ? "" : hisses ? "es" : "s");
}

std::string line(const char* title, const std::string& text) {
  char padded[32];
  std::snprintf(padded, sizeof padded, "%-10s", title);
  return padded + text + "\n";
}

/// Groups of one kind: `count` of them, each of `size` ranks that lie `stride` apart; the first one begins at rank 0.
struct Groups {
  const char* kind;
  int64_t count, size, stride;
};

// rank = ((pp · dp + dp) · cp + cp) · tp + tp; expert parallelism divides the dp × cp ranks, neighbours first.
std::vector<Groups> groups_of(const Config& c) {
  const Parallel& p = c.parallel;
  const int64_t world = c.world_size, tp = p.tensor_parallel_size, cp = p.context_parallel_size;
  const int64_t dp = c.data_parallel_size(), pp = p.pipeline_parallel_size, ep = p.expert_parallel_size;
  std::vector<Groups> groups;
  const auto add = [&](const char* kind, int64_t size, int64_t stride) {
    if (size > 1) groups.push_back({kind, world / size, size, stride});
  };
  add("tp", tp, 1);
  add("cp", cp, tp);
  add("dp", dp, tp * cp);
  if (cp > 1 && dp > 1) add("dp_cp", dp * cp, tp);
  add("ep", ep, tp);
  if (ep > 1) add("edp", dp * cp / ep, tp * ep);
  add("pp", pp, tp * cp * dp);
  return groups;
}

std::string members(const Groups& group) {
  std::string list;
  for (int64_t i = 0; i < std::min<int64_t>(group.size, 3); ++i) {
    if (i > 0) list += ", ";
    list += std::to_string(i * group.stride);
  }
  return group.size > 3 ? list + " … " + std::to_string((group.size - 1) * group.stride) : list;
}

// The parts of an estimate by name, in the order in which they are printed.
std::vector<std::pair<const char*, double>> parts_of(const MemoryEstimate& m) {
  return {{"weights", m.weights},
          {"weight_copies", m.weight_copies},
          {"gradients", m.gradients},
          {"optimizer", m.optimizer},
          {"activations", m.activations},
          {"logits", m.logits},
          {"communication", m.communication},
          {"workspace", m.workspace},
          {"host", m.host}};
}

/// Columns of one table, each as wide as its widest cell; the first one is flush left.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> width(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(width[i] - row[i].size(), ' ');
      out += i == 0 ? row[i] + padding : "  " + padding + row[i];
    }
    out += '\n';
  }
  return out;
}

/// One row a stage: what a rank of it holds, needs and sends. Columns that are zero everywhere are left out.
std::string stage_table(const Config& c) {
  const int64_t ep = fullest_expert_rank(c);
  const auto layers = layers_per_stage(c);
  std::vector<std::vector<double>> bytes;  // by stage
  std::vector<std::string> titles;
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const auto pp = static_cast<int64_t>(stage);
    const MemoryEstimate memory = memory_on_stage(c, pp, ep);
    const ParameterTraffic traffic = parameter_traffic(c, pp, ep);
    titles = {"total"};
    bytes.push_back({memory.total()});
    for (const auto& [part, size] : parts_of(memory)) {
      titles.push_back(part);
      bytes.back().push_back(size);
    }
    titles.insert(titles.end(), {"sends gradients", "sends weights"});
    bytes.back().insert(bytes.back().end(), {traffic.gradients, traffic.weights});
  }
  std::vector<std::vector<std::string>> rows{{"a rank of", "layers", "parameters"}};
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    rows.push_back({"stage " + std::to_string(stage), std::to_string(layers[stage]),
                    grouped(parameter_count_on_stage(c, static_cast<int64_t>(stage), ep))});
  }
  for (size_t column = 0; column < titles.size(); ++column) {
    const auto has_some = [column](const std::vector<double>& row) { return row[column] > 0; };
    if (std::none_of(bytes.begin(), bytes.end(), has_some)) continue;
    std::string title = titles[column];
    std::replace(title.begin(), title.end(), '_', ' ');
    rows[0].push_back(title);
    for (size_t stage = 0; stage < layers.size(); ++stage) rows[stage + 1].push_back(scaled(bytes[stage][column], "B"));
  }
  return aligned(rows);
}

std::string precision_text(const Config& c) {
  if (!c.bf16.enabled && !c.fp16.enabled) return "fp32";
  return std::string(c.bf16.enabled ? "bf16" : "fp16") + " autocast, fp32 weights";
}

double idle_share(const Config& c) {
  const Parallel& p = c.parallel;
  return ideal_bubble_fraction(p.pipeline_schedule, p.pipeline_parallel_size, c.gradient_accumulation_steps,
                               p.virtual_pipeline_stages);
}

std::string pipeline_text(const Config& c) {
  const Parallel& p = c.parallel;
  std::string text = std::string(name(p.pipeline_schedule)) + ": " + counted(p.pipeline_parallel_size, "stage");
  if (p.virtual_pipeline_stages > 1) text += " of " + counted(p.virtual_pipeline_stages, "chunk");
  char share[32];
  std::snprintf(share, sizeof share, "%.1f %%", 100 * idle_share(c));
  return text + ", " + counted(c.gradient_accumulation_steps, "microbatch") + "; idles " + share +
         " of the step with equal stages";
}

}  // namespace

Json layout_json(const Config& c) {
  const int64_t ep = fullest_expert_rank(c);
  Json json;
  json["world_size"] = c.world_size;
  json["mesh"] = {{"dp", c.data_parallel_size()},
                  {"tp", c.parallel.tensor_parallel_size},
                  {"pp", c.parallel.pipeline_parallel_size},
                  {"cp", c.parallel.context_parallel_size},
                  {"ep", c.parallel.expert_parallel_size}};
  json["groups"] = Json::array();
  for (const Groups& group : groups_of(c)) {
    json["groups"].push_back(
        {{"kind", group.kind}, {"groups", group.count}, {"size", group.size}, {"stride", group.stride}});
  }
  json["batch"] = {{"train_batch_size", c.train_batch_size},
                   {"train_micro_batch_size_per_gpu", c.train_micro_batch_size_per_gpu},
                   {"gradient_accumulation_steps", c.gradient_accumulation_steps},
                   {"tokens_per_step", c.train_batch_size * c.model.seq_length}};
  json["pipeline"] = {{"schedule", name(c.parallel.pipeline_schedule)},
                      {"virtual_pipeline_stages", c.parallel.virtual_pipeline_stages},
                      {"ideal_bubble_fraction", idle_share(c)}};
  json["model"] = {{"parameters", parameter_count(c.model)}, {"flops_per_token", flops_per_token(c.model)}};
  json["stages"] = Json::array();
  double fullest = 0;
  const auto layers = layers_per_stage(c);
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const auto pp = static_cast<int64_t>(stage);
    const MemoryEstimate memory = memory_on_stage(c, pp, ep);
    const ParameterTraffic traffic = parameter_traffic(c, pp, ep);
    Json bytes;
    for (const auto& [part, size] : parts_of(memory)) bytes[part] = size;
    bytes["total"] = memory.total();
    json["stages"].push_back(
        {{"stage", pp},
         {"layers", layers[stage]},
         {"parameters_per_rank", parameter_count_on_stage(c, pp, ep)},
         {"memory_bytes", bytes},
         {"sent_bytes_per_step", {{"gradients", traffic.gradients}, {"weights", traffic.weights}}}});
    fullest = std::max(fullest, memory.total());
  }
  json["memory_bytes_of_fullest_rank"] = fullest;
  return json;
}

std::string layout_text(const Config& c) {
  const Parallel& p = c.parallel;
  const int64_t dp = c.data_parallel_size();
  std::string mesh = counted(c.world_size, "rank") + " = " + grouped(dp) + " data × " +
                     (p.context_parallel_size > 1 ? grouped(p.context_parallel_size) + " context × " : "") +
                     grouped(p.tensor_parallel_size) + " tensor × " + grouped(p.pipeline_parallel_size) + " pipeline";
  if (p.pipeline_parallel_size > 1) mesh += std::string(" (") + name(p.pipeline_schedule) + ")";
  if (p.expert_parallel_size > 1) mesh += "; experts over " + grouped(p.expert_parallel_size) + " of the data ranks";
  std::string out = line("mesh", mesh);
  for (const Groups& group : groups_of(c)) {
    out += line("groups", grouped(group.count) + " " + group.kind + " of " + grouped(group.size) +
                              " ranks: " + members(group) + (group.count > 1 ? "; …" : ""));
  }
  out += line("batch", counted(c.train_batch_size, "sample") + " = " + grouped(c.train_micro_batch_size_per_gpu) +
                           " per microbatch × " + counted(c.gradient_accumulation_steps, "microbatch") + " × " +
                           counted(dp, "data-parallel rank") + "; " + grouped(c.train_batch_size * c.model.seq_length) +
                           " tokens a step");
  out += line("model", grouped(parameter_count(c.model)) + " parameters, " + scaled(flops_per_token(c.model), "FLOP") +
                           " a token (6 × matrix parameters + causal attention)");
  out += line("precision", precision_text(c));
  if (p.pipeline_parallel_size > 1) out += line("pipeline", pipeline_text(c));
  out +=
      "\nmemory at the step's peak, beside what the process itself takes, and what is sent a step:\n" + stage_table(c);
  return out;
}

}  // namespace taut::config
