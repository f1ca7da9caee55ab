#include "analyzer/tune/apply.h"

#include <gtest/gtest.h>

#include "taut.h"

namespace taut::tune {
namespace {

using detect::Finding;
using detect::Severity;
using detect::Suggestion;
using nlohmann::json;

Suggestion suggestion(const std::string& id, const json& patch) {
  Suggestion out;
  out.id = id;
  out.patch = patch;
  out.why = "because of " + id;
  return out;
}

Finding finding(const std::string& id, Severity severity, std::vector<Suggestion> suggestions) {
  Finding out;
  out.id = id;
  out.rule = id.substr(0, id.find('#'));
  out.severity = severity;
  out.suggestions = std::move(suggestions);
  return out;
}

std::vector<Finding> some_findings() {
  return {finding("loader-stall#1", Severity::high,
                  {suggestion("loader-stall#1.a", {{"data", {{"num_workers", 4}, {"prefetch_factor", 4}}}}),
                   suggestion("loader-stall#1.b", {{"data", {{"num_workers", 8}}}})}),
          finding("pipeline-bubble#1", Severity::medium,
                  {suggestion("pipeline-bubble#1.a", {{"parallel", {{"pipeline_schedule", "1f1b"}}}})}),
          finding("redundant-allgather#1", Severity::low,
                  {suggestion("redundant-allgather#1.a", {{"parallel", {{"gather_output", false}}}})}),
          finding("straggler#1", Severity::high, {suggestion("straggler#1.a", json::object())}),
          finding("host-bound#1", Severity::high, {})};
}

std::vector<std::string> ids(const std::vector<Choice>& choices) {
  std::vector<std::string> out;
  for (const auto& choice : choices) out.push_back(choice.suggestion->id);
  return out;
}

/// The error that `work` ends with; a test failure when it does not.
template <class Work>
Error error_of(Work work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error("none");
}

TEST(Choose, TakesTheFirstSuggestionOfWhatIsMediumOrHigh) {
  const auto findings = some_findings();
  EXPECT_EQ(ids(choose(findings, {})), (std::vector<std::string>{"loader-stall#1.a", "pipeline-bubble#1.a"}));
}

TEST(Choose, TakesWhatIsAskedForEvenIfLow) {
  const auto findings = some_findings();
  EXPECT_EQ(ids(choose(findings, {{"redundant-allgather#1"}, {"loader-stall#1.b"}})),
            (std::vector<std::string>{"loader-stall#1.b", "redundant-allgather#1.a"}));
}

TEST(Choose, CountsASuggestionNamedTwiceOnce) {
  const auto findings = some_findings();
  EXPECT_EQ(ids(choose(findings, {{"loader-stall#1"}, {"loader-stall#1.a", "loader-stall#1.a"}})),
            (std::vector<std::string>{"loader-stall#1.a"}));
}

TEST(Choose, ListsTheValidIdsForAnUnknownOne) {
  const auto findings = some_findings();
  const Error unknown = error_of([&] { choose(findings, {{"loader-stal#1"}, {}}); });
  EXPECT_EQ(unknown.exit_code(), 2);
  EXPECT_NE(unknown.hint().find("did you mean loader-stall#1?"), std::string::npos) << unknown.hint();
  EXPECT_NE(unknown.hint().find("pipeline-bubble#1"), std::string::npos) << unknown.hint();
  const Error none = error_of([&] { choose({}, {{}, {"loader-stall#1.a"}}); });
  EXPECT_NE(none.hint().find("none"), std::string::npos) << none.hint();
}

TEST(Choose, RefusesASuggestionThatNoConfigCanCarryOut) {
  const auto findings = some_findings();
  EXPECT_NE(std::string(error_of([&] {
                          choose(findings, {{"straggler#1"}, {}});
                        }).what())
                .find("no change"),
            std::string::npos);
  EXPECT_NE(std::string(error_of([&] {
                          choose(findings, {{"host-bound#1"}, {}});
                        }).what())
                .find("no change"),
            std::string::npos);
}

TEST(Choose, RefusesTwoAlternativesOfOneFinding) {
  const auto findings = some_findings();
  const Error error = error_of([&] { choose(findings, {{}, {"loader-stall#1.a", "loader-stall#1.b"}}); });
  EXPECT_NE(std::string(error.what()).find("alternatives"), std::string::npos) << error.what();
}

TEST(JoinedPatch, MergesPatchesOfDifferentKeys) {
  const auto findings = some_findings();
  EXPECT_EQ(
      joined_patch(choose(findings, {})),
      config::Json::parse(R"({"data":{"num_workers":4,"prefetch_factor":4},"parallel":{"pipeline_schedule":"1f1b"}})"));
}

TEST(JoinedPatch, KeepsKeysThatAreToBeRemoved) {
  const std::vector<Finding> findings{
      finding("a#1", Severity::high, {suggestion("a#1.a", {{"data", {{"num_workers", 2}, {"preload", nullptr}}}})}),
      finding("b#1", Severity::high, {suggestion("b#1.a", {{"seed", nullptr}})})};
  EXPECT_EQ(joined_patch(choose(findings, {})),
            config::Json::parse(R"({"data":{"num_workers":2,"preload":null},"seed":null})"));
}

TEST(JoinedPatch, AgreesWhereTwoFindingsWantTheSame) {
  const std::vector<Finding> findings{
      finding("a#1", Severity::high, {suggestion("a#1.a", {{"data", {{"num_workers", 2}}}})}),
      finding("b#1", Severity::high, {suggestion("b#1.a", {{"data", {{"num_workers", 2}}}, {"seed", 3}})})};
  EXPECT_EQ(joined_patch(choose(findings, {})), config::Json::parse(R"({"data":{"num_workers":2},"seed":3})"));
}

TEST(JoinedPatch, RefusesContradictions) {
  const auto contradiction = [](const json& first, const json& second) {
    const std::vector<Finding> findings{finding("a#1", Severity::high, {suggestion("a#1.a", first)}),
                                        finding("b#1", Severity::high, {suggestion("b#1.a", second)})};
    return error_of([&] { joined_patch(choose(findings, {})); });
  };
  const Error values = contradiction({{"data", {{"num_workers", 2}}}}, {{"data", {{"num_workers", 4}}}});
  EXPECT_NE(std::string(values.what()).find("data.num_workers"), std::string::npos) << values.what();
  EXPECT_NE(std::string(values.what()).find("b#1.a and a#1.a"), std::string::npos) << values.what();
  contradiction({{"data", {{"num_workers", 2}}}}, {{"data", nullptr}});
}

const char* const kWritten = R"({
  "train_micro_batch_size_per_gpu": 4,
  "model": {"hidden_size": 64, "num_layers": 4, "num_attention_heads": 4, "seq_length": 64, "vocab_size": 512},
  "data": {"path": "corpus", "num_workers": 0},
  "train_batch_size": 16, "gradient_accumulation_steps": 4,
  "parallel": {"pipeline_parallel_size": 2}
})";

TEST(PatchConfig, KeepsTheUsersKeysAndTheirOrder) {
  const auto written = config::parse_text(kWritten, "test");
  const auto patched = patch_config(written, config::Json::parse(R"({"data":{"num_workers":4}})"), ".", 2);
  auto expected = written;
  expected["data"]["num_workers"] = 4;
  EXPECT_EQ(patched.dump(), expected.dump()) << "neither defaults nor world_size are filled in";
}

TEST(PatchConfig, RefusesWhatWouldNotTrain) {
  const auto written = config::parse_text(kWritten, "test");
  const auto patch = [&](const char* text, std::optional<int64_t> ranks) {
    return error_of([&] { patch_config(written, config::Json::parse(text), ".", ranks); });
  };
  EXPECT_NE(std::string(patch(R"({"train_micro_batch_size_per_gpu":2})", 2).what()).find("would not be legal"),
            std::string::npos);
  patch(R"({"parallel":{"pipeline_parallel_size":64}})", 64);
  patch(R"({"data":{"num_wrokers":4}})", 2);
  patch(R"({})", 4);  // the batch numbers hold for one data-parallel replica, the trace had two
}

TEST(Disagreements, AreKeysThatTheFileSetsDifferently) {
  const auto traced = config::Json::parse(R"({"data":{"path":"/x/corpus","num_workers":0},"seed":1,"train_steps":20})");
  const auto written =
      config::Json::parse(R"({"data":{"path":"corpus","num_workers":2},"train_steps":9,"gradient_clipping":1.0})");
  EXPECT_EQ(disagreements(traced, written),
            std::vector<std::string>{"data.num_workers: 0 in the trace, 2 in the file"});
  EXPECT_TRUE(disagreements(nullptr, written).empty());
}

}  // namespace
}  // namespace taut::tune
