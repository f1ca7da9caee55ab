#include "runtime/config/not_yet.h"

#include "runtime/config/names.h"

namespace taut::config {
namespace {

std::string quoted(const char* text) {
  return "\"" + std::string(text) + "\"";
}

}  // namespace

const std::vector<NotYet>& not_yet() {
  static const std::vector<NotYet> table = {
      {"communication.gradient_compression", "all but \"none\"",
       [](const Config& c) { return c.communication.gradient_compression != GradientCompression::none; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.communication.gradient_compression)); },
       "set communication.gradient_compression to \"none\""},
      {"optimizer.type", "all but \"AdamW\"", [](const Config& c) { return c.optimizer.type != OptimizerType::AdamW; },
       []([[maybe_unused]] const Config& c) { return quoted(name(c.optimizer.type)); },
       "set optimizer.type to \"AdamW\""},
      {"checkpoint.snapshot_interval_steps", "above 0",
       [](const Config& c) { return c.checkpoint.snapshot_interval_steps > 0; },
       []([[maybe_unused]] const Config& c) { return std::to_string(c.checkpoint.snapshot_interval_steps); },
       "set checkpoint.snapshot_interval_steps to 0 and checkpoint.interval_steps to what you need"},
  };
  return table;
}

}  // namespace taut::config
