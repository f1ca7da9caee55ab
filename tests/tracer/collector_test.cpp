// The collector itself: environment, folders, errors, samples, reading while it runs.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <filesystem>
#include <thread>

#include "tests/tracer/traced_run.h"
#include "tracer/store/ids.h"

namespace taut::collect {
namespace {

using test::Scratch;

Collector::Options options(const Scratch& scratch) {
  Collector::Options options;
  options.path = scratch / "run.db";
  options.inject_library = TAUT_BIN_DIR "/libtaut_inject.so";
  options.ring_folder = scratch.path();
  return options;
}

std::string value(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& variable : environment)
    if (variable.starts_with(name + "=")) return variable.substr(name.size() + 1);
  return "";
}

TEST(Collector, TellsChildrenWhereToWriteAndCleansUp) {
  const Scratch scratch;
  std::string folder;
  {
    Collector::Options with = options(scratch);
    with.steps = {{2, 20}};
    Collector collector(with);
    const auto environment = collector.environment();
    folder = value(environment, "TAUT_TRACE_DIR");
    EXPECT_TRUE(std::filesystem::is_directory(folder));
    EXPECT_EQ(value(environment, "TAUT_TRACE_STEPS"), "2:20");
    EXPECT_EQ(value(environment, "NVTX_INJECTION64_PATH"), TAUT_BIN_DIR "/libtaut_inject.so");
    collector.start();
    collector.finish();
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
  EXPECT_TRUE(store::Reader(scratch / "run.db").is_taut());
}

TEST(Collector, WithoutFinishLeavesNothing) {
  const Scratch scratch;
  {
    Collector collector(options(scratch));
    collector.start();
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(Collector, RemovesTheRingsOfACollectorThatWasKilled) {
  const Scratch scratch;
  std::filesystem::create_directory(scratch / "taut-rings-old");  // nobody holds its lock
  std::filesystem::create_directory(scratch / "other");
  Collector first(options(scratch));
  const std::string folder = value(first.environment(), "TAUT_TRACE_DIR");
  EXPECT_FALSE(std::filesystem::exists(scratch / "taut-rings-old"));
  EXPECT_TRUE(std::filesystem::exists(scratch / "other"));
  Collector::Options more = options(scratch);
  more.path = scratch / "second.db";
  const Collector second(more);
  EXPECT_TRUE(std::filesystem::exists(folder)) << "a living collector's rings stay";
}

TEST(Collector, StoresWhatItIsTold) {
  const Scratch scratch;
  Collector::Options with = options(scratch);
  with.meta = {{"config", "{\"train_steps\": 3}"}, {"command", "taut train x.json"}};
  Collector collector(with);
  collector.start();
  collector.finish();
  const auto about = store::Reader(scratch / "run.db").meta();
  EXPECT_EQ(about.at("config"), "{\"train_steps\": 3}");
  EXPECT_EQ(about.at("command"), "taut train x.json");
}

TEST(Collector, ItsTraceCanBeReadWhileProgramsRun) {
  const Scratch scratch;
  Collector collector(options(scratch));
  collector.start();
  test::wait_for(test::start_speaker({"train", "0", "2"}, collector.environment()));
  // The rows arrive within some drains; how long that takes is the machine's business.
  int64_t steps = 0;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (steps < 2 && std::chrono::steady_clock::now() < deadline) {
    steps = store::Reader(scratch / "run.db").count("TAUT_STEP");
    std::this_thread::yield();
  }
  EXPECT_EQ(steps, 2);
  collector.finish();
  EXPECT_EQ(store::Reader(scratch / "run.db").count("TAUT_STEP"), 2);
  EXPECT_FALSE(std::filesystem::exists(scratch / "run.db-wal"));
}

TEST(Collector, SamplesMemoryAndCpuOfEveryProcess) {
  const Scratch scratch;
  Collector::Options with = options(scratch);
  with.sample_hz = 200;
  with.drain_every = std::chrono::milliseconds(5);
  Collector collector(with);
  collector.start();
  const pid_t pid = test::start_speaker({"threads", "2", "200000"}, collector.environment());
  test::wait_for(pid);
  collector.finish();
  const store::Reader reader(scratch / "run.db");
  ASSERT_GT(reader.count("TAUT_MEMORY"), 0);
  EXPECT_EQ(test::number(reader, "SELECT count(*) FROM TAUT_MEMORY WHERE globalPid<>" +
                                     std::to_string(store::global_pid(0, pid))),
            0);
  EXPECT_GT(test::number(reader, "SELECT min(rss) FROM TAUT_MEMORY"), 500'000);
  EXPECT_EQ(reader.meta().at("traced.memory"), "true");
}

TEST(Collector, AFullDiskStopsItWithAnErrorAndNoFile) {
  const Scratch scratch;
  const std::string small = scratch / "small";
  std::filesystem::create_directory(small);
  if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=600k") != 0)
    GTEST_SKIP() << "mounting a small file system needs root";
  std::string what, hint;
  {
    Collector::Options with = options(scratch);
    with.path = small + "/run.db";
    Collector collector(with);
    collector.start();
    test::wait_for(test::start_speaker({"threads", "4", "20000"}, collector.environment()));
    try {
      collector.finish();
    } catch (const Error& error) {
      what = error.what();
      hint = error.hint();
    }
  }
  const bool empty = std::filesystem::is_empty(small);
  umount(small.c_str());
  EXPECT_NE(what.find("disk is full"), std::string::npos) << what;
  EXPECT_FALSE(hint.empty());
  EXPECT_TRUE(empty);
}

TEST(Collector, RefusesAPlaceWhereNoTraceCanBe) {
  const Scratch scratch;
  Collector::Options with = options(scratch);
  with.path = scratch / "none/run.db";
  EXPECT_THROW(Collector{with}, Error);
  with = options(scratch);
  with.ring_folder = scratch / "none";
  EXPECT_THROW(Collector{with}, Error);
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

}  // namespace
}  // namespace taut::collect
