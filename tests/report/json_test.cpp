// The JSON report against its contract: every documented field, right types, finite numbers, shares that add up.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "analyzer/report/report.h"
#include "tests/cli/synthetic_run.h"

namespace taut::report {
namespace {

using tests::SyntheticRun;
using tests::TemporaryFolder;

Json report_of(const SyntheticRun& run) {
  const TemporaryFolder folder("json-report");
  tests::write_trace(run, folder / "run.db");
  return json(analyzer::analyze(timeline::load(folder / "run.db")));
}

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> out;
  for (const auto& [key, value] : object.items()) out.push_back(key);
  return out;
}

using Keys = std::vector<std::string>;

void expect_contract(const Json& report) {
  EXPECT_EQ(keys(report), (Keys{"trace", "quality", "ranks", "summary", "critical_path", "findings"}));
  EXPECT_EQ(keys(report["trace"]), (Keys{"path", "ranks", "steps", "duration_s", "events"}));
  EXPECT_EQ(keys(report["quality"]), (Keys{"dropped_events", "clock_error_ns", "unmatched_correlations", "warnings"}));
  EXPECT_EQ(keys(report["summary"]),
            (Keys{"step_ms", "tokens_per_s", "mfu", "utilization", "communication_share", "overlap", "bubble_fraction",
                  "ideal_bubble_fraction", "loader_stall_share", "slowdown", "straggler"}));
  for (const auto& rank : report["ranks"]) {
    EXPECT_EQ(keys(rank), (Keys{"rank", "mesh", "steps", "step_ms", "breakdown", "utilization", "communication_share",
                                "overlap", "memory_peak_bytes"}));
    EXPECT_EQ(keys(rank["mesh"]), (Keys{"dp", "tp", "pp", "cp", "ep"}));
    EXPECT_EQ(keys(rank["breakdown"]), (Keys{"compute", "exposed_communication", "loader_stall", "pipeline_bubble",
                                             "copy", "checkpoint", "host", "idle"}));
    double sum = 0;
    for (const auto& share : rank["breakdown"]) {
      EXPECT_GE(share.get<double>(), 0);
      sum += share.get<double>();
    }
    EXPECT_NEAR(sum, 1, 1e-6);
    EXPECT_EQ(rank["utilization"], rank["breakdown"]["compute"]);
  }
  for (const auto& finding : report["findings"]) {
    EXPECT_EQ(keys(finding), (Keys{"id", "rule", "severity", "title", "explanation", "cost_ms_per_step", "cost_share",
                                   "ranks", "evidence", "suggestions"}));
    for (const auto& row : finding["evidence"]) {
      EXPECT_EQ(keys(row), (Keys{"table", "rowid", "rank", "start", "end", "note"}));
    }
    for (const auto& suggestion : finding["suggestions"]) {
      EXPECT_EQ(keys(suggestion), (Keys{"id", "patch", "why", "predicted", "risk"}));
      EXPECT_EQ(keys(suggestion["predicted"]), (Keys{"step_ms", "low", "high", "speedup"}));
      EXPECT_TRUE(suggestion["patch"].is_object());
    }
  }
}

TEST(JsonReport, HoldsTheContractOnAStalledRun) {
  SyntheticRun run;
  run.wait_ms = [](int64_t, int) { return 50.0; };
  const Json report = report_of(run);
  expect_contract(report);
  EXPECT_EQ(report["trace"]["ranks"], 2);
  EXPECT_EQ(report["trace"]["steps"], 11) << "the first of twelve warms up";
  EXPECT_NEAR(report["summary"]["step_ms"].get<double>(), 100, 1e-6);
  EXPECT_NEAR(report["summary"]["loader_stall_share"].get<double>(), 0.5, 1e-6);
  EXPECT_NEAR(report["summary"]["tokens_per_s"].get<double>(), 2 * 4096 / 0.1, 1);
  ASSERT_FALSE(report["findings"].empty());
  EXPECT_EQ(report["findings"][0]["rule"], "loader-stall");
  EXPECT_EQ(report["findings"][0]["severity"], "high");
}

TEST(JsonReport, HoldsTheContractOnAHealthyRun) {
  const Json report = report_of({});
  expect_contract(report);
  for (const auto& finding : report["findings"]) EXPECT_EQ(finding["severity"], "low");
}

TEST(JsonReport, IsTheSameEveryTime) {
  SyntheticRun run;
  run.wait_ms = [](int64_t, int) { return 50.0; };
  EXPECT_EQ(report_of(run).dump(), report_of(run).dump());
}

TEST(JsonReport, WritesNullForWhatIsNoNumber) {
  analyzer::Analysis analysis;
  analysis.summary.tokens_per_s = std::numeric_limits<double>::quiet_NaN();
  analysis.summary.slowdown = INFINITY;
  const Json report = json(analysis);
  EXPECT_TRUE(report["summary"]["tokens_per_s"].is_null());
  EXPECT_TRUE(report["summary"]["slowdown"].is_null());
  EXPECT_TRUE(report["summary"]["mfu"].is_null());
}

}  // namespace
}  // namespace taut::report
