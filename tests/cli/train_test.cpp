// `taut train` before any rank starts: token files, and what is wrong with the data.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

class Train : public testing::Test {
 protected:
  /// A config beside the data whose `data` section is `data`.
  std::string config(const nlohmann::json& data, int seq_length = 8) {
    const nlohmann::json json{{"model",
                               {{"hidden_size", 16},
                                {"num_layers", 1},
                                {"num_attention_heads", 2},
                                {"seq_length", seq_length},
                                {"vocab_size", 512}}},
                              {"data", data},
                              {"train_batch_size", 1}};
    write_text(folder_ / "config.json", json.dump());
    return folder_ / "config.json";
  }

  TemporaryFolder folder_{"cli-train"};
};

TEST_F(Train, PreparesTokenFilesAndSaysHowToUseThem) {
  std::filesystem::create_directories(folder_ / "texts");
  write_text(folder_ / "texts/a", "first text");
  write_text(folder_ / "texts/b", "and the second");
  const std::string file = config({{"path", "texts"}});
  const Outcome prepared = run_taut({"train", file, "--prepare"});
  ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  const std::string path = folder_ / "texts_byte_text_document";
  EXPECT_NE(prepared.out.find("wrote " + path + ".bin and .idx: 26 tokens of 2 documents in "), std::string::npos)
      << prepared.out;
  EXPECT_NE(prepared.out.find("next:  taut train " + file + " --set data.path=" + path), std::string::npos)
      << prepared.out;
  EXPECT_EQ(std::filesystem::file_size(path + ".bin"), 52u);

  const Outcome json = run_taut({"train", file, "--prepare", "--format", "json"});
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const auto said = nlohmann::json::parse(json.out);
  EXPECT_EQ(said["path"], path);
  EXPECT_EQ(said["tokens"], 26);
  EXPECT_EQ(said["documents"], 2);
  EXPECT_EQ(said["text_bytes"], 24);

  // The path that it names is one that training takes: NAME, without .bin or .idx.
  const Outcome used = run_taut({"train", file, "--set", "data.path=" + path, "--dry-run"});
  EXPECT_EQ(used.exit_code, 0) << used.err;
  const Outcome again = run_taut({"train", file, "--set", "data.path=" + path, "--prepare"});
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_NE(again.err.find("names token files already"), std::string::npos) << again.err;
}

TEST_F(Train, PreparesWithATokenizerThatItTrainsFirst) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the trainer waits for batch " + std::to_string(i * i) + "\n";
  write_text(folder_ / "words.txt", text);
  const Outcome outcome =
      run_taut({"train", config({{"path", "words.txt"}, {"tokenizer", "sentencepiece:my.model"}}), "--prepare"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("note: trained the tokenizer"), std::string::npos) << outcome.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "my.model"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "words_my_text_document.idx"));
}

TEST_F(Train, SaysWhatIsWrongWithTheDataBeforeARankStarts) {
  write_text(folder_ / "short.txt", "abc");
  write_text(folder_ / "bad.gz", "not compressed");
  write_text(folder_ / "t.bin", "12345678");
  write_text(folder_ / "t.idx", "no index");
  std::filesystem::create_directories(folder_ / "empty");
  const auto expect_error = [&](const nlohmann::json& data, const std::string& what, int seq_length = 8) {
    const Outcome outcome = run_taut({"train", config(data, seq_length)});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << outcome.err;
    EXPECT_NE(outcome.err.find(what), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("\nhint: "), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.err.find("rank 0"), std::string::npos) << outcome.err;
  };
  expect_error({{"path", "short.txt"}}, "shorter than one sequence");
  expect_error({{"path", "bad.gz"}}, "is not a gzip file");
  expect_error({{"path", "empty"}}, "holds no text files");
  expect_error({{"path", "t"}}, "t.idx' is damaged or no token index");
  expect_error({{"path", "t.bin"}}, "t.idx' is damaged or no token index");
  expect_error({{"mock", true}, {"num_workers", 256}, {"prefetch_factor", 1024}}, "the data loaders need 2", 1 << 20);
}

}  // namespace
}  // namespace taut::tests
