// What Apply and rerun writes and starts, without a window.
#include "gui/app/rerun.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/gui/scratch.h"
#include "tests/gui/traced_run.h"

namespace taut::gui {
namespace {

using test::Scratch;

std::shared_ptr<const Document> stalled_run(const Scratch& scratch, const std::string& name = "before.db",
                                            bool with_config = true) {
  const test::TracedRun run;
  const auto config = test::traced_config(run, scratch.write("text.txt", "all the world's a stage\n"));
  test::write_traced_run(run, with_config ? config : nlohmann::json::object(), scratch / name);
  Progress progress;
  return load_document(scratch / name, progress);
}

TEST(Rerun, WritesThePatchedConfigBesideTheTraceAndStartsTautTrain) {
  const Scratch scratch;
  const auto document = stalled_run(scratch);
  const auto& finding = document->analysis().findings.at(0);
  const RerunPlan plan =
      plan_rerun(*document, {.suggestions = {finding.suggestions[0].id}, .config = {}, .steps = 12}, "/opt/taut");
  EXPECT_EQ(plan.config, scratch / "after.json");
  EXPECT_EQ(plan.trace, scratch / "after.db");
  EXPECT_EQ(plan.command, (std::vector<std::string>{"/opt/taut", "train", plan.config, "--trace", plan.trace,
                                                    "--format", "json", "--nproc", "2", "--steps", "12"}));
  const auto before = document->config, after = config::read_json_file(plan.config);
  const nlohmann::json& patch = finding.suggestions[0].patch;
  for (const auto& [key, value] : patch["data"].items()) EXPECT_EQ(after["data"][key], value) << key;
  EXPECT_EQ(after["model"]["hidden_size"], before["model"]["hidden_size"]);
}

TEST(Rerun, PatchesTheUsersOwnFileWhereOneIsGiven) {
  const Scratch scratch;
  const auto document = stalled_run(scratch, "run.db", /*with_config=*/false);
  const test::TracedRun run;
  auto own = test::traced_config(run, "text.txt");
  own["train_steps"] = 77;
  const std::string path = scratch.write("mine.json", "// my run\n" + own.dump());
  const RerunPlan plan = plan_rerun(
      *document, {.suggestions = {document->analysis().findings.at(0).suggestions[0].id}, .config = path, .steps = 0},
      "taut");
  EXPECT_EQ(plan.config, scratch / "run-after.json");
  EXPECT_EQ(plan.steps, 77);
  EXPECT_EQ(config::read_json_file(plan.config)["data"]["path"], "text.txt");  // lies in the same folder
}

TEST(Rerun, NeverOverwritesAnEarlierRun) {
  const Scratch scratch;
  const auto document = stalled_run(scratch);
  scratch.write("after.db", "an earlier run");
  const RerunPlan plan = plan_rerun(
      *document, {.suggestions = {document->analysis().findings.at(0).suggestions[0].id}, .config = {}, .steps = 0},
      "taut");
  EXPECT_EQ(plan.trace, scratch / "after-2.db");
}

TEST(Rerun, WithoutAConfigOrASuggestionItSaysWhatIsMissing) {
  const Scratch scratch;
  const auto without = stalled_run(scratch, "run.db", /*with_config=*/false);
  const auto& id = without->analysis().findings.at(0).suggestions[0].id;
  if (!without->config.is_object() || without->config.empty()) {
    EXPECT_THROW(plan_rerun(*without, {.suggestions = {id}, .config = {}, .steps = 0}, "taut"), Error);
  }
  EXPECT_THROW(plan_rerun(*without, {.suggestions = {id}, .config = scratch / "no.json", .steps = 0}, "taut"), Error);
  EXPECT_THROW(plan_rerun(*stalled_run(scratch), {.suggestions = {"no-such#1.a"}, .config = {}, .steps = 0}, "taut"),
               Error);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run-after.json"));
}

TEST(Rerun, ReadsStepLinesAndNothingElse) {
  const auto line = parse_step_line(
      R"({"step":7,"loss":4.25,"grad_norm":1,"lr":0.001,"tokens_per_s":1234.5,"step_ms":51.5,"mfu":null})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 7);
  EXPECT_EQ(line->loss, 4.25);
  EXPECT_EQ(line->tokens_per_s, 1234.5);
  EXPECT_EQ(line->step_ms, 51.5);
  for (const char* other : {"", "step 7", "{", R"({"trace":"a.db"})", R"({"step":"7"})", "[1]"})
    EXPECT_FALSE(parse_step_line(other)) << other;
}

}  // namespace
}  // namespace taut::gui
