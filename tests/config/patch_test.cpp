// Merge patches, differences, and configs that move between folders.
#include <unistd.h>

#include <filesystem>

#include "tests/config/sample.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

// RFC 7386, appendix A: original, patch, result.
constexpr const char* kRfcExamples[][3] = {
    {R"({"a":"b"})", R"({"a":"c"})", R"({"a":"c"})"},
    {R"({"a":"b"})", R"({"b":"c"})", R"({"a":"b","b":"c"})"},
    {R"({"a":"b"})", R"({"a":null})", R"({})"},
    {R"({"a":"b","b":"c"})", R"({"a":null})", R"({"b":"c"})"},
    {R"({"a":["b"]})", R"({"a":"c"})", R"({"a":"c"})"},
    {R"({"a":"c"})", R"({"a":["b"]})", R"({"a":["b"]})"},
    {R"({"a":{"b":"c"}})", R"({"a":{"b":"d","c":null}})", R"({"a":{"b":"d"}})"},
    {R"({"a":[{"b":"c"}]})", R"({"a":[1]})", R"({"a":[1]})"},
    {R"(["a","b"])", R"(["c","d"])", R"(["c","d"])"},
    {R"({"a":"b"})", R"(["c"])", R"(["c"])"},
    {R"({"a":"foo"})", R"(null)", R"(null)"},
    {R"({"a":"foo"})", R"("bar")", R"("bar")"},
    {R"({"e":null})", R"({"a":1})", R"({"e":null,"a":1})"},
    {R"([1,2])", R"({"a":"b","c":null})", R"({"a":"b"})"},
    {R"({})", R"({"a":{"bb":{"ccc":null}}})", R"({"a":{"bb":{}}})"},
};

TEST(MergePatch, MatchesTheRfc) {
  for (const auto& [original, patch, result] : kRfcExamples) {
    EXPECT_EQ(merge_patch(Json::parse(original), Json::parse(patch)).dump(), result) << original << " + " << patch;
  }
}

TEST(Diff, ListsChangedNewAndRemovedKeys) {
  const Json before =
      Json::parse(R"({"seed": 1, "data": {"num_workers": 0, "shuffle": true}, "bf16": {"enabled": true}})");
  const Json after = Json::parse(
      R"({"seed": 1, "data": {"num_workers": 4, "shuffle": true, "prefetch_factor": 2}, "trace": {"steps": [1, 2]}})");
  EXPECT_EQ(diff_text(before, after),
            "data.num_workers: 0 -> 4\n"
            "data.prefetch_factor: (not set) -> 2\n"
            "bf16.enabled: true -> (not set)\n"
            "trace.steps: (not set) -> [1,2]\n");
  EXPECT_TRUE(diff(before, before).empty());
}

class WriteConfig : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/patch-XXXXXX";
    dir_ = mkdtemp(name.data());
    fs::create_directories(dir_ / "in");
    fs::create_directories(dir_ / "out/deep");
  }
  void TearDown() override { fs::remove_all(dir_); }
  size_t files_in(const fs::path& folder) {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path dir_;
};

TEST_F(WriteConfig, RewritesRelativePathsForTheNewFolder) {
  const Json json = Json::parse(
      R"({"data": {"path": "../texts", "tokenizer": "sentencepiece:en.model"}, "checkpoint": {"dir": "ckpt"}})");
  write_config_file(json, dir_ / "in", dir_ / "out/deep/new.json");
  const Json written = read_json_file(dir_ / "out/deep/new.json");
  EXPECT_EQ(written["data"]["path"], "../../texts");
  EXPECT_EQ(written["data"]["tokenizer"], "sentencepiece:../../in/en.model");
  EXPECT_EQ(written["checkpoint"]["dir"], "../../in/ckpt");
}

TEST_F(WriteConfig, LeavesAbsolutePathsAndTheSameFolderAlone) {
  const Json json = Json::parse(R"({"data": {"path": "/texts", "tokenizer": "byte"}, "checkpoint": {"dir": ""}})");
  write_config_file(json, dir_ / "in", dir_ / "out/new.json");
  EXPECT_EQ(read_json_file(dir_ / "out/new.json"), json);
  const Json relative = Json::parse(R"({"data": {"path": "./texts"}})");
  write_config_file(relative, dir_ / "in", dir_ / "in/new.json");
  EXPECT_EQ(read_json_file(dir_ / "in/new.json"), relative);
}

TEST_F(WriteConfig, LeavesNothingBehindWhenItFails) {
  const Json json = Json::object();
  EXPECT_THROW(write_config_file(json, dir_, dir_ / "none/new.json"), Error);
  fs::create_directories(dir_ / "out/folder.json");
  EXPECT_THROW(write_config_file(json, dir_, dir_ / "out/folder.json"), Error);
  EXPECT_EQ(files_in(dir_ / "out"), 2u);  // deep, folder.json
}

TEST_F(WriteConfig, ReplacesAnExistingFileWhole) {
  write_config_file(Json{{"seed", 1}}, dir_, dir_ / "out/new.json");
  write_config_file(Json{{"seed", 2}}, dir_, dir_ / "out/new.json");
  EXPECT_EQ(read_json_file(dir_ / "out/new.json")["seed"], 2);
  EXPECT_EQ(files_in(dir_ / "out"), 2u);  // deep, new.json
}

}  // namespace
}  // namespace taut::config
