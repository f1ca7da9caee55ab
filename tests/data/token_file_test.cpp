#include "runtime/data/token_file.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "runtime/data/source.h"
#include "tests/data/fixture.h"
#include "tests/data/token_bytes.h"

namespace taut::data {
namespace {

std::vector<int64_t> stream(const TokenFile& file) {
  std::vector<int64_t> tokens(file.tokens());
  file.read(0, tokens);
  return tokens;
}

/// A pair of files, opened.
TokenFile open(const Folder& folder, const std::string& bin, const std::string& idx) {
  folder.write("t.bin", bin);
  folder.write("t.idx", idx);
  return TokenFile::open(folder.path() / "t");
}

TEST(TokenFile, ReadsTwoDocumentsOfThreeSequences) {
  const Folder folder;
  const TokenFile file =
      open(folder, packed<uint16_t>({10, 11, 9, 65535, 9, 12}), index_bytes(8, {3, 2, 1}, {0, 6, 10}, {0, 2, 3}));
  EXPECT_EQ(stream(file), (std::vector<int64_t>{10, 11, 9, 65535, 9, 12}));
  EXPECT_EQ(file.layout().documents, 2u);
  EXPECT_EQ(file.layout().runs.size(), 1u);
  EXPECT_EQ(file.layout().end_of_document, -1);  // one ends with 9, the other with 12
  std::vector<int64_t> part(3);
  file.read(2, part);
  EXPECT_EQ(part, (std::vector<int64_t>{9, 65535, 9}));
}

TEST(TokenFile, ReadsEveryIntegerType) {
  const Folder folder;
  const auto read = [&](uint8_t code, const std::string& bin) {
    const auto bytes = static_cast<int64_t>(bin.size() / 2);
    return stream(open(folder, bin, index_bytes(code, {1, 1}, {0, bytes}, {0, 2})));
  };
  EXPECT_EQ(read(1, packed<uint8_t>({200, 7})), (std::vector<int64_t>{200, 7}));
  EXPECT_EQ(read(2, packed<int8_t>({-3, 7})), (std::vector<int64_t>{-3, 7}));
  EXPECT_EQ(read(3, packed<int16_t>({-300, 7})), (std::vector<int64_t>{-300, 7}));
  EXPECT_EQ(read(4, packed<int32_t>({100'000, 7})), (std::vector<int64_t>{100'000, 7}));
  EXPECT_EQ(read(5, packed<int64_t>({int64_t{1} << 40, 7})), (std::vector<int64_t>{int64_t{1} << 40, 7}));
  EXPECT_EQ(read(8, packed<uint16_t>({50'000, 7})), (std::vector<int64_t>{50'000, 7}));
  expect_contains(error_of([&] { read(7, packed<float>({1, 2})); }), "floating-point numbers (type code 7)");
}

TEST(TokenFile, FollowsTheIndexWhateverTheOrderInTheFile) {
  const Folder folder;
  // A gap of an odd number of bytes, an empty sequence, the later half first, a byte order that no alignment helps.
  const std::string bin = std::string("x") + packed<int32_t>({4, 5, 6}) + "yz" + packed<int32_t>({1, 2, 3});
  const TokenFile file = open(folder, bin, index_bytes(4, {2, 0, 1, 3}, {15, 3, 23, 1}, {0, 1, 1, 4}));
  EXPECT_EQ(stream(file), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(file.layout().runs.size(), 2u);
  std::vector<int64_t> across(4);
  file.read(1, across);
  EXPECT_EQ(across, (std::vector<int64_t>{2, 3, 4, 5}));
}

TEST(TokenFile, ReadsAnIndexWithSequenceModesOrWithoutTheLastBoundary) {
  const Folder folder;
  const std::string bin = packed<uint16_t>({1, 2, 3});
  EXPECT_EQ(stream(open(folder, bin, index_bytes(8, {1, 2}, {0, 2}, {0, 2}) + std::string(2, '\0'))).size(), 3u);
  EXPECT_EQ(stream(open(folder, bin, index_bytes(8, {3}, {0}, {0}))).size(), 3u);
}

TEST(TokenFile, KnowsWhatEndsEveryDocument) {
  const Folder folder;
  std::vector<uint16_t> tokens;
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers, documents{0};
  for (int i = 0; i < 5000; ++i) {
    pointers.push_back(static_cast<int64_t>(tokens.size() * 2));
    lengths.push_back(2 + i % 3);
    for (int j = 0; j < 1 + i % 3; ++j) tokens.push_back(static_cast<uint16_t>(i % 777));
    tokens.push_back(999);
    documents.push_back(i + 1);
  }
  const TokenFile file = open(folder, packed(tokens), index_bytes(8, lengths, pointers, documents));
  EXPECT_EQ(file.layout().end_of_document, 999);
  EXPECT_EQ(file.layout().documents, 5000u);
  config::Config config = small_config((folder.path() / "t").string());
  EXPECT_EQ(end_of_document(config), 999);
  config.data.path = folder.write("a", "text");
  EXPECT_EQ(end_of_document(config), 256);
  config.data.mock = true;
  EXPECT_EQ(end_of_document(config), -1);
}

TEST(TokenFile, SaysThatNoTokenEndsDocuments) {
  const Folder folder;
  open(folder, packed<uint16_t>({1, 2, 3, 4}), index_bytes(8, {2, 2}, {0, 4}, {0, 1, 2}));
  const config::Config config = small_config((folder.path() / "t").string());
  expect_contains(error_of([&] { end_of_document(config); }), "t.bin' end with different tokens");
}

TEST(TokenFile, IsNamedByEitherFileOrTheirCommonName) {
  const Folder folder;
  open(folder, packed<uint16_t>({1}), index_bytes(8, {1}, {0}, {0, 1}));
  const std::filesystem::path name = folder.path() / "t";
  EXPECT_EQ(token_file_prefix(name), name);
  EXPECT_EQ(token_file_prefix(name.string() + ".bin"), name);
  EXPECT_EQ(token_file_prefix(name.string() + ".idx"), name);
  folder.write("t", "text of that very name");
  EXPECT_EQ(token_file_prefix(name), std::nullopt);
  EXPECT_EQ(token_file_prefix(folder.path()), std::nullopt);
  EXPECT_EQ(token_file_prefix(folder.path() / "nothing"), std::nullopt);
}

// Everything that a number in the index could claim.
TEST(TokenFile, RefusesDamagedFiles) {
  const Folder folder;
  const std::string bin = packed<uint16_t>({1, 2, 3, 4}), good = index_bytes(8, {2, 2}, {0, 4}, {0, 1, 2});
  EXPECT_EQ(stream(open(folder, bin, good)).size(), 4u);
  const auto refuse = [&](const std::string& idx, const std::string& why) {
    const std::string error = error_of([&] { open(folder, bin, idx); });
    expect_contains(error, why);
    expect_contains(error, "t.idx'");
  };
  const auto with = [&](size_t at, const std::string& bytes) {
    return std::string(good).replace(at, bytes.size(), bytes);
  };
  for (size_t bytes = 1; bytes < good.size(); ++bytes) refuse(good.substr(0, bytes), "is damaged or no token index");
  refuse("", "is empty");
  refuse(with(0, "TNTIDX"), "does not begin with MMIDIDX");
  refuse(with(9, packed<uint64_t>({2})), "its version is 2");
  refuse(with(17, packed<uint8_t>({9})), "its type code is 9");
  refuse(with(17, packed<uint8_t>({0})), "its type code is 0");
  for (const uint64_t many : {uint64_t{3}, uint64_t{1} << 61, ~uint64_t{0}}) {
    refuse(with(18, packed<uint64_t>({many})), "more than its");
    refuse(with(26, packed<uint64_t>({many + 1})), many == ~uint64_t{0} ? "bytes follow" : "more than its");
  }
  refuse(good + "x", "1 bytes follow");
  refuse(with(34, packed<int32_t>({-1})), "sequence 0 has -1 tokens");
  refuse(with(34, packed<int32_t>({5})), "do not belong together: sequence 0 covers 10 bytes from 0 on");
  refuse(with(42, packed<int64_t>({-2})), "sequence 0 covers 4 bytes from -2 on");
  refuse(with(50, packed<int64_t>({6})), "sequence 1 covers 4 bytes from 6 on, but the .bin has 8");
  refuse(with(50, packed<int64_t>({std::numeric_limits<int64_t>::max()})), "sequence 1 covers");
  refuse(with(66, packed<int64_t>({3})), "document boundary 1 is sequence 3");
  refuse(with(66, packed<int64_t>({-1})), "document boundary 1 is sequence -1");
  refuse(with(74, packed<int64_t>({0})), "document boundary 2 is sequence 0, after 1");
  refuse(index_bytes(8, {0}, {0}, {0, 1}), "holds no tokens");
  refuse(index_bytes(8, {}, {}, {}), "holds no tokens");
  std::filesystem::remove(folder.path() / "t.idx");
  expect_contains(error_of([&] { TokenFile::open(folder.path() / "t"); }),
                  "cannot read '" + (folder.path() / "t.idx").string());
  std::filesystem::remove(folder.path() / "t.bin");
  expect_contains(error_of([&] { TokenFile::open(folder.path() / "t"); }), "a pair, NAME.bin and NAME.idx");
}

TEST(TokenFile, NoticesThatItBecameShorter) {
  const Folder folder;
  const TokenFile file = open(folder, packed<uint16_t>({1, 2, 3, 4}), index_bytes(8, {4}, {0}, {0, 1}));
  std::filesystem::resize_file(folder.path() / "t.bin", 2);
  expect_contains(error_of([&] { stream(file); }), "t.bin' became shorter");
}

/// 2000 documents of 1 to 40 tokens; document d's token k is (7 d + k) mod 500, and 511 ends it.
std::vector<int64_t> write_documents(const Folder& folder) {
  std::vector<uint16_t> tokens;
  std::vector<int32_t> lengths;
  std::vector<int64_t> pointers, documents{0};
  for (int d = 0; d < 2000; ++d) {
    pointers.push_back(static_cast<int64_t>(tokens.size() * 2));
    const int length = 1 + d * 13 % 40;
    for (int k = 0; k + 1 < length; ++k) tokens.push_back(static_cast<uint16_t>((7 * d + k) % 500));
    tokens.push_back(511);
    lengths.push_back(length);
    documents.push_back(d + 1);
  }
  folder.write("t.bin", packed(tokens));
  folder.write("t.idx", index_bytes(8, lengths, pointers, documents));
  return {tokens.begin(), tokens.end()};
}

TEST(TokenSource, MakesSampleIOfTheTokensFromITimesSequenceLengthOn) {
  const Folder folder;
  const std::vector<int64_t> tokens = write_documents(folder);
  config::Config config = small_config((folder.path() / "t.bin").string());
  config.data.num_workers = 0;
  config.data.shuffle = false;
  const int64_t samples = (static_cast<int64_t>(tokens.size()) - 1) / 16;
  config.train_steps = samples / 8 + 2;  // over the end of the first epoch
  int64_t sample = 0;
  for (const Kept& batch : all_batches(config)) {
    for (int64_t row = 0; row < 2; ++row, ++sample) {
      const auto begin = tokens.begin() + sample % samples * 16;
      ASSERT_TRUE(std::equal(begin, begin + 17, batch.tokens.begin() + row * 17)) << "sample " << sample;
    }
  }
  EXPECT_GT(sample, samples);
}

TEST(TokenSource, GivesTheSameTokensHoweverTheyAreMade) {
  const Folder folder;
  write_documents(folder);
  config::Config config = small_config((folder.path() / "t").string());
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  for (const bool preload : {false, true}) {
    for (const bool shared_memory : {true, false}) {
      for (const int64_t workers : {0, 1, 3}) {
        config.data.preload = preload;
        config.data.num_workers = workers;
        config.data.shared_memory = shared_memory;
        EXPECT_EQ(all_batches(config), expected) << workers << " workers, shared memory " << shared_memory;
      }
    }
  }
  EXPECT_EQ(all_batches(config, 0, 2), std::vector<Kept>(expected.begin() + 8, expected.end()));
}

TEST(TokenSource, GivesRanksDisjointShardsOfOneGlobalBatch) {
  const Folder folder;
  write_documents(folder);
  const std::string path = (folder.path() / "t").string();
  std::vector<std::vector<int64_t>> alone, shared;
  const auto add_rows = [](const Kept& batch, std::vector<std::vector<int64_t>>& rows) {
    for (int64_t row = 0; row < 2; ++row)
      rows.emplace_back(batch.tokens.begin() + row * 17, batch.tokens.begin() + row * 17 + 17);
  };
  for (const Kept& batch : all_batches(small_config(path, 1, 8))) add_rows(batch, alone);
  for (int64_t rank = 0; rank < 4; ++rank) {
    for (const Kept& batch : all_batches(small_config(path, 4, 2), rank)) add_rows(batch, shared);
  }
  std::sort(alone.begin(), alone.end());
  std::sort(shared.begin(), shared.end());
  EXPECT_EQ(alone, shared);
  EXPECT_EQ(std::adjacent_find(shared.begin(), shared.end()), shared.end());
}

TEST(TokenSource, SaysThatTheFileDoesNotFitTheModel) {
  const Folder folder;
  const std::vector<int64_t> tokens = write_documents(folder);
  config::Config config = small_config((folder.path() / "t").string());
  config.model.vocab_size = 511;
  const auto position = std::to_string(std::find(tokens.begin(), tokens.end(), 511) - tokens.begin());
  const std::string error = error_of([&] { Loader(config, {}); });
  expect_contains(error, "t.bin' holds the token id 511 at position " + position + ", but model.vocab_size is 511");
  expect_contains(error, "written with another tokenizer");
  // A wrong id that the first look misses is found when it is read.
  std::vector<uint16_t> large(4 << 20, 3);
  large[100'000] = 9'999;
  folder.write("t.bin", packed(large));
  folder.write("t.idx", index_bytes(8, {4 << 20}, {0}, {0, 1}));
  config.data.shuffle = false;
  config.model.seq_length = 60'000;
  for (const int64_t workers : {0, 1}) {
    config.data.num_workers = workers;
    expect_contains(error_of([&] { all_batches(config); }), "holds the token id 9999 at position 100000");
  }
}

TEST(TokenSource, RefusesAFileThatIsShorterThanASequence) {
  const Folder folder;
  folder.write("t.bin", packed<uint16_t>(std::vector<uint16_t>(16, 1)));
  folder.write("t.idx", index_bytes(8, {16}, {0}, {0, 1}));
  const config::Config config = small_config((folder.path() / "t").string());
  expect_contains(error_of([&] { Loader(config, {}); }),
                  "holds 16 tokens, model.seq_length 16 needs 17 | set model.seq");
}

}  // namespace
}  // namespace taut::data
