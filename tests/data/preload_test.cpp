#include "runtime/data/preload.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "runtime/data/prepare.h"
#include "tests/data/fixture.h"

namespace taut::data {
namespace {

using Clock = std::chrono::steady_clock;

std::string whole_text(const Corpus& corpus) {
  std::string text;
  for (size_t i = 0; i < corpus.documents().size(); ++i) corpus.read(i, 0, corpus.documents()[i].bytes, text);
  return text;
}

TEST(Preload, KeepsTheTextWhenTheFilesAreGone) {
  const Folder folder;
  folder.write("data/a", prose(2'500'000, 1));
  folder.write_gzip("data/b.gz", prose(5'000, 2));
  const std::string text = whole_text(Corpus::open(folder.path() / "data"));
  const PreloadedCorpus keeper(folder.path() / "data", "job", 0);
  std::filesystem::remove_all(folder.path() / "data");
  EXPECT_TRUE(keeper.is_keeper());
  EXPECT_EQ(whole_text(keeper.corpus()), text);
  // The second to come reads nothing: there is nothing to read any more.
  const PreloadedCorpus other(folder.path() / "data", "job", 0);
  EXPECT_FALSE(other.is_keeper());
  EXPECT_EQ(whole_text(other.corpus()), text);
}

TEST(Preload, HasOneKeeperWhenManyComeAtOnce) {
  const Folder folder;
  const std::string path = folder.write("a", prose(3'000'000, 1));
  std::vector<int> kept(6);
  std::vector<std::string> texts(6);
  std::vector<std::unique_ptr<PreloadedCorpus>> corpora(6);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      corpora[i] = std::make_unique<PreloadedCorpus>(path, "job", 0);
      kept[i] = corpora[i]->is_keeper();
      texts[i] = whole_text(corpora[i]->corpus());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1), 1);
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(Preload, OutlivesAKeeperThatDies) {
  const Folder folder;
  const std::string path = folder.write("a", "the text");
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t keeper = fork();
  if (keeper == 0) {
    const PreloadedCorpus corpus(path, "job", 0);
    static_cast<void>(!write(ready[1], "x", 1));
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const PreloadedCorpus attached(path, "job", 0);
  EXPECT_FALSE(attached.is_keeper());
  kill(keeper, SIGKILL);
  waitpid(keeper, nullptr, 0);
  EXPECT_EQ(whole_text(attached.corpus()), "the text");
  const PreloadedCorpus next(path, "job", 0);
  EXPECT_TRUE(next.is_keeper());
  close(ready[0]);
  close(ready[1]);
}

TEST(Preload, KeepsJobsApart) {
  const Folder folder;
  const std::string path = folder.write("a", "the text");
  const PreloadedCorpus one(path, "job 1", 0), two(path, "job 2", 0);
  EXPECT_TRUE(one.is_keeper());
  EXPECT_TRUE(two.is_keeper());
}

TEST(Preload, TellsEveryoneWhatIsWrong) {
  const Folder folder;
  for (int i = 0; i < 2; ++i) {
    expect_contains(error_of([&] { PreloadedCorpus(folder.path() / "missing", "job", 0); }), "does not exist");
  }
}

TEST(PreloadedTokens, AreReadOnceForAllProcessesOfANode) {
  const Folder folder;
  const config::Config config = small_config(folder.write("a", prose(1'500'000, 1)));
  const TokenFile file = TokenFile::open(prepare(config, folder.path()).prefix);  // 3 MB: 3 blocks
  std::vector<int> kept(6);
  std::vector<std::unique_ptr<PreloadedTokens>> loaded(6);
  std::vector<std::thread> threads;
  const auto start = Clock::now();
  for (size_t i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      loaded[i] = std::make_unique<PreloadedTokens>(file, "job", 100);
      EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(300)) << "nobody starts before all is there";
      kept[i] = loaded[i]->is_keeper();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1500));  // six times over: 1800 ms
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 1), 1);
}

TEST(PreloadedTokens, GiveTheSameBatchesAndPayTheLatencyOnce) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(1'500'000, 1)));
  config.data.path = prepare(config, folder.path()).prefix.string();
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  config.data.preload = true;
  config.data.read_latency_ms = 50;  // 3 blocks: 150 ms; 24 samples would take 1200 ms
  for (const int64_t workers : {0, 2}) {
    config.data.num_workers = workers;
    const auto start = Clock::now();
    EXPECT_EQ(all_batches(config), expected);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(150));
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1100));
  }
}

TEST(Preload, PaysTheEmulatedLatencyOnceForAMebibyteAndThenNoMore) {
  const Folder folder;
  config::Config config = small_config(folder.write("a", prose(2'500'000, 1)));
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  config.data.preload = true;
  config.data.read_latency_ms = 50;  // 3 blocks: 150 ms; 24 samples would take 1200 ms
  for (const int64_t workers : {0, 2}) {
    config.data.num_workers = workers;
    const auto start = Clock::now();
    EXPECT_EQ(all_batches(config), expected);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(150));
    EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(1100));
  }
}

}  // namespace
}  // namespace taut::data
