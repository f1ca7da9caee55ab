// What every readable report says, before it is text, Markdown or HTML: sentences, tables and config changes.
#pragma once

#include <string>
#include <vector>

#include "analyzer/report/report.h"
#include "analyzer/report/table.h"

namespace taut::report {

/// A category as people call it: "exposed communication".
std::string category_title(metrics::Category category);

/// "2 ranks, 18 of 20 steps analysed, 3.21 s traced, 12,345 events".
std::string scope_sentence(const analyzer::Analysis& analysis, const Context& context);

/// Name and value of each summary number that the trace gives.
Table summary_table(const metrics::Summary& summary);

/// One row a rank: its place in the mesh, its step time, and the categories that take any time.
Table breakdown_table(const std::vector<metrics::RankMetrics>& ranks);

/// "loader stall 51.2 %, compute 40.1 %, …"; empty when unknown.
std::string critical_path_sentence(const std::vector<metrics::CriticalPathShare>& path);

/// False when no rank has a step or GPU work whose time could be told apart.
bool has_breakdown(const analyzer::Analysis& analysis);

/// The breakdown's heading; a trace without steps is broken down as a whole.
std::string breakdown_title(const analyzer::Analysis& analysis);

/// What limits the trust in these numbers: clock error, unmatched launches, the analysis' warnings.
std::vector<std::string> caveats(const analyzer::Analysis& analysis);

/// "costs 51.2 ms of every step (50.1 %) on ranks 0, 1".
std::string cost_sentence(const detect::Finding& finding);

/// "predicted step time 52.0 ms (48.0 ms to 60.0 ms), 1.95 times as fast".
std::string prediction_sentence(const detect::Prediction& predicted);

/// "rank 0 at 1.20 s for 3.21 ms: waited for the loader (TAUT_BATCH row 12)".
std::string evidence_sentence(const detect::Evidence& evidence);

/// A line of a config diff: what the key was ('-') or becomes ('+').
struct DiffLine {
  char sign = '+';
  std::string text;  // "data.num_workers: 4"
};
std::vector<DiffLine> config_diff(const Json& config, const nlohmann::json& patch);

/// "taut apply run.db --suggestion loader-stall#1.a --config IN -o OUT", with the file name quoted for a shell if
/// needed.
std::string apply_command(const std::string& trace_path, const detect::Suggestion& suggestion);

}  // namespace taut::report
