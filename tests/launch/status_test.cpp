#include "runtime/launch/status.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "taut.h"

namespace taut::launch {
namespace {

class Status : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/status-XXXXXX";
    close(mkstemp(name.data()));
    path_ = name;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(Status, IsSharedBetweenItsMappings) {
  StatusFile launcher = StatusFile::create(path_, 3);
  StatusFile rank = StatusFile::open(path_);
  EXPECT_EQ(rank.ranks(), 3);
  EXPECT_EQ(launcher.get(2), -1);
  rank.set(2, 41);
  EXPECT_EQ(launcher.get(2), 41);
  EXPECT_EQ(launcher.get(1), -1);
}

TEST_F(Status, IsAnArrayOfInt64) {
  StatusFile::create(path_, 2).set(1, 258);
  std::ifstream in(path_, std::ios::binary);
  int64_t steps[2] = {0, 0};
  in.read(reinterpret_cast<char*>(steps), sizeof steps);
  EXPECT_EQ(steps[0], -1);
  EXPECT_EQ(steps[1], 258);
  EXPECT_EQ(std::filesystem::file_size(path_), 16u);
}

TEST_F(Status, RanksOutsideAreIgnored) {
  StatusFile file = StatusFile::create(path_, 1);
  file.set(1, 5);
  file.set(-1, 5);
  EXPECT_EQ(file.get(1), -1);
  EXPECT_EQ(file.get(0), -1);
}

TEST_F(Status, CreatingAgainStartsOver) {
  StatusFile::create(path_, 4).set(0, 9);
  const StatusFile again = StatusFile::create(path_, 2);
  EXPECT_EQ(again.ranks(), 2);
  EXPECT_EQ(again.get(0), -1);
}

TEST_F(Status, AbsentOrEmptyFilesAreErrors) {
  EXPECT_THROW(StatusFile::open(path_), Error);
  EXPECT_THROW(StatusFile::open(path_ + ".none"), Error);
  EXPECT_THROW(StatusFile::create("/no/such/folder/status", 1), Error);
  EXPECT_THROW(StatusFile::create(path_, 0), Error);
}

}  // namespace
}  // namespace taut::launch
