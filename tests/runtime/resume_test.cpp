// Checkpoints, bf16, and what happens when ranks die or files are broken, with real processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>

#include "tests/runtime/rank_spawner.h"

namespace taut::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string bytes_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

const json kCheckpoints = {{"checkpoint", {{"dir", "saved"}, {"interval_steps", 5}, {"keep", 2}}},
                           {"train_steps", 12},
                           {"model", {{"dropout", 0.1}}}};

TEST(Resume, ContinuesBitForBitOnEveryLayout) {
  struct Layout {
    int ranks;
    json changes;
  };
  for (const Layout& layout :
       {Layout{1, json::object()},
        Layout{4, {{"parallel", {{"tensor_parallel_size", 2}, {"pipeline_parallel_size", 2}}}}}}) {
    json straight_config = kCheckpoints;
    straight_config.merge_patch(layout.changes);
    const ScratchFolder straight, resumed;
    const RunResult whole = run_job({layout.ranks, write_config(straight.path(), straight_config)}, straight.path());
    ASSERT_TRUE(whole.ok()) << whole.all_errors();
    const fs::path config = write_config(resumed.path(), straight_config);
    const RunResult first = run_job({layout.ranks, config, {"--steps", "7"}}, resumed.path());
    const RunResult second = run_job({layout.ranks, config}, resumed.path());
    ASSERT_TRUE(first.ok()) << first.all_errors();
    ASSERT_TRUE(second.ok()) << second.all_errors();
    ASSERT_EQ(first.steps.size(), 7u);
    ASSERT_EQ(second.steps.size(), 5u);
    EXPECT_EQ(second.steps[0].step, 7);
    for (size_t i = 0; i < 12; ++i) {
      const StepLine& step = i < 7 ? first.steps[i] : second.steps[i - 7];
      EXPECT_EQ(step.loss, whole.steps[i].loss) << "step " << i;
      EXPECT_EQ(step.grad_norm, whole.steps[i].grad_norm) << "step " << i;
    }
    for (const auto& entry : fs::directory_iterator(straight.path() / "saved" / "step-12")) {
      const std::string name = entry.path().filename().string();
      EXPECT_TRUE(bytes_of(entry.path()) == bytes_of(resumed.path() / "saved" / "step-12" / name)) << name;
    }
    // The two newest are kept: 10 and 12 (5 and 7 are gone), and nothing half-written.
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(resumed.path() / "saved")) {
      left.push_back(entry.path().filename().string());
    }
    std::sort(left.begin(), left.end());
    EXPECT_EQ(left, (std::vector<std::string>{"step-10", "step-12"}));
  }
}

// Files do not depend on how ZeRO divided what they hold: every leg goes on under another stage, the last one with
// another number of ranks. The sums over ranks may differ in their last bit: fp32 has 1e-7.
TEST(Resume, ContinuesUnderAnyZeroStage) {
  struct Leg {
    int64_t until;
    int stage, ranks;
  };
  const json checkpoints = {
      {"checkpoint", {{"dir", "saved"}}},
      {"train_steps", 12},
      {"model", {{"dropout", 0.1}}},
      // Small enough for several buckets, none of which ZeRO 3 leaves whole.
      {"zero_optimization", {{"reduce_bucket_size", 5000}, {"stage3_param_persistence_threshold", 0}}}};
  const ScratchFolder straight, resumed;
  const RunResult whole = run_job({2, write_config(straight.path(), checkpoints)}, straight.path());
  ASSERT_TRUE(whole.ok()) << whole.all_errors();
  ASSERT_EQ(whole.steps.size(), 12u);
  const fs::path config = write_config(resumed.path(), checkpoints);
  int64_t next = 0;
  double largest = 0;
  for (const Leg& leg : {Leg{2, 0, 2}, Leg{4, 1, 2}, Leg{6, 2, 2}, Leg{8, 3, 2}, Leg{10, 0, 2}, Leg{12, 3, 4}}) {
    const RunResult run = run_job(
        {leg.ranks,
         config,
         {"--steps", std::to_string(leg.until), "--set", "zero_optimization.stage=" + std::to_string(leg.stage)}},
        resumed.path());
    ASSERT_TRUE(run.ok()) << "ZeRO " << leg.stage << ": " << run.all_errors();
    ASSERT_EQ(run.steps.size(), 2u);
    for (const StepLine& step : run.steps) {
      ASSERT_EQ(step.step, next);
      const double loss = whole.steps[static_cast<size_t>(next++)].loss;
      largest = std::max(largest, std::abs(step.loss - loss) / loss);
    }
  }
  std::printf("ZeRO 0, 1, 2, 3, 0, 3 in turn: largest difference of the loss %.1e\n", largest);
  EXPECT_LE(largest, 1e-6);
}

// Each rank has half of every checkpoint, and one that decided for itself would wait for the other for ever.
TEST(Resume, SavesByTheClockOnAllRanksAlike) {
  constexpr double kInterval_s = 0.12, kClock_s = 0.02;  // what file times may be off by
  const ScratchFolder folder;
  const json by_clock = {{"checkpoint", {{"dir", "saved"}, {"interval_minutes", kInterval_s / 60}, {"keep", 100}}},
                         {"parallel", {{"tensor_parallel_size", 2}}},
                         {"data", {{"read_latency_ms", 10}}},  // 8 samples a step
                         {"train_steps", 12}};
  const RunResult run = run_job({2, write_config(folder.path(), by_clock)}, folder.path());
  ASSERT_TRUE(run.ok()) << run.all_errors();
  std::map<int64_t, fs::file_time_type> saved;
  for (const auto& entry : fs::directory_iterator(folder.path() / "saved")) {
    saved[std::stoll(entry.path().filename().string().substr(5))] = fs::last_write_time(entry.path() / "meta.json");
    for (const char* rank : {"tp0", "tp1"}) {
      EXPECT_TRUE(fs::exists(entry.path() / (std::string("weights-") + rank + "-pp0.safetensors"))) << entry.path();
    }
  }
  ASSERT_TRUE(saved.contains(12)) << "the last state is saved whatever the clock says";
  saved.erase(12);
  EXPECT_GE(saved.size(), 3u) << "twelve steps of 80 ms or more";
  for (auto later = saved.begin(), earlier = later++; later != saved.end(); earlier = later++) {
    const double apart_s = std::chrono::duration<double>(later->second - earlier->second).count();
    EXPECT_GE(apart_s, kInterval_s - kClock_s) << "step " << earlier->first << " to " << later->first;
  }
}

class BrokenCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = write_config(folder_.path(), kCheckpoints);
    const RunResult run = run_job({1, config_, {"--steps", "1"}}, folder_.path());
    ASSERT_TRUE(run.ok()) << run.all_errors();
    step_ = folder_.path() / "saved" / "step-1";
    ASSERT_TRUE(fs::exists(step_ / "meta.json"));
  }

  /// Starting again must fail with exit code 1 and an error that contains `what`, and leave the checkpoint alone.
  void expect_refused(const std::string& what, std::vector<std::string> arguments = {}, int ranks = 1) {
    const RunResult run = run_job({ranks, config_, std::move(arguments)}, folder_.path());
    EXPECT_EQ(run.exit_codes[0], 1);
    EXPECT_NE(run.errors[0].find("error: "), std::string::npos) << run.all_errors();
    EXPECT_NE(run.errors[0].find("hint: "), std::string::npos) << run.all_errors();
    EXPECT_NE(run.errors[0].find(what), std::string::npos) << run.all_errors();
    EXPECT_TRUE(run.steps.empty());
  }

  ScratchFolder folder_;
  fs::path config_, step_;
};

TEST_F(BrokenCheckpoint, OfAnotherLayoutModelOrBatchIsRefused) {
  expect_refused("layout.tensor_parallel_size 1, this run has 2", {"--set", "parallel.tensor_parallel_size=2"}, 2);
  expect_refused("model.ffn_hidden_size 64, this run has 128", {"--set", "model.ffn_hidden_size=128"});
  expect_refused("data.train_batch_size 8, this run has 4", {"--set", "train_batch_size=4"});
}

TEST_F(BrokenCheckpoint, CutShortOrForeignIsRefused) {
  const fs::path weights = step_ / "weights-tp0-pp0.safetensors";
  const std::string whole = bytes_of(weights);
  fs::resize_file(weights, whole.size() / 2);
  expect_refused("no sound safetensors file");
  fs::remove(weights);
  expect_refused("cannot read");
  std::ofstream(weights, std::ios::binary) << whole;
  std::ofstream(step_ / "meta.json") << "[1, 2";
  expect_refused("does not describe a checkpoint");
}

TEST(Training, LearnsInBf16AsInFp32) {
  const ScratchFolder folder;
  const RunResult fp32 = run_job({1, write_config(folder.path(), {{"train_steps", 30}})}, folder.path());
  const RunResult bf16 =
      run_job({2, write_config(folder.path(), {{"train_steps", 30}, {"bf16", {{"enabled", true}}}})}, folder.path());
  ASSERT_TRUE(fp32.ok()) << fp32.all_errors();
  ASSERT_TRUE(bf16.ok()) << bf16.all_errors();
  ASSERT_EQ(bf16.steps.size(), 30u);
  EXPECT_LT(bf16.steps.back().loss, bf16.steps.front().loss - 1.0);
  double largest = 0;
  bool different = false;
  for (size_t i = 0; i < 30; ++i) {
    largest = std::max(largest, std::abs(bf16.steps[i].loss - fp32.steps[i].loss));
    different = different || bf16.steps[i].loss != fp32.steps[i].loss;
  }
  std::printf("bf16 against fp32: largest difference of the loss %.1e\n", largest);
  EXPECT_LE(largest, 0.1);  // bf16 keeps 8 bits
  EXPECT_TRUE(different) << "bf16 was not in use";
}

TEST(Training, WhenARankIsKilledTheOthersEndAtOnceWithANamedError) {
  const ScratchFolder folder;
  const json endless = {{"train_steps", 1000000}, {"communication", {{"timeout_s", 300}}}};
  const RunResult run = run_job({2, write_config(folder.path(), endless), {}, /*kill_rank=*/1}, folder.path());
  EXPECT_EQ(run.exit_codes[1], 128 + 9);
  EXPECT_EQ(run.exit_codes[0], 1);
  EXPECT_NE(run.errors[0].find("failed on group dp0"), std::string::npos) << run.all_errors();
  EXPECT_NE(run.errors[0].find("hint: another rank ended"), std::string::npos) << run.all_errors();
  EXPECT_LT(run.seconds, 60) << "the timeout is 300 s";
}

TEST(Training, NonsenseFromTheLauncherIsAnError) {
  const ScratchFolder folder;
  const fs::path config = write_config(folder.path());
  EXPECT_EQ(run_job({1, folder.path() / "missing.json"}, folder.path()).exit_codes[0], 1);
  EXPECT_EQ(run_job({1, config, {"--no-such-option"}}, folder.path()).exit_codes[0], 2);
  const RunResult run = run_job({1, config, {"--set", "model.hiden_size=3"}}, folder.path());
  EXPECT_NE(run.exit_codes[0], 0);
  EXPECT_NE(run.errors[0].find("hidden_size"), std::string::npos) << run.all_errors();
}

}  // namespace
}  // namespace taut::testing
