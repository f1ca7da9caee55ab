// The loader with real `taut-loader` processes.
#include "runtime/data/loader.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "runtime/data/tokenizer.h"
#include "tests/data/fixture.h"

namespace taut::data {
namespace {

using Clock = std::chrono::steady_clock;

TEST(Loader, GivesTheSameTokensHoweverTheyAreMade) {
  const Folder folder;
  folder.write("a", prose(3'000, 1));
  folder.write_gzip("b.gz", prose(2'000, 2));
  config::Config config = small_config(folder.path().string());
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_EQ(expected[6].step, 1);
  EXPECT_EQ(expected[6].microbatch, 2);
  for (const int64_t workers : {1, 3, 8}) {
    for (const bool shared_memory : {true, false}) {
      for (const int64_t prefetch : {1, 2, 4}) {
        config.data.num_workers = workers;
        config.data.shared_memory = shared_memory;
        config.data.prefetch_factor = prefetch;
        EXPECT_EQ(all_batches(config), expected)
            << workers << " workers, prefetch " << prefetch << ", shared memory " << shared_memory;
      }
    }
  }
}

TEST(Loader, GivesTheSameTokensWithSentencePieceAndMock) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(30'000, 1)));
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "m.model").string();
  ensure_tokenizer(config);
  for (const bool mock : {false, true}) {
    config.data.mock = mock;
    config.data.num_workers = 0;
    const std::vector<Kept> expected = all_batches(config);
    config.data.num_workers = 3;
    EXPECT_EQ(all_batches(config), expected);
  }
}

TEST(Loader, SharesOutTheSameGlobalBatchWhateverTheDataParallelSize) {
  const Folder folder;
  const std::string path = folder.write("a", prose(5'000, 1));
  // Rows of step `step` over all ranks, in the order of the global batch.
  const auto global_rows = [&](int64_t dp, int64_t step) {
    const int64_t accumulation = 8 / dp;
    std::vector<std::vector<int64_t>> rows(16);
    for (int64_t rank = 0; rank < dp; ++rank) {
      for (const Kept& batch : all_batches(small_config(path, dp, accumulation), rank)) {
        if (batch.step != step) continue;
        for (int64_t row = 0; row < 2; ++row) {
          const auto at = static_cast<size_t>((batch.microbatch * dp + rank) * 2 + row);
          rows[at].assign(batch.tokens.begin() + row * 17, batch.tokens.begin() + (row + 1) * 17);
        }
      }
    }
    return rows;
  };
  for (const int64_t step : {0, 2}) {
    const auto alone = global_rows(1, step);
    EXPECT_EQ(global_rows(2, step), alone);
    EXPECT_EQ(global_rows(4, step), alone);
    // Disjoint: the samples of a step (less than an epoch) are all different.
    auto sorted = alone;
    std::sort(sorted.begin(), sorted.end());
    EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end());
  }
}

TEST(Loader, ResumesAtAnyStep) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  config.data.num_workers = 3;  // does not divide the first batch's number
  const std::vector<Kept> whole = all_batches(config);
  const std::vector<Kept> rest = all_batches(config, 0, 2);
  EXPECT_EQ(rest, std::vector<Kept>(whole.begin() + 8, whole.end()));
}

TEST(Loader, EndsWithTheLastStep) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  Loader loader(config, {});
  for (int i = 0; i < 12; ++i) loader.next();
  expect_contains(error_of([&] { loader.next(); }), "no batch for step 3");
}

TEST(Loader, KeepsABatchUntilTheNextIsAskedFor) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 1;
  config.data.prefetch_factor = 1;
  config.train_steps = 100;
  for (const bool shared_memory : {true, false}) {
    config.data.shared_memory = shared_memory;
    Loader loader(config, {});
    for (int i = 0; i < 100; ++i) {
      const Batch batch = loader.next();
      const Kept before = keep(batch);
      // The worker now makes the next batch; give it the chance to write where it must not.
      const auto deadline = Clock::now() + std::chrono::seconds(20);
      while (loader.queue_depth() < 1 && Clock::now() < deadline) std::this_thread::yield();
      ASSERT_EQ(keep(batch), before);
    }
  }
}

TEST(Loader, GetsAheadExactlyAsFarAsPrefetchAllows) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 3;
  config.data.prefetch_factor = 2;
  config.train_steps = 100;
  for (const bool shared_memory : {true, false}) {
    config.data.shared_memory = shared_memory;
    Loader loader(config, {});
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    for (int i = 0; i < 30; ++i) {
      while (loader.queue_depth() < 6 && Clock::now() < deadline) std::this_thread::yield();
      ASSERT_EQ(loader.queue_depth(), 6);
      for (int look = 0; look < 20; ++look) {
        ASSERT_LE(loader.queue_depth(), 6);
        std::this_thread::yield();
      }
      loader.next();
    }
  }
}

TEST(Loader, WaitsTheEmulatedLatencyForEachSample) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  config.data.read_latency_ms = 20;
  config.train_steps = 1;
  config.gradient_accumulation_steps = 2;
  for (const int64_t workers : {0, 1}) {
    config.data.num_workers = workers;
    const auto start = Clock::now();
    all_batches(config);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(4 * 20)) << workers << " workers";  // 4 samples
  }
}

TEST(Loader, HasNoNamesInTheFileSystem) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)));
  config.data.preload = true;
  Loader loader(config, {});
  loader.next();
  const std::string maps = read_file("/proc/self/maps");
  expect_contains(maps, "/memfd:taut (deleted)");
  EXPECT_EQ(maps.find("/dev/shm/"), std::string::npos);
}

TEST(Loader, SaysHowMuchMemoryItsRingNeeds) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = 64;
  config.data.prefetch_factor = 1 << 20;
  config.model.seq_length = 1 << 20;
  // 64 × (2^20 + 1) batches of 2 rows of 2^20 + 1 ids of 8 bytes: a little over 2^50 bytes.
  const std::string error = error_of([&] { Loader(config, {}); });
  expect_contains(error, "not enough memory for the loader's ring of 64 workers × 1048577 batches: 10737");
  expect_contains(error, "lower data.num_workers");
}

TEST(Loader, ReportsBadDataAndTokenizersAtOnce) {
  const Folder folder;
  config::Config config = small_config((folder.path() / "missing").string());
  expect_contains(error_of([&] { Loader(config, {}); }), "does not exist");
  config.data.path = folder.write("a", "text");
  config.model.vocab_size = 200;
  expect_contains(error_of([&] { Loader(config, {}); }), "the tokenizer has 257 ids");
}

TEST(Loader, RunsManyWorkers) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(3'000, 1)), 1, 64);
  config.train_steps = 2;
  config.data.num_workers = 0;
  const auto expected = all_batches(config);
  config.data.num_workers = 64;
  EXPECT_EQ(all_batches(config), expected);
}

}  // namespace
}  // namespace taut::data
