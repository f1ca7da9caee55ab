#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

using nlohmann::json;

/// What a user wrote: comment, own key order, nothing but what they care about.
const char* const kWritten = R"({
  // two replicas on this machine
  "train_micro_batch_size_per_gpu": 4,
  "world_size": 2,
  "model": {"hidden_size": 64, "num_layers": 2, "num_attention_heads": 4, "seq_length": 64, "vocab_size": 512},
  "data": {"path": "corpus.txt", "num_workers": 0}
})";

/// The effective config of the traced run, as far as it matters here.
std::string traced_config() {
  return R"({"model":{"hidden_size":64,"num_layers":2,"num_attention_heads":4,"seq_length":64,"vocab_size":512},)"
         R"("data":{"path":"/data/corpus.txt","num_workers":0},"train_micro_batch_size_per_gpu":4,"world_size":2})";
}

class Apply : public testing::Test {
 protected:
  Apply() {
    SyntheticRun stalled;
    stalled.config = traced_config();
    stalled.wait_ms = [](int64_t, int) { return 50.0; };
    write_trace(stalled, folder_ / "stalled.db");
    SyntheticRun healthy;
    healthy.config = traced_config();
    write_trace(healthy, folder_ / "healthy.db");
    std::filesystem::create_directories(folder_ / "in");
    std::filesystem::create_directories(folder_ / "out");
    write_text(folder_ / "in/corpus.txt", "text");
    write_text(in_, kWritten);
  }

  TemporaryFolder folder_{"cli-apply"};
  std::string in_ = folder_ / "in/train.json", out_ = folder_ / "out/tuned.json";
};

TEST_F(Apply, WritesTheUsersConfigWithTheSuggestedChange) {
  const Outcome outcome = run_taut({"apply", folder_ / "stalled.db", "--config", in_, "-o", out_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("medium or high"), std::string::npos) << "it says how it chose:\n" << outcome.out;
  EXPECT_NE(outcome.out.find("data.num_workers: 0 -> "), std::string::npos) << outcome.out;
  const auto tuned = nlohmann::ordered_json::parse(read_text(out_));
  EXPECT_GT(tuned["data"]["num_workers"], 0);
  std::vector<std::string> keys;
  for (const auto& [key, value] : tuned.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"train_micro_batch_size_per_gpu", "world_size", "model", "data"}))
      << "the user's keys in the user's order";
  EXPECT_TRUE(std::filesystem::equivalent(folder_.path() / "out" / tuned["data"]["path"].get<std::string>(),
                                          folder_ / "in/corpus.txt"))
      << "the path holds from where the new file lies: " << tuned["data"]["path"];
  EXPECT_EQ(read_text(in_), kWritten);
}

TEST_F(Apply, TakesFindingsAndSuggestionsById) {
  EXPECT_EQ(
      run_taut({"apply", folder_ / "stalled.db", "--finding", "loader-stall#1", "--config", in_, "-o", out_}).exit_code,
      0);
  const json by_finding = json::parse(read_text(out_));
  EXPECT_EQ(run_taut({"apply", folder_ / "stalled.db", "--suggestion", "loader-stall#1.a", "--config", in_, "-o", out_})
                .exit_code,
            0);
  EXPECT_EQ(json::parse(read_text(out_)), by_finding);
}

TEST_F(Apply, OverwritesTheConfigItselfOnRequest) {
  ASSERT_EQ(run_taut({"apply", folder_ / "stalled.db", "--config", in_, "-o", in_}).exit_code, 0);
  const json tuned = json::parse(read_text(in_));
  EXPECT_GT(tuned["data"]["num_workers"], 0);
  EXPECT_EQ(tuned["data"]["path"], "corpus.txt");
}

TEST_F(Apply, OnlyLooksOnADryRun) {
  const Outcome outcome = run_taut({"apply", folder_ / "stalled.db", "--config", in_, "-o", out_, "--dry-run"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("data.num_workers"), std::string::npos) << outcome.out;
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(Apply, NotesThatTheFileIsNotTheTracedConfig) {
  std::string other = kWritten;
  other.replace(other.find("\"num_layers\": 2"), 15, "\"num_layers\": 4");
  write_text(in_, other);
  const Outcome outcome = run_taut({"apply", folder_ / "stalled.db", "--config", in_, "-o", out_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("note: model.num_layers: 2 in the trace, 4 in the file"), std::string::npos)
      << outcome.out;
}

TEST_F(Apply, GivesJson) {
  const Outcome outcome = run_taut({"apply", folder_ / "stalled.db", "--config", in_, "-o", out_, "--format", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json result = json::parse(outcome.out);
  EXPECT_EQ(result["applied"][0]["suggestion"], "loader-stall#1.a");
  EXPECT_EQ(result["config"], out_);
  ASSERT_FALSE(result["changes"].empty());
  EXPECT_TRUE(result["patch"].contains("data"));
}

TEST_F(Apply, LeavesAHealthyConfigAlone) {
  const Outcome outcome = run_taut({"apply", folder_ / "healthy.db", "--config", in_, "-o", out_});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("stays as it is"), std::string::npos) << outcome.out;
  EXPECT_EQ(json::parse(read_text(out_))["data"]["num_workers"], 0);
}

TEST_F(Apply, WritesNothingWhenItFails) {
  const std::string trace = folder_ / "stalled.db";
  write_text(folder_ / "in/wrong.json", R"({"data":{"num_wrokers":0}})");
  write_text(folder_ / "in/broken.json", R"({"data":)");
  write_text(
      folder_ / "in/illegal.json",
      R"({"world_size":2,"train_batch_size":7,"train_micro_batch_size_per_gpu":4,"data":{"path":"corpus.txt"}})");
  struct Bad {
    std::vector<std::string> args;
    int exit_code;
    const char* words;
  };
  for (const Bad& bad :
       std::vector<Bad>{{{"--finding", "loader-stal#1", "--config", in_, "-o", out_}, 2, "loader-stall#1"},
                        {{"--suggestion", "loader-stall#1.z", "--config", in_, "-o", out_}, 2, "loader-stall#1.a"},
                        {{"--config", folder_ / "in/wrong.json", "-o", out_}, 1, "num_workers"},
                        {{"--config", folder_ / "in/broken.json", "-o", out_}, 1, "broken.json"},
                        {{"--config", folder_ / "in/illegal.json", "-o", out_}, 1, "train_batch_size"},
                        {{"--config", folder_ / "in/absent.json", "-o", out_}, 1, "absent.json"},
                        {{"--config", in_, "-o", folder_ / "nowhere/tuned.json"}, 1, "nowhere"},
                        {{"--config", in_, "-o", trace}, 2, "trace"},
                        {{"--config", in_}, 2, "-o"},
                        {{"-o", out_}, 2, "--config"}}) {
    std::vector<std::string> command{"apply", trace};
    command.insert(command.end(), bad.args.begin(), bad.args.end());
    const Outcome outcome = run_taut(command);
    EXPECT_EQ(outcome.exit_code, bad.exit_code) << bad.words << "\n" << outcome.err;
    EXPECT_NE(outcome.err.find(bad.words), std::string::npos) << bad.words << " in:\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << outcome.err;
    EXPECT_FALSE(std::filesystem::exists(out_)) << bad.words;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "nowhere"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "out"));
}

}  // namespace
}  // namespace taut::tests
