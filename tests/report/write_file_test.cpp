#include "analyzer/report/write_file.h"

#include <gtest/gtest.h>

#include "taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::report {
namespace {

using tests::read_text;
using tests::TemporaryFolder;

size_t files_in(const std::filesystem::path& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(WriteFile, ReplacesTheWholeFile) {
  const TemporaryFolder folder("write-file");
  write_file(folder / "r.txt", "a long first report");
  write_file(folder / "r.txt", "short");
  EXPECT_EQ(read_text(folder / "r.txt"), "short");
  EXPECT_EQ(files_in(folder.path()), 1u);
}

TEST(WriteFile, KeepsASymbolicLink) {
  const TemporaryFolder folder("write-link");
  tests::write_text(folder / "real.txt", "old");
  std::filesystem::create_symlink("real.txt", folder.path() / "link.txt");
  write_file(folder / "link.txt", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path() / "link.txt"));
  EXPECT_EQ(read_text(folder / "real.txt"), "new");
}

TEST(WriteFile, LeavesDevicesWhatTheyAre) {
  write_file("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(WriteFile, FailsOnAFullDiskAndSaysSo) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  try {
    write_file("/dev/full", "text");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(error.hint().find("full"), std::string::npos) << error.hint();
  }
}

TEST(WriteFile, LeavesNothingBehindWhenItFails) {
  const TemporaryFolder folder("write-fails");
  std::filesystem::create_directory(folder / "taken");
  EXPECT_THROW(write_file(folder / "taken", "x"), Error);
  EXPECT_THROW(write_file(folder / "missing/r.txt", "x"), Error);
  EXPECT_EQ(files_in(folder.path()), 1u);
}

}  // namespace
}  // namespace taut::report
