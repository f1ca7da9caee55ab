// What is in a batch, against the text itself. Inline: no processes.
#include "runtime/data/batch.h"

#include <algorithm>
#include <set>

#include "runtime/data/recipe.h"
#include "runtime/data/tokenizer.h"
#include "tests/data/fixture.h"

namespace taut::data {
namespace {

/// The endless token string of a byte corpus: every document, 256 after each, over and over.
std::vector<int64_t> token_string(const std::vector<std::string>& documents, size_t count) {
  std::vector<int64_t> tokens;
  while (tokens.size() < count) {
    for (const std::string& document : documents) {
      for (const char byte : document) tokens.push_back(static_cast<uint8_t>(byte));
      tokens.push_back(256);
    }
  }
  return tokens;
}

TEST(Batch, HoldsTheBytesOfTheFileInOrder) {
  const Folder folder;
  const std::string text = prose(16 * 24, 5);
  config::Config config = small_config(folder.write("a", text));
  config.data.num_workers = 0;
  config.data.shuffle = false;
  int64_t sample = 0;
  for (const Kept& batch : all_batches(config)) {
    ASSERT_EQ(batch.tokens.size(), 2u * 17);
    for (int64_t row = 0; row < 2; ++row, ++sample) {
      for (int64_t column = 0; column < 17; ++column) {
        const size_t at = static_cast<size_t>(sample * 16 + column);
        const int64_t expected = at < text.size() ? static_cast<uint8_t>(text[at]) : 256;
        ASSERT_EQ(batch.tokens[static_cast<size_t>(row * 17 + column)], expected) << "sample " << sample;
      }
    }
  }
  EXPECT_EQ(sample, 24);
}

TEST(Batch, SeparatesDocumentsAndGoesRoundAtTheEnd) {
  const Folder folder;
  folder.write("a", "one");
  folder.write("b", "2");
  folder.write("c", "three and more");
  config::Config config = small_config(folder.path().string());
  config.data.num_workers = 0;
  config.data.shuffle = false;
  const Kept batch = all_batches(config).front();
  // 18 bytes, stride 16: one sample an epoch, from byte 0 on.
  const std::vector<int64_t> expected = token_string({"one", "2", "three and more"}, 17);
  for (size_t column = 0; column < 17; ++column) EXPECT_EQ(batch.tokens[column], expected[column]);
}

TEST(Batch, RefusesDataThatAreShorterThanASequence) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", "xyz and so on. "));  // 15 bytes and the end of the document
  config.data.num_workers = 0;
  const std::string error = error_of([&] { all_batches(config); });
  expect_contains(error, "shorter than one sequence: data.path '" + config.data.path + "' holds 16 tokens");
  expect_contains(error, "needs 17 | set model.seq_length to 15 or less");
  folder.write("a", "xyz and so on .. ");
  EXPECT_EQ(all_batches(config).front().tokens.size(), 2u * 17);
}

TEST(Batch, ShowsEverySampleOnceAnEpoch) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(16 * 24, 5).substr(0, 16 * 24)));
  config.data.num_workers = 0;
  std::set<std::vector<int64_t>> rows;
  for (const Kept& batch : all_batches(config)) {
    rows.emplace(batch.tokens.begin(), batch.tokens.begin() + 17);
    rows.emplace(batch.tokens.begin() + 17, batch.tokens.end());
  }
  EXPECT_EQ(rows.size(), 24u);  // 3 steps × 4 microbatches × 2 rows = one epoch
}

TEST(Batch, TokenizesTheTextAtTheSamplesOffset) {
  const Folder folder;
  const std::string text = prose(40'000, 9);
  config::Config config = small_config(folder.write("a", text));
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "m.model").string();
  config.data.num_workers = 0;
  config.data.shuffle = false;
  ensure_tokenizer(config);
  const Tokenizer tokenizer(config.data.tokenizer);
  const uint64_t stride = make_recipe(config, open_source(config)).stride_bytes;
  // The stride is meant to be the text that seq_length tokens take on average.
  std::vector<int64_t> all;
  tokenizer.encode(text, all);
  EXPECT_NEAR(static_cast<double>(stride), 16.0 * static_cast<double>(text.size()) / static_cast<double>(all.size()),
              0.05 * static_cast<double>(stride) + 1);
  uint64_t sample = 0;
  for (const Kept& batch : all_batches(config)) {
    for (size_t row = 0; row < 2; ++row, ++sample) {
      uint64_t offset = sample * stride;
      while ((static_cast<uint8_t>(text[offset]) & 0xc0) == 0x80) ++offset;
      std::vector<int64_t> expected;
      tokenizer.encode(text.substr(offset, 400), expected);
      const auto begin = batch.tokens.begin() + static_cast<int64_t>(row * 17);
      // The last tokens may depend on where the window was cut, the others may not.
      ASSERT_TRUE(std::equal(begin, begin + 14, expected.begin())) << "sample " << sample;
    }
  }
}

TEST(Batch, ReadsMoreWhereTokensAreLong) {
  const Folder folder;
  // Trained on short words, then given a text in which a token covers up to 16 bytes.
  std::string text = prose(30'000, 2);
  for (int i = 0; i < 3000; ++i) text += "waits waits waits ";
  config::Config config = small_config(folder.write("a", text));
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "m.model").string();
  config.data.num_workers = 0;
  config.train_steps = 50;
  ensure_tokenizer(config);
  const int64_t vocabulary = Tokenizer(config.data.tokenizer).vocabulary();
  for (const Kept& batch : all_batches(config)) {
    for (const int64_t id : batch.tokens) ASSERT_TRUE(id >= 0 && id < vocabulary);
  }
}

TEST(Batch, GeneratesTokensWithoutDataInAMock) {
  config::Config config = small_config("/no/such/path");
  config.data.mock = true;
  config.data.tokenizer = "sentencepiece:/no/such/model";
  config.data.num_workers = 0;
  config.model.vocab_size = 11;
  config.train_steps = 20;
  const auto batches = all_batches(config);
  EXPECT_EQ(batches, all_batches(config));
  std::set<int64_t> ids;
  std::set<uint64_t> hashes;
  for (const Kept& batch : batches) {
    ids.insert(batch.tokens.begin(), batch.tokens.end());
    hashes.insert(batch.sample_hash);
  }
  EXPECT_EQ(ids.size(), 11u);
  EXPECT_EQ(*ids.rbegin(), 10);
  EXPECT_EQ(hashes.size(), batches.size());
}

TEST(SampleHash, IsEqualExactlyWhenTokensAre) {
  const std::vector<int64_t> tokens{1, 2, 3, 4};
  EXPECT_EQ(sample_hash(tokens), sample_hash(std::vector<int64_t>{1, 2, 3, 4}));
  std::set<uint64_t> hashes{sample_hash(tokens), sample_hash({}), sample_hash(std::vector<int64_t>{0})};
  hashes.insert(sample_hash(std::vector<int64_t>{2, 1, 3, 4}));
  hashes.insert(sample_hash(std::vector<int64_t>{1, 2, 3}));
  hashes.insert(sample_hash(std::vector<int64_t>{1, 2, 3, 4, 0}));
  hashes.insert(sample_hash(std::vector<int64_t>{0, 0}));
  EXPECT_EQ(hashes.size(), 7u);
  for (int64_t i = 0; i < 50'000; ++i) hashes.insert(sample_hash(std::vector<int64_t>{i / 300, i % 300, 5}));
  EXPECT_EQ(hashes.size(), 50'007u);
}

}  // namespace
}  // namespace taut::data
