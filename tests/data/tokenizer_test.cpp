#include "runtime/data/tokenizer.h"

#include <sentencepiece_processor.h>

#include <filesystem>

#include "tests/data/fixture.h"

namespace taut::data {
namespace {

config::Config sentencepiece_config(const Folder& folder, int64_t vocab_size) {
  config::Config config = small_config(folder.write("text/a", prose(60'000, 1)));
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "tokens.model").string();
  config.model.vocab_size = vocab_size;
  return config;
}

TEST(Tokenizer, BytesAreTheirOwnIds) {
  const Tokenizer tokenizer("byte");
  std::vector<int64_t> ids{7};
  tokenizer.encode("a\xff\n", ids);
  EXPECT_EQ(ids, (std::vector<int64_t>{7, 97, 255, 10}));
  EXPECT_EQ(tokenizer.end_of_document(), 256);
  EXPECT_EQ(tokenizer.vocabulary(), 257);
}

TEST(Tokenizer, TrainsAMissingModelOnceAndTheSameEveryTime) {
  const Folder folder, other;
  const config::Config config = sentencepiece_config(folder, 512), again = sentencepiece_config(other, 512);
  EXPECT_TRUE(ensure_tokenizer(config));
  EXPECT_FALSE(ensure_tokenizer(config));
  EXPECT_TRUE(ensure_tokenizer(again));
  EXPECT_EQ(read_file(folder.path() / "tokens.model"), read_file(other.path() / "tokens.model"));
  // Nothing but the model is left in the folder.
  const auto files = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 2);
}

TEST(Tokenizer, EncodesAsTheLibraryDoesAndLosesNothing) {
  const Folder folder;
  const config::Config config = sentencepiece_config(folder, 400);
  ensure_tokenizer(config);
  const Tokenizer tokenizer(config.data.tokenizer);
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load((folder.path() / "tokens.model").string()).ok());
  EXPECT_LE(tokenizer.vocabulary(), 400);
  EXPECT_EQ(tokenizer.vocabulary(), library.GetPieceSize());
  EXPECT_EQ(tokenizer.end_of_document(), library.eos_id());
  for (const std::string text : {"the loader waits", "  two  spaces\nand a line\n", "naïve € \U0001F600 漢", "\t"}) {
    std::vector<int64_t> ids;
    tokenizer.encode(text, ids);
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(text, &expected).ok());
    EXPECT_EQ(std::vector<int>(ids.begin(), ids.end()), expected);
    std::string back;
    ASSERT_TRUE(library.Decode(expected, &back).ok());
    EXPECT_EQ(back, text);
  }
}

TEST(Tokenizer, ChecksTheVocabularyAgainstTheModel) {
  const Folder folder;
  config::Config config = sentencepiece_config(folder, 400);
  ensure_tokenizer(config);
  config.model.vocab_size = 300;
  expect_contains(error_of([&] { ensure_tokenizer(config); }),
                  "ids, but model.vocab_size is 300 | set model.vocab_size to");
  config.data.tokenizer = "byte";
  config.model.vocab_size = 256;
  expect_contains(error_of([&] { ensure_tokenizer(config); }),
                  "the tokenizer has 257 ids, but model.vocab_size is 256");
  config.data.mock = true;
  EXPECT_FALSE(ensure_tokenizer(config));
}

TEST(Tokenizer, SaysThatAVocabularyIsTooSmallToTrain) {
  const Folder folder;
  const std::string error = error_of([&] { ensure_tokenizer(sentencepiece_config(folder, 100)); });
  expect_contains(error, "cannot train a SentencePiece tokenizer with 100 ids");
  expect_contains(error, "512 or more");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "tokens.model"));
}

TEST(Tokenizer, SaysWhatIsWrongWithTheModelFile) {
  const Folder folder;
  const std::string file = folder.write("bad.model", "this is no model");
  expect_contains(error_of([&] { Tokenizer("sentencepiece:" + file); }), "cannot load the tokenizer model");
  expect_contains(error_of([&] { Tokenizer("sentencepiece:" + file + "x"); }), "does not exist");
  expect_contains(error_of([&] { Tokenizer("bpe"); }), "data.tokenizer is 'bpe'");
  config::Config config = sentencepiece_config(folder, 512);
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "no/such/folder/a.model").string();
  expect_contains(error_of([&] { ensure_tokenizer(config); }), "cannot write the tokenizer model");
}

}  // namespace
}  // namespace taut::data
