#include "runtime/data/check.h"

#include <filesystem>

#include "runtime/data/loader.h"
#include "runtime/data/preload.h"
#include "runtime/data/prepare.h"
#include "tests/data/fixture.h"
#include "tests/data/token_bytes.h"

namespace taut::data {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(CheckData, AcceptsGoodDataSilently) {
  const Folder folder;
  EXPECT_TRUE(check_data(small_config(folder.write("a", prose(3'000, 1)))).empty());
}

TEST(CheckData, FindsWhatWouldEndEveryRank) {
  const Folder folder;
  config::Config config = small_config((folder.path() / "empty").string());
  std::filesystem::create_directory(folder.path() / "empty");
  expect_contains(error_of([&] { check_data(config); }), "holds no text files");
  config.data.path = folder.write("short", "too short");
  expect_contains(error_of([&] { check_data(config); }), "shorter than one sequence");
  config.data.path = folder.write("bad.gz", "not compressed");
  expect_contains(error_of([&] { check_data(config); }), "is not a gzip file");
  config.data.path = folder.write("a", prose(3'000, 1));
  config.model.vocab_size = 256;
  expect_contains(error_of([&] { check_data(config); }), "the tokenizer has 257 ids, but model.vocab_size is 256");
  config.model.vocab_size = 512;
  config.data.path = prepare(config, folder.path()).prefix.string();
  config.model.vocab_size = 100;
  expect_contains(error_of([&] { check_data(config); }), "but model.vocab_size is 100");
}

TEST(CheckData, CountsSentencePieceTokens) {
  const Folder folder;
  config::Config config = small_config(folder.write("long", prose(60'000, 1)));
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "m.model").string();
  ensure_tokenizer(config);
  config.data.path = folder.write("short", "the loader reads a slow disk and the");  // 8 words of at most a few tokens
  config.model.seq_length = 200;
  expect_contains(error_of([&] { check_data(config); }), "shorter than one sequence");
  config.model.seq_length = 4;
  check_data(config);
}

TEST(CheckData, WantsAnEndOfDocumentToMask) {
  const Folder folder;
  std::vector<uint16_t> tokens(200, 3);
  tokens.back() = 4;
  folder.write("t.bin", packed(tokens));
  folder.write("t.idx", index_bytes(8, {100, 100}, {0, 200}, {0, 1, 2}));
  config::Config config = small_config((folder.path() / "t").string());
  check_data(config);
  config.data.eod_mask_loss = true;
  expect_contains(error_of([&] { check_data(config); }), "end with different tokens");
}

TEST(CheckData, RemarksOnDataThatRepeatAndOnAnotherTokenizersFile) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(60, 1)));
  ASSERT_EQ(check_data(config).size(), 1u);
  expect_contains(check_data(config).at(0),
                  "holds 3 samples of model.seq_length tokens, fewer than train_batch_size = 8");
  folder.write("t.bin", packed(std::vector<uint16_t>(400, 5)));
  folder.write("t.idx", index_bytes(8, {200, 200}, {0, 400}, {0, 1, 2}));
  config.data.path = (folder.path() / "t").string();
  EXPECT_TRUE(check_data(config).empty());
  config.provenance.keys_set = {"data.tokenizer"};
  ASSERT_EQ(check_data(config).size(), 1u);
  expect_contains(check_data(config)[0], "end with token 5, but data.tokenizer ends them with 256");
}

TEST(CheckData, SaysHowMuchMemoryTheLoadersNeed) {
  config::Config config = small_config("", 4);
  config.data.mock = true;
  config.data.num_workers = 2;
  config.data.prefetch_factor = 3;
  config.model.seq_length = (1 << 16) - 1;
  // 4 ranks × 2 workers × (3 ahead + 1 kept) slots of 2 rows × 2^16 ids × 8 bytes = 32 MiB, and a little.
  const std::string error = error_of([&] { check_data(config, 30 * kMiB); });
  expect_contains(error, "need 32.0 MiB of memory on this machine, and 30.0 MiB are available");
  expect_contains(error, "32.0 MiB for the rings of 4 loaders × 2 workers × 4 batches");
  expect_contains(error, "| lower data.num_workers, data.prefetch_factor or train_micro_batch_size_per_gpu");
  EXPECT_TRUE(check_data(config, 33 * kMiB).empty());
}

TEST(CheckData, SaysHowMuchMemoryPreloadingNeeds) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3 << 20, 1)), 8);
  config.data.num_workers = 0;
  config.data.preload = true;
  for (const bool token_file : {false, true}) {
    // Text is 3 MiB, once for all 8 ranks; its tokens are twice as much.
    const uint64_t needed = token_file ? 6 * kMiB : 3 * kMiB;
    if (token_file) config.data.path = prepare(config, folder.path()).prefix.string();
    const std::string error = error_of([&] { check_data(config, needed - 2 * kMiB); });
    expect_contains(error, token_file ? "need 6.0 MiB of memory" : "need 3.0 MiB of memory");
    expect_contains(error, token_file ? "4.0 MiB are available" : "1.0 MiB are available");
    expect_contains(error, "for the preloaded data | set data.preload to false, or free memory");
    check_data(config, needed + kMiB);
  }
  const TokenFile file = TokenFile::open(config.data.path);
  expect_contains(error_of([&] { PreloadedTokens(file, "job", 0, kMiB); }),
                  "data.preload needs 6.0 MiB of memory for '");
}

TEST(CheckData, CountsUnpackedTextOfEachLoader) {
  const Folder folder;
  config::Config config = small_config(folder.write_gzip("a.gz", prose(1 << 20, 1)), 4);
  config.data.num_workers = 0;
  const std::string error = error_of([&] { check_data(config, kMiB); });
  expect_contains(error, "4.0 MiB for the unpacked .gz text of 4 loaders | unpack the .gz files on the disk");
}

}  // namespace
}  // namespace taut::data
