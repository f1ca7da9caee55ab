// The duplicate-data rule: who read the same samples, judged by their hash.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "analyzer/analyzer.h"
#include "tests/analyzer/trace_builder.h"

namespace taut::detect {
namespace {

using test::TraceBuilder;

/// Sample hash of microbatch `microbatch` of step `step` on rank `rank`.
using Hash = std::function<uint64_t(int rank, int step, int microbatch)>;

uint64_t distinct(int rank, int step, int microbatch) {
  return 0x9000'0000'0000'0000u + static_cast<uint64_t>(rank * 10'000 + step * 100 + microbatch);
}

/// 4 ranks, `dp` data-parallel × 4/dp pipeline stages; 5 steps of 2 microbatches, 10 ms each.
std::vector<Finding> findings_of(int dp, const Hash& hash, std::vector<int64_t>* rows = nullptr) {
  TraceBuilder trace;
  for (int r = 0; r < 4; ++r) {
    trace.rank(r, r % dp, 0, r / dp);
    for (int s = 0; s < 5; ++s) {
      const double begin = 20'000.0 * s;
      for (int m = 0; m < 2; ++m) {
        const double at = begin + 10'000 * m;
        const int64_t row = trace.batch(r, s, at, at + 50, 2, 4, hash(r, s, m));
        if (rows != nullptr) rows->push_back(row);
        trace.microbatch(r, s, m, 0, 'F', at + 50, at + 10'000);
      }
      trace.step(r, s, begin, begin + 20'000);
    }
  }
  std::vector<Finding> found;
  for (Finding& finding : analyzer::analyze(trace.load()).findings) {
    if (finding.rule == "duplicate-data") found.push_back(std::move(finding));
  }
  return found;
}

TEST(DuplicateData, SaysNothingWhenEveryRankHasItsOwnSamples) {
  EXPECT_TRUE(findings_of(4, distinct).empty());
}

TEST(DuplicateData, FindsRanksThatAllReadTheSame) {
  std::vector<int64_t> rows;
  const auto findings = findings_of(
      4, [](int, int s, int m) { return distinct(0, s, m); }, &rows);
  ASSERT_EQ(findings.size(), 1u);
  const Finding& finding = findings[0];
  EXPECT_EQ(finding.id, "duplicate-data#1");
  EXPECT_EQ(finding.severity, Severity::high);
  EXPECT_EQ(finding.ranks, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_DOUBLE_EQ(finding.cost_share, 0.75);  // three of four copies
  EXPECT_NEAR(finding.cost_ms_per_step, 15, 1e-6);
  EXPECT_NE(finding.title.find("ranks 0, 1, 2 and 3"), std::string::npos) << finding.title;
  ASSERT_FALSE(finding.evidence.empty());
  for (const Evidence& evidence : finding.evidence) {
    EXPECT_EQ(evidence.table, "TAUT_BATCH");
    EXPECT_NE(std::find(rows.begin(), rows.end(), evidence.rowid), rows.end());
  }
  EXPECT_EQ(finding.evidence[0].start, 20'000'000);  // of step 1: the first step is not analysed
  EXPECT_EQ(finding.evidence[0].end, 20'050'000);
  ASSERT_EQ(finding.suggestions.size(), 1u);
  EXPECT_TRUE(finding.suggestions[0].patch.empty());
  EXPECT_NE(finding.suggestions[0].why.find("sampler"), std::string::npos);
  EXPECT_DOUBLE_EQ(finding.suggestions[0].predicted.speedup, 1);
}

TEST(DuplicateData, NamesTheTwoRanksOfFour) {
  const auto findings = findings_of(4, [](int r, int s, int m) { return distinct(r == 3 ? 1 : r, s, m); });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].ranks, (std::vector<int32_t>{1, 3}));
  EXPECT_DOUBLE_EQ(findings[0].cost_share, 0.25);
}

TEST(DuplicateData, IsSevereEvenWhenItIsRare) {
  const auto findings =
      findings_of(4, [](int r, int s, int m) { return distinct(s == 4 && m == 1 ? r / 2 * 2 : r, s, m); });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::high);
  EXPECT_DOUBLE_EQ(findings[0].cost_share, 2.0 / 32);
  EXPECT_NE(findings[0].explanation.find("In 1 step, 1 microbatch has"), std::string::npos) << findings[0].explanation;
}

TEST(DuplicateData, ExpectsStagesOfOneReplicaToReadTheSame) {
  EXPECT_TRUE(findings_of(2, [](int r, int s, int m) { return distinct(r % 2, s, m); }).empty());
  // And the pipeline does not hide replicas that do.
  const auto findings = findings_of(2, [](int, int s, int m) { return distinct(0, s, m); });
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_DOUBLE_EQ(findings[0].cost_share, 0.5);
}

TEST(DuplicateData, AllowsTheSameSamplesAtAnotherTime) {
  // Every rank sees every sample: in another step (another epoch), or as another microbatch.
  EXPECT_TRUE(findings_of(4, [](int r, int s, int m) { return distinct((r + s) % 4, 0, m); }).empty());
}

TEST(DuplicateData, IgnoresBatchesWithoutAHash) {
  EXPECT_TRUE(findings_of(4, [](int, int, int) { return uint64_t{0}; }).empty());
}

}  // namespace
}  // namespace taut::detect
