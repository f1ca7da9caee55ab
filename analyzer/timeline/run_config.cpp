#include "analyzer/timeline/run_config.h"

#include "runtime/config/load.h"
#include "taut.h"

namespace taut::timeline {

std::optional<config::Config> run_config(const Timeline& timeline) {
  const std::string_view text = timeline.config_json();
  if (text.empty()) return std::nullopt;
  try {
    config::Config config = config::from_json(config::parse_text(text, "the trace's config"), ".");
    config::validate(config);
    return config;
  } catch (const Error&) {
    return std::nullopt;  // a newer version's key: the trace is still worth reading
  }
}

}  // namespace taut::timeline
