// What a rule found: plain data with the fields of `taut analyze --format json`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace taut::detect {

/// By the recoverable share of the step: high >= 10 %, medium >= 3 %, else low.
enum class Severity { low, medium, high };
const char* severity_name(Severity severity);
Severity severity_of(double cost_share);

/// A row of the trace that shows the finding. `rowid` exists in `table`; times are ns since session start.
struct Evidence {
  std::string table;
  int64_t rowid = 0;
  int32_t rank = 0;
  int64_t start = 0, end = 0;
  std::string note;
};

/// Step time after the cure, with the range that it should fall into; `speedup` = step now / step_ms.
struct Prediction {
  double step_ms = 0, low = 0, high = 0, speedup = 1;
};

/// One way to mend it. `patch` is an RFC 7386 merge patch on the training config; empty object = nothing a config can
/// do. `risk` is empty when the patch leaves what is learned untouched.
struct Suggestion {
  std::string id;  // "loader-stall#1.a"
  nlohmann::ordered_json patch = nlohmann::ordered_json::object();
  std::string why;
  Prediction predicted;
  std::string risk;
};

/// One cause, with all its instances grouped. `suggestions` are alternatives, best first.
struct Finding {
  std::string id;    // "loader-stall#1"
  std::string rule;  // "loader-stall"
  Severity severity = Severity::low;
  std::string title, explanation;
  double cost_ms_per_step = 0;  // recoverable
  double cost_share = 0;        // recoverable share of the step
  std::vector<int32_t> ranks;
  std::vector<Evidence> evidence;
  std::vector<Suggestion> suggestions;
};

}  // namespace taut::detect
