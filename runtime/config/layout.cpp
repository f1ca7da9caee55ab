#include "runtime/config/layout.h"

#include <cstdio>

#include "runtime/config/memory.h"
#include "runtime/config/model_math.h"
#include "runtime/config/names.h"

namespace taut::config {
namespace {

// 1234567 -> "1,234,567".
std::string grouped(int64_t value) {
  std::string digits = std::to_string(value);
  for (int place = static_cast<int>(digits.size()) - 3; place > 0; place -= 3)
    digits.insert(static_cast<size_t>(place), ",");
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

}  // namespace

Json layout_json(const Config& c) {
  Json json;
  json["world_size"] = c.world_size;
  json["mesh"] = {{"dp", c.data_parallel_size()},
                  {"tp", c.parallel.tensor_parallel_size},
                  {"pp", c.parallel.pipeline_parallel_size},
                  {"cp", c.parallel.context_parallel_size}};
  json["batch"] = {{"train_batch_size", c.train_batch_size},
                   {"train_micro_batch_size_per_gpu", c.train_micro_batch_size_per_gpu},
                   {"gradient_accumulation_steps", c.gradient_accumulation_steps},
                   {"tokens_per_step", c.train_batch_size * c.model.seq_length}};
  json["model"] = {{"parameters", parameter_count(c.model)}, {"flops_per_token", flops_per_token(c.model)}};
  json["stages"] = Json::array();
  const auto layers = layers_per_stage(c);
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const auto pp = static_cast<int64_t>(stage);
    const MemoryEstimate memory = memory_on_stage(c, pp);
    json["stages"].push_back({{"stage", pp},
                              {"layers", layers[stage]},
                              {"parameters_per_rank", parameter_count_on_stage(c, pp)},
                              {"memory_bytes",
                               {{"weights", memory.weights},
                                {"weight_copies", memory.weight_copies},
                                {"gradients", memory.gradients},
                                {"optimizer", memory.optimizer},
                                {"activations", memory.activations},
                                {"logits", memory.logits},
                                {"communication", memory.communication},
                                {"workspace", memory.workspace},
                                {"host", memory.host},
                                {"total", memory.total()}}}});
  }
  return json;
}

std::string layout_text(const Config& c) {
  const int64_t dp = c.data_parallel_size(), tp = c.parallel.tensor_parallel_size,
                pp = c.parallel.pipeline_parallel_size;
  std::string mesh = counted(c.world_size, "rank") + " = " + grouped(dp) + " data × " + grouped(tp) + " tensor × " +
                     grouped(pp) + " pipeline";
  if (pp > 1) mesh += std::string(" (") + name(c.parallel.pipeline_schedule) + ")";
  std::string out = line("mesh", mesh);
  out += line("batch", counted(c.train_batch_size, "sample") + " = " + grouped(c.train_micro_batch_size_per_gpu) +
                           " per microbatch × " + counted(c.gradient_accumulation_steps, "microbatch") + " × " +
                           counted(dp, "data-parallel rank") + "; " + grouped(c.train_batch_size * c.model.seq_length) +
                           " tokens a step");
  out += line("model", grouped(parameter_count(c.model)) + " parameters, " + scaled(flops_per_token(c.model), "FLOP") +
                           " a token (6 × matrix parameters + causal attention)");
  out += line("precision", c.bf16.enabled ? "bf16 autocast, fp32 weights" : "fp32");
  const auto layers = layers_per_stage(c);
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const auto number = static_cast<int64_t>(stage);
    const MemoryEstimate memory = memory_on_stage(c, number);
    out += line(("stage " + std::to_string(stage)).c_str(),
                counted(layers[stage], "layer") + ", " + grouped(parameter_count_on_stage(c, number)) +
                    " parameters a rank; about " + scaled(memory.total(), "B") + " a rank: weights " +
                    scaled(memory.weights, "B") + ", gradients " + scaled(memory.gradients, "B") + ", optimizer " +
                    scaled(memory.optimizer, "B") + ", activations " + scaled(memory.activations, "B"));
  }
  return out;
}

}  // namespace taut::config
