// Files, overrides, paths, and what is printed is read back.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/config/sample.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

class LoadFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/config-XXXXXX";
    dir_ = fs::path(mkdtemp(name.data())).lexically_normal();
  }
  void TearDown() override { fs::remove_all(dir_); }
  fs::path write(const std::string& name, const std::string& text) {
    fs::create_directories((dir_ / name).parent_path());
    std::ofstream(dir_ / name) << text;
    return dir_ / name;
  }
  fs::path write_config() { return write("run.json", small_config().dump()); }

  fs::path dir_;
};

TEST_F(LoadFile, ReadsAndValidates) {
  const Config config = load_file(write_config());
  EXPECT_EQ(config.model.hidden_size, 64);
  EXPECT_EQ(config.gradient_accumulation_steps, 8);
}

TEST_F(LoadFile, OverridesTakeJsonOrText) {
  const Config config = load_file(
      write_config(), {"data.num_workers=0", "model.activation=gelu", "data.shuffle=false",
                       "parallel.pipeline_layers=[4]", "optimizer.params.lr=1e-3", "data.tokenizer=\"byte\""});
  EXPECT_EQ(config.data.num_workers, 0);
  EXPECT_EQ(config.model.activation, Activation::gelu);
  EXPECT_FALSE(config.data.shuffle);
  EXPECT_EQ(config.parallel.pipeline_layers, std::vector<int64_t>{4});
  EXPECT_DOUBLE_EQ(config.optimizer.params.lr, 1e-3);
}

TEST_F(LoadFile, WrongOverridesAreUsageErrors) {
  const auto path = write_config();
  for (const char* wrong : {"data.num_workers", "=4", "data..num_workers=4", "train_batch_size.x=1"}) {
    const Error error = error_of([&] { load_file(path, {wrong}); });
    EXPECT_PRED2(contains, error.what(), wrong) << error.what();
  }
  EXPECT_EQ(error_of([&] { load_file(path, {"nonsense"}); }).exit_code(), 2);
  EXPECT_PRED2(contains, error_of([&] { load_file(path, {"data.num_wokers=4"}); }).hint(), "data.num_workers");
}

TEST_F(LoadFile, WorldSizeAndStepsComeFromTheCommandLine) {
  const Config config = load_file(write_config(), {}, 4, 3);
  EXPECT_EQ(config.world_size, 4);
  EXPECT_EQ(config.train_steps, 3);
  EXPECT_EQ(config.gradient_accumulation_steps, 2);
}

TEST_F(LoadFile, AShortenedRunKeepsTheLearningRatesOfTheFullOne) {
  const Config config = load_file(write_config(), {"train_steps=50", "scheduler.type=WarmupCosineLR"}, {}, 3);
  EXPECT_EQ(config.scheduler.params.total_num_steps, 50);
}

TEST_F(LoadFile, NamesTheFileInErrors) {
  const auto path = write("bad.json", "{\"seeds\": 1}");
  EXPECT_PRED2(contains, error_of([&] { load_file(path); }).what(), "bad.json");
}

TEST_F(LoadFile, MissingFilesFoldersAndTracesAreRefused) {
  EXPECT_PRED2(contains, error_of([&] { load_file(dir_ / "none.json"); }).what(), "there is no config");
  EXPECT_PRED2(contains, error_of([&] { load_file(dir_); }).what(), "is a folder");
  const auto trace = write("run.db", std::string("SQLite format 3\0", 16) + "…");
  EXPECT_PRED2(contains, error_of([&] { load_file(trace); }).what(), "is a trace");
}

TEST_F(LoadFile, DataMustExist) {
  const auto path = write_config();
  const std::vector<std::string> overrides{"data.mock=false", "data.path=texts"};
  EXPECT_PRED2(contains, error_of([&] { load_file(path, overrides); }).what(),
               "data.path " + (dir_ / "texts").string() + " does not exist");
  write("texts/a.txt", "hello");
  EXPECT_EQ(load_file(path, overrides).data.path, (dir_ / "texts").string());
}

TEST_F(LoadFile, PathsAreRelativeToTheConfigsFolder) {
  write("texts/a.txt", "hello");
  const auto path = write("configs/run.json", merge_patch(small_config(), Json::parse(R"({
    "data": {"mock": false, "path": "../texts", "tokenizer": "sentencepiece:tok/en.model"}, "checkpoint": {"dir": "ckpt"}})"))
                                                  .dump());
  const Config config = load_file(path);
  EXPECT_EQ(config.data.path, (dir_ / "texts").string());
  EXPECT_EQ(tokenizer_file(config), (dir_ / "configs/tok/en.model").string());
  EXPECT_EQ(config.checkpoint.dir, (dir_ / "configs/ckpt").string());
}

TEST(EffectiveConfig, RoundTrips) {
  const Config config = load_patched(R"({
    "data": {"path": "/data/x", "mock": false, "tokenizer": "sentencepiece:/t/en.model", "read_latency_ms": 1.5},
    "optimizer": {"params": {"lr": 1e-3, "betas": [0.8, 0.9]}}, "communication": {"bucket_size_mb": "auto"},
    "parallel": {"pipeline_parallel_size": 2, "pipeline_layers": [3, 1], "pipeline_schedule": "gpipe"},
    "trace": {"steps": [2, 20]}, "bf16": {"enabled": true}, "model": {"moe_capacity_factor": 1.25}})");
  const Json json = to_json(config);
  Config again = from_json(json, "/elsewhere");
  EXPECT_EQ(to_json(again), json);
  validate(again);
  EXPECT_EQ(to_json(again), json);
  EXPECT_EQ(json["communication"]["bucket_size_mb"], "auto");
  EXPECT_EQ(json["parallel"]["pipeline_layers"], Json::parse("[3, 1]"));
  EXPECT_EQ(json["gradient_accumulation_steps"], 8);
}

TEST(EffectiveConfig, HasEveryDefault) {
  const Json json = to_json(load_patched("{}"));
  EXPECT_EQ(json["model"]["normalization"], "rmsnorm");
  EXPECT_EQ(json["data"]["num_workers"], 4);
  EXPECT_EQ(json["elastic"]["max_restarts"], 3);
  EXPECT_TRUE(json["trace"]["steps"].is_null());
  EXPECT_EQ(json["scheduler"]["type"], "constant");
  EXPECT_EQ(
      to_json(load_patched(R"({"scheduler": {"type": "WarmupCosineLR"}})"))["scheduler"]["params"]["total_num_steps"],
      100);
}

}  // namespace
}  // namespace taut::config
