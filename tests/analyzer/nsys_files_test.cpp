// Real Nsight Systems exports: our numbers against SQL on the same file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "analyzer/analyzer.h"
#include "tracer/store/reader.h"

namespace taut::analyzer {
namespace {

// The exports are too large for the repository; TAUT_TRACES names a folder that has them.
std::string find_traces() {
  const char* folder = std::getenv("TAUT_TRACES");
  const std::filesystem::path path = folder ? folder : std::string(TAUT_SOURCE_DIR) + "/../shared/traces";
  return std::filesystem::is_directory(path / "nsys") ? (path / "nsys").string() : std::string();
}

class NsysFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = find_traces();
    if (folder_.empty()) GTEST_SKIP() << "set TAUT_TRACES to a folder with nsys/*.sqlite";
  }
  std::string file(const char* name) const { return folder_ + "/" + name; }

 private:
  std::string folder_;
};

int64_t sql(const std::string& path, const std::string& statement) {
  return store::Reader(path).query(statement).rows.at(0).at(0).integer;
}

// Length of the union of rows, by SQL's own window functions: an independent way to the same number.
int64_t union_by_sql(const std::string& path, const std::string& rows) {
  return sql(path, "WITH r(s, e) AS (" + rows +
                       "), o AS (SELECT s, e, MAX(e) OVER (ORDER BY s, e ROWS BETWEEN UNBOUNDED PRECEDING "
                       "AND 1 PRECEDING) AS before FROM r) SELECT SUM(MAX(0, e - MAX(s, COALESCE(before, s)))) FROM o");
}

TEST_F(NsysFiles, AHealthyRunHasNoFinding) {
  const auto timeline = timeline::load(file("healthy_1pct.sqlite"));
  const auto analysis = analyze(timeline);
  EXPECT_TRUE(analysis.findings.empty());
  ASSERT_EQ(analysis.ranks.size(), 1u);
  const auto devices = metrics::device_totals(timeline);
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].computation_ns, 400'000'000);
  EXPECT_EQ(devices[0].idle_ns, 3'990'000);
  EXPECT_NEAR(analysis.ranks[0].utilization, 400.0 / 403.99, 1e-9);
  EXPECT_EQ(timeline.step_source, timeline::StepSource::none);
  EXPECT_EQ(timeline.launches.size(), 400u);
}

TEST_F(NsysFiles, TwoGpusAreTwoRanksWithTheFilesOwnTotals) {
  const std::string path = file("mfu_2gpu_before.sqlite");
  const auto timeline = timeline::load(path);
  ASSERT_EQ(timeline.ranks.size(), 2u);
  const auto devices = metrics::device_totals(timeline);
  ASSERT_EQ(devices.size(), 2u);
  for (const auto& device : devices) {
    const std::string on = " WHERE deviceId = " + std::to_string(device.device);
    const std::string kernels =
        "SELECT k.start, k.end FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds n ON n.id = "
        "k.shortName" +
        on;
    const std::string compute = kernels +
                                " AND n.value NOT LIKE 'nccl%' UNION ALL SELECT start, end FROM "
                                "CUPTI_ACTIVITY_KIND_MEMSET" +
                                on;
    const std::string communication = kernels + " AND n.value LIKE 'nccl%'";
    const std::string copies = "SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY" + on;
    const std::string all = compute + " UNION ALL " + communication + " UNION ALL " + copies;
    EXPECT_EQ(device.computation_ns, union_by_sql(path, compute));
    EXPECT_EQ(device.communication_ns, union_by_sql(path, communication));
    EXPECT_EQ(device.total_ns, sql(path, "SELECT MAX(end) - MIN(start) FROM (" + all + ")"));
    EXPECT_EQ(device.idle_ns, device.total_ns - union_by_sql(path, all));
    EXPECT_EQ(device.exposed_communication_ns,
              union_by_sql(path, compute + " UNION ALL " + communication) - union_by_sql(path, compute));
    EXPECT_EQ(device.exposed_copy_ns,
              union_by_sql(path, all) - union_by_sql(path, compute + " UNION ALL " + communication));
  }
}

TEST_F(NsysFiles, CorrelationIdsCountWithinTheirProcess) {
  // Joined on the correlation id alone, 4,010 kernels of this file give 4,280 pairs; with the process 3,986.
  const auto timeline = timeline::load(file("mfu_2gpu_before.sqlite"));
  const auto kernels = std::count_if(timeline.launches.begin(), timeline.launches.end(), [&](const auto& launch) {
    return timeline.lanes[launch.gpu_lane].slices.table[launch.gpu_slice] == timeline::Table::kernel;
  });
  EXPECT_EQ(kernels, 3986);
}

TEST_F(NsysFiles, ATinyRunLoads) {
  const auto timeline = timeline::load(file("mock.sqlite"));
  EXPECT_EQ(timeline.events, 2 + 1 + 9);
  EXPECT_TRUE(analyze(timeline).findings.empty());
}

}  // namespace
}  // namespace taut::analyzer
