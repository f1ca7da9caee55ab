// Batches that the trainer keeps while the workers go on: in the ring, through pipes and inline.
#include <cstddef>
#include <deque>
#include <memory>
#include <thread>

#include "runtime/data/loader.h"
#include "tests/data/fixture.h"

namespace taut::data {
namespace {

config::Config mock_config(int64_t workers, bool shared_memory) {
  config::Config config = small_config("");
  config.data.mock = true;
  config.data.num_workers = workers;
  config.data.shared_memory = shared_memory;
  config.train_steps = 20;
  return config;
}

TEST(KeptBatches, AreAsManyAsThePipelineHolds) {
  config::Config config;
  config.gradient_accumulation_steps = 32;
  EXPECT_EQ(batches_kept(config), 2);
  config.parallel.pipeline_parallel_size = 4;
  EXPECT_EQ(batches_kept(config), 9);  // 2 · 4 and one more
  config.parallel.virtual_pipeline_stages = 3;
  EXPECT_EQ(batches_kept(config), 13);  // 3 · 4 and one more
  config.gradient_accumulation_steps = 6;
  EXPECT_EQ(batches_kept(config), 7);
  config.gradient_accumulation_steps = 32;
  config.parallel.pipeline_schedule = config::PipelineSchedule::gpipe;
  EXPECT_EQ(batches_kept(config), 33);
}

TEST(KeptBatches, StayAsTheyAreUntilTheyAreReleased) {
  config::Config config = mock_config(0, true);
  const std::vector<Kept> expected = all_batches(config);
  config.parallel.pipeline_parallel_size = 2;  // 5 batches kept
  config.world_size = 2;
  for (const int64_t workers : {0, 1, 2, 3}) {
    for (const bool shared_memory : {true, false}) {
      config.data.num_workers = workers;
      config.data.shared_memory = shared_memory;
      Loader loader(config, {});
      std::deque<Batch> kept;
      for (size_t i = 0; i < expected.size(); ++i) {
        kept.push_back(loader.next());
        // All that is kept is still what it was, however far the workers went on.
        for (size_t back = 0; back < kept.size(); ++back) {
          if (kept[back].tokens == nullptr) continue;
          ASSERT_EQ(keep(kept[back]), expected[i + 1 - kept.size() + back]);
        }
        if (kept.size() < 5) continue;
        if (i % 2 == 0) kept[2].release();  // out of order
        kept.pop_front();
      }
    }
  }
}

TEST(KeptBatches, DoNotHoldTheWorkersBack) {
  config::Config config = mock_config(2, true);
  config.parallel.pipeline_parallel_size = 2;
  config.world_size = 2;
  Loader loader(config, {});
  std::deque<Batch> kept;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  for (int i = 0; i < 40; ++i) {
    kept.push_back(loader.next());
    if (kept.size() > 4) kept.pop_front();
    while (loader.queue_depth() < 4 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    ASSERT_EQ(loader.queue_depth(), 4);  // 2 workers × 2 ahead, with 4 kept
  }
}

TEST(KeptBatches, AreAnErrorRatherThanADeadlockWhenTheyAreTooMany) {
  Loader loader(mock_config(1, true), {});
  std::vector<Batch> kept;
  const std::string error = error_of([&] {
    for (int i = 0; i < 20; ++i) kept.push_back(loader.next());
  });
  EXPECT_EQ(kept.size(), 4u);  // 2 ahead and 2 kept
  expect_contains(error, "no slot for batch 4: the trainer keeps 4 batches of worker 0 | release batches");
  kept.erase(kept.begin() + 1);  // not the oldest: its slot is not the one that is needed
  expect_contains(error_of([&] { loader.next(); }), "no slot");
  kept.clear();
  EXPECT_EQ(loader.next().step, 1);
}

TEST(KeptBatches, MayBeReleasedByAnotherThreadWhileTheTrainerWaits) {
  Loader loader(mock_config(1, true), {});
  std::vector<Kept> expected = all_batches(mock_config(0, true));
  std::deque<Batch> kept;
  for (size_t i = 0; i < expected.size(); ++i) {
    std::thread other;
    if (kept.size() == 3) {
      other = std::thread([batch = std::move(kept.front())]() mutable { batch.release(); });
      kept.pop_front();
    }
    kept.push_back(loader.next());
    EXPECT_EQ(keep(kept.back()), expected[i]);
    if (other.joinable()) other.join();
  }
}

TEST(KeptBatches, OutliveTheLoader) {
  for (const int64_t workers : {0, 2}) {
    for (const bool shared_memory : {true, false}) {
      auto loader = std::make_unique<Loader>(mock_config(workers, shared_memory), LoaderPlace{});
      const Batch batch = loader->next();
      const Kept before = keep(batch);
      loader.reset();
      EXPECT_EQ(keep(batch), before);
    }
  }
}

TEST(KeptBatches, LieInTheRingThatCanBePinned) {
  Loader loader(mock_config(2, true), {});
  const std::span<std::byte> ring = loader.ring_memory();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(ring.data()) % 4096, 0u);
  for (int i = 0; i < 8; ++i) {
    const Batch batch = loader.next();
    EXPECT_GE(reinterpret_cast<const std::byte*>(batch.tokens), ring.data());
    EXPECT_LE(reinterpret_cast<const std::byte*>(batch.tokens) + batch.bytes(), ring.data() + ring.size());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(batch.tokens) % 64, 0u);
  }
  EXPECT_TRUE(Loader(mock_config(2, false), {}).ring_memory().empty());
  EXPECT_TRUE(Loader(mock_config(0, true), {}).ring_memory().empty());
}

}  // namespace
}  // namespace taut::data
