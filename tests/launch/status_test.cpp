#include "runtime/launch/status.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "taut.h"

namespace taut::launch {
namespace {

TEST(Status, IsSharedBetweenItsMappings) {
  StatusFile launcher = StatusFile::create(3);
  StatusFile rank = StatusFile::open(launcher.path());
  EXPECT_EQ(rank.ranks(), 3);
  EXPECT_EQ(launcher.get(2), -1);
  rank.set(2, 41);
  EXPECT_EQ(launcher.get(2), 41);
  EXPECT_EQ(launcher.get(1), -1);
}

TEST(Status, IsAnArrayOfInt64) {
  StatusFile file = StatusFile::create(2);
  file.set(1, 258);
  std::ifstream in(file.path(), std::ios::binary);
  int64_t steps[3] = {0, 0, 0};
  in.read(reinterpret_cast<char*>(steps), sizeof steps);
  EXPECT_EQ(in.gcount(), 16);
  EXPECT_EQ(steps[0], -1);
  EXPECT_EQ(steps[1], 258);
}

TEST(Status, OutlivesTheOneWhoMadeItWhereItIsOpen) {
  StatusFile rank = [] { return StatusFile::open(StatusFile::create(1).path()); }();
  rank.set(0, 5);
  EXPECT_EQ(rank.get(0), 5);
}

TEST(Status, RanksOutsideAreIgnored) {
  StatusFile file = StatusFile::create(1);
  file.set(1, 5);
  file.set(-1, 5);
  EXPECT_EQ(file.get(1), -1);
  EXPECT_EQ(file.get(0), -1);
}

TEST(Status, AbsentOrEmptyFilesAreErrors) {
  std::string empty = testing::TempDir() + "/status-XXXXXX";
  close(mkstemp(empty.data()));
  EXPECT_THROW(StatusFile::open(empty), Error);
  std::filesystem::remove(empty);
  EXPECT_THROW(StatusFile::open(empty), Error);
  EXPECT_THROW(StatusFile::create(0), Error);
}

}  // namespace
}  // namespace taut::launch
