// The runtime's typed payloads become rows of the TAUT_* tables with the values that the speaker gave them.
#include <gtest/gtest.h>

#include "tests/tracer/traced_run.h"
#include "tracer/store/ids.h"

namespace taut::collect {
namespace {

class Training : public testing::Test {
 protected:
  static constexpr int kSteps = 4;
  static void SetUpTestSuite() {
    run_ = test::trace({{"train", "0", std::to_string(kSteps)}, {"train", "1", std::to_string(kSteps)}}).release();
  }
  static void TearDownTestSuite() {
    delete run_;
    run_ = nullptr;
  }
  std::vector<std::vector<store::Cell>> rows(const std::string& sql) const { return reader_.query(sql).rows; }
  int64_t number(const std::string& sql) const { return test::number(reader_, sql); }

  static test::TracedRun* run_;
  const store::Reader reader_{run_->path};
};
test::TracedRun* Training::run_ = nullptr;

TEST_F(Training, RanksSayWhoTheyAre) {
  const auto got = rows("SELECT rank, globalPid, node, dp, tp, pp, cp, ep, device FROM TAUT_RANK ORDER BY rank");
  ASSERT_EQ(got.size(), 2u);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(got[rank][0].integer, static_cast<int64_t>(rank));
    EXPECT_EQ(got[rank][1].integer, store::global_pid(0, run_->pids[rank]));
    for (size_t i = 2; i < 9; ++i) EXPECT_EQ(got[rank][i].integer, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, -1})[i - 2]);
  }
  const auto group = rows("SELECT groupId, name, size FROM TAUT_GROUP");
  ASSERT_EQ(group.size(), 1u) << "one row a group, not one a member";
  EXPECT_EQ(group[0][0].integer, 77);
  EXPECT_EQ(group[0][1].text, "tp0");
  EXPECT_EQ(group[0][2].integer, 2);
}

TEST_F(Training, StepsHaveTheTimesOfTheirRangesAndTheirResults) {
  const auto got = rows("SELECT rank, step, start, end, tokens, loss FROM TAUT_STEP ORDER BY rank, step");
  ASSERT_EQ(got.size(), 2u * kSteps);
  const auto ranges = rows(
      "SELECT n.start, n.end FROM NVTX_EVENTS n JOIN StringIds s ON s.id=n.textId WHERE "
      "s.value='step' ORDER BY n.globalTid, n.start");
  ASSERT_EQ(ranges.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto step = static_cast<int64_t>(i % kSteps);
    EXPECT_EQ(got[i][1].integer, step);
    EXPECT_EQ(got[i][4].integer, 8192);
    if (step == 0)
      EXPECT_EQ(got[i][5].type, store::Cell::Type::null) << "NaN: this rank does not have the loss";
    else
      EXPECT_EQ(got[i][5].real, 5.5 - static_cast<double>(step));
    EXPECT_EQ(number("SELECT count(*) FROM NVTX_EVENTS n JOIN StringIds s ON s.id=n.textId WHERE s.value='step' AND "
                     "n.start=" +
                     std::to_string(got[i][2].integer) + " AND n.end=" + std::to_string(got[i][3].integer)),
              1);
  }
}

TEST_F(Training, CollectivesHaveTheirContentAndTheirWait) {
  const auto got = rows(
      "SELECT rank, op, groupId, groupSize, seq, bytes, dtype, tensorId, tensorVersion, peer, isAsync, "
      "waitStart, waitEnd, n.start, n.end, reason, firstElement, elements FROM TAUT_COLLECTIVE c JOIN NVTX_EVENTS n ON "
      "n.rowid=c.eventId ORDER BY rank, n.start");
  ASSERT_EQ(got.size(), 2u * kSteps * 3);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto& row = got[i];
    const int64_t step = static_cast<int64_t>(i / 3) % kSteps, rank = row[0].integer;
    EXPECT_EQ(row[2].integer, 77);
    EXPECT_EQ(row[3].integer, 2);
    EXPECT_LE(row[13].integer, row[14].integer);
    const auto is = [&](const char* op, int64_t seq, int64_t bytes, const char* dtype, int64_t id, int64_t version,
                        int64_t peer, int64_t async) {
      EXPECT_EQ(row[1].text, op);
      EXPECT_EQ(row[4].integer, seq);
      EXPECT_EQ(row[5].integer, bytes);
      EXPECT_EQ(row[6].text, dtype);
      EXPECT_EQ(row[7].integer, id);
      EXPECT_EQ(row[8].integer, version);
      EXPECT_EQ(row[9].integer, peer);
      EXPECT_EQ(row[10].integer, async);
    };
    const auto carries = [&](const char* reason, int64_t first_element, int64_t elements) {
      EXPECT_EQ(row[15].text, reason);
      EXPECT_EQ(row[16].integer, first_element);
      EXPECT_EQ(row[17].integer, elements);
    };
    if (i % 3 == 0) {
      carries("gradient", 1000, 2000);
      is("all_reduce", 2 * step, 1 << 20, "bfloat16", 11, 22, -1, 0);
      EXPECT_GE(row[11].integer, row[13].integer) << "it waited after it began";
      EXPECT_GE(row[12].integer, row[14].integer) << "until it was done";
    } else if (i % 3 == 1) {
      carries("parameter", 3000, 128);
      is("all_gather", 2 * step + 1, 512, "float32", 33, 44, -1, 1);
      EXPECT_GE(row[11].integer, row[14].integer) << "it waited when it was done already";
    } else {
      carries("activation", 0, 0);
      is("send", step, 64, "int64", 0, 0, 1 - rank, 1);
      EXPECT_EQ(row[11].type, store::Cell::Type::null) << "nobody waited";
      EXPECT_EQ(row[12].type, store::Cell::Type::null);
    }
  }
}

TEST_F(Training, BatchesMicrobatchesAndLoaderWork) {
  const auto batches = rows(
      "SELECT rank, step, waitStart, waitEnd, workers, queueDepth, sampleHash, n.start, n.end FROM "
      "TAUT_BATCH b JOIN NVTX_EVENTS n ON n.rowid=b.eventId ORDER BY rank, step");
  ASSERT_EQ(batches.size(), 2u * kSteps);
  for (const auto& row : batches) {
    EXPECT_EQ(row[2].integer, row[7].integer);
    EXPECT_EQ(row[3].integer, row[8].integer);
    EXPECT_EQ(row[4].integer, 3);
    EXPECT_EQ(row[5].integer, 1);
    EXPECT_EQ(row[6].integer, static_cast<int64_t>(0xFEDCBA9876543210ull));
  }
  const auto passes = rows("SELECT step, microbatch, stage, chunk, pass FROM TAUT_MICROBATCH ORDER BY rank, step");
  ASSERT_EQ(passes.size(), 2u * kSteps);
  for (size_t i = 0; i < passes.size(); ++i) {
    EXPECT_EQ(passes[i][0].integer, static_cast<int64_t>(i % kSteps));
    EXPECT_EQ(passes[i][1].integer, 6);
    EXPECT_EQ(passes[i][2].integer, 3);
    EXPECT_EQ(passes[i][3].integer, 1);
    EXPECT_EQ(passes[i][4].text, "F");
  }
  const auto work = rows("SELECT worker, batch, samples, phase FROM TAUT_LOADER_WORK");
  ASSERT_EQ(work.size(), 2u * kSteps);
  EXPECT_EQ(work[0][0].integer, 2);
  EXPECT_EQ(work[0][2].integer, 8);
  EXPECT_EQ(work[0][3].text, "read");
  const auto uses = rows("SELECT tensorId, tensorVersion, bytesUsed, bytesTotal FROM TAUT_TENSOR_USE");
  ASSERT_EQ(uses.size(), 2u * kSteps);
  EXPECT_EQ(uses[0][2].integer, 256);
  EXPECT_EQ(uses[0][3].integer, 512);
  const auto experts = rows("SELECT rank, step, layer, expert, tokens, dropped FROM TAUT_EXPERT ORDER BY rank, step");
  ASSERT_EQ(experts.size(), 2u * kSteps);
  for (size_t i = 0; i < experts.size(); ++i) {
    EXPECT_EQ(experts[i][0].integer, static_cast<int64_t>(i / kSteps));
    EXPECT_EQ(experts[i][1].integer, static_cast<int64_t>(i % kSteps));
    EXPECT_EQ(experts[i][2].integer, 5);
    EXPECT_EQ(experts[i][3].integer, 63);
    EXPECT_EQ(experts[i][4].integer, 4096);
    EXPECT_EQ(experts[i][5].integer, 17);
  }
  EXPECT_EQ(number("SELECT count(*) FROM NVTX_EVENTS WHERE binaryData IS NOT NULL"), 0) << "all payloads have tables";
}

TEST_F(Training, MemoryIsTheStepsPeak) {
  const auto got = rows(
      "SELECT m.globalPid, m.time, m.device, m.allocated, m.reserved, m.rss, r.globalPid, s.start, s.end FROM "
      "TAUT_MEMORY m JOIN TAUT_RANK r ON r.globalPid=m.globalPid JOIN TAUT_STEP s ON s.rank=r.rank AND "
      "s.step=m.allocated-4000 ORDER BY r.rank, m.time");
  ASSERT_EQ(got.size(), 2u * kSteps);
  for (const auto& row : got) {
    EXPECT_GE(row[1].integer, row[7].integer) << "within its step";
    EXPECT_LE(row[1].integer, row[8].integer);
    EXPECT_EQ(row[2].integer, -1);
    EXPECT_EQ(row[4].integer, 5000);
    EXPECT_EQ(row[5].integer, 6000);
  }
}

TEST_F(Training, EveryEventIdIsARow) {
  for (const char* table :
       {"TAUT_COLLECTIVE", "TAUT_MICROBATCH", "TAUT_BATCH", "TAUT_TENSOR_USE", "TAUT_LOADER_WORK", "TAUT_EXPERT"}) {
    EXPECT_EQ(number(std::string("SELECT count(*) FROM ") + table +
                     " t LEFT JOIN NVTX_EVENTS n ON n.rowid=t.eventId "
                     "WHERE n.start IS NULL"),
              0)
        << table;
    EXPECT_EQ(number(std::string("SELECT count(*) - count(DISTINCT eventId) FROM ") + table), 0) << table;
  }
}

TEST_F(Training, SaysWhatWasTracedAndWhen) {
  const auto about = reader_.meta();
  EXPECT_EQ(about.at("traced.nvtx"), "true");
  EXPECT_EQ(about.at("traced.cuda"), "false");
  EXPECT_EQ(about.at("session_start_utc").back(), 'Z');
  EXPECT_FALSE(about.at("host").empty());
  const auto clock = rows("SELECT node, offsetNs, errorNs FROM TAUT_CLOCK");
  ASSERT_EQ(clock.size(), 1u);
  EXPECT_EQ(clock[0][1].integer, 0);
  EXPECT_EQ(reader_.count("TAUT_LOSS"), 0);
}

}  // namespace
}  // namespace taut::collect
