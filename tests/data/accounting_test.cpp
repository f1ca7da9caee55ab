// Where a worker's time goes, as a trace shows it: every moment in exactly one range, whatever batches are made of and
// however they are handed over.
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/prepare.h"
#include "tests/data/fixture.h"
#include "tests/tracer/traced_run.h"
#include "tracer/annotate/annotate.h"

namespace taut::data {
namespace {

using test::NvtxRow;
using Threads = std::map<int64_t, std::vector<NvtxRow>>;

/// Takes every batch, each when the workers are as far ahead as they may be, so that they are blocked at times; returns
/// the workers' ranges in order.
Threads ranges_of(const config::Config& config) {
  annotate::domain();  // before the environment says so, this process looks for a tool: it finds none
  const test::Scratch scratch;
  collect::Collector::Options options;
  options.path = scratch / "run.db";
  options.inject_library = TAUT_BIN_DIR "/libtaut_inject.so";
  collect::Collector collector(options);
  std::vector<std::string> names;
  for (const std::string& variable : collector.environment()) {
    names.push_back(variable.substr(0, variable.find('=')));
    setenv(names.back().c_str(), variable.substr(names.back().size() + 1).c_str(), 1);
  }
  collector.start();
  {
    Loader loader(config, {});
    const int64_t count = config.train_steps * config.gradient_accumulation_steps;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t ahead = std::min(config.data.num_workers * config.data.prefetch_factor, count - i);
      // A pipe smaller than a batch takes none whole.
      const bool fits = config.data.shared_memory || config.model.seq_length < 1000;
      while (fits && loader.queue_depth() < ahead) std::this_thread::yield();
      loader.next();
    }
  }
  EXPECT_EQ(collector.finish().dropped, 0);
  for (const std::string& name : names) unsetenv(name.c_str());

  Threads threads;
  const store::Reader reader(options.path);
  for (const NvtxRow& row : test::nvtx_rows(reader)) {
    if (row.has_end && row.domain == annotate::kDomainName) threads[row.tid].push_back(row);
  }
  for (auto& [tid, rows] : threads) {
    std::sort(rows.begin(), rows.end(), [](const NvtxRow& a, const NvtxRow& b) { return a.start < b.start; });
  }
  EXPECT_EQ(static_cast<int64_t>(threads.size()), config.data.num_workers);
  return threads;
}

/// The largest share of a worker's life that is in no range, or in one named `without`.
double largest_gap(const Threads& threads, const std::string& without = "") {
  double largest = 0;
  for (const auto& [tid, rows] : threads) {
    int64_t covered = 0;
    for (const NvtxRow& row : rows) covered += row.name == without ? 0 : row.end - row.start;
    const auto life = static_cast<double>(rows.back().end - rows.front().start);
    largest = std::max(largest, 1 - static_cast<double>(covered) / life);
  }
  return largest;
}

/// `main` is a phase that takes long in this config.
void expect_whole(const config::Config& config, const std::string& what, const std::string& main,
                  std::set<std::string> phases) {
  const Threads threads = ranges_of(config);
  phases.insert({"read", "pack", "hand_over", "blocked", "loader_start", "loader_done"});
  for (const auto& [tid, rows] : threads) {
    EXPECT_EQ(rows.front().name, "loader_start") << what;
    EXPECT_EQ(rows.back().name, "loader_done") << what;
    std::set<std::string> names;
    for (size_t i = 0; i < rows.size(); ++i) {
      names.insert(rows[i].name);
      if (i > 0) EXPECT_GE(rows[i].start, rows[i - 1].end) << what << ": " << rows[i].name << " overlaps";
    }
    EXPECT_EQ(names, phases) << what;
  }
  const double gap = largest_gap(threads), control = largest_gap(threads, main);
  std::printf("%s: %.2f %% of a worker's time in no range (%.0f %% without %s)\n", what.c_str(), gap * 100,
              control * 100, main.c_str());
  EXPECT_LT(gap, 0.05) << what;
  EXPECT_GT(control, 0.05) << what << ": the bound could not fail";
}

config::Config traced_config(const Folder& folder) {
  config::Config config = small_config(folder.write("a", prose(9'000, 1)));
  config.data.read_latency_ms = 2;
  config.train_steps = 8;
  return config;
}

TEST(Accounting, IsWholeInSharedMemoryAndThroughPipes) {
  const Folder folder;
  config::Config config = traced_config(folder);
  expect_whole(config, "shared memory", "read", {"tokenize"});
  config.data.shared_memory = false;
  expect_whole(config, "pipe", "read", {"tokenize"});
}

TEST(Accounting, IsWholeThroughAPipeThatIsTooSmallForABatch) {
  const Folder folder;
  config::Config config = traced_config(folder);
  config.data.path = folder.write("b", prose(400'000, 1));
  config.model.seq_length = 70'000;  // 1.1 MB a batch; a pipe takes at most 1 MiB
  config.data.shared_memory = false;
  config.data.read_latency_ms = 20;
  config.train_steps = 2;
  expect_whole(config, "small pipe", "read", {"tokenize"});
}

TEST(Accounting, IsWholeForTokenFilesAndPreloadedText) {
  const Folder folder;
  config::Config config = traced_config(folder);
  config::Config tokens = config;
  tokens.data.path = prepare(config, folder.path()).prefix.string();
  expect_whole(tokens, "token file", "read", {});
  config.data.preload = true;  // reading costs nothing then, so the batches are large
  config.data.read_latency_ms = 0;
  config.data.path = folder.write("b", prose(4'000'000, 1));
  config.model.seq_length = 300'000;
  expect_whole(config, "preload", "tokenize", {"tokenize"});
}

}  // namespace
}  // namespace taut::data
