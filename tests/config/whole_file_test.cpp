// Files appear whole or not at all.
#include "runtime/config/whole_file.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "tests/config/sample.h"

namespace taut::config {
namespace {

namespace fs = std::filesystem;

class WriteFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/whole-file-XXXXXX";
    dir_ = mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(dir_); }

  static std::string read(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()));
  }

  fs::path dir_;
};

TEST_F(WriteFile, ReplacesTheWholeFile) {
  write_file(dir_ / "r.txt", "a long first report");
  write_file(dir_ / "r.txt", "short");
  EXPECT_EQ(read(dir_ / "r.txt"), "short");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, ShowsNothingUnderTheNameBeforeTheEnd) {
  const std::string piece(3 << 20, 'x');  // more than is buffered
  write_file(dir_ / "old.bin", "old");
  {
    WholeFile file(dir_ / "old.bin");
    file.write(piece);
    const std::vector<uint16_t> numbers{0x6161, 0x6262};
    file.write(std::span<const uint16_t>(numbers));
    EXPECT_EQ(file.bytes(), piece.size() + 4);
    EXPECT_EQ(read(dir_ / "old.bin"), "old");
    file.commit();
  }
  EXPECT_TRUE(read(dir_ / "old.bin") == piece + "aabb");
  { WholeFile(dir_ / "old.bin").write(piece); }
  EXPECT_EQ(fs::file_size(dir_ / "old.bin"), piece.size() + 4);
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, KeepsASymbolicLink) {
  write_file(dir_ / "real.txt", "old");
  fs::create_symlink("real.txt", dir_ / "link.txt");
  write_file(dir_ / "link.txt", "new");
  EXPECT_TRUE(fs::is_symlink(dir_ / "link.txt"));
  EXPECT_EQ(read(dir_ / "real.txt"), "new");
}

TEST_F(WriteFile, GivesThePermissionsOfAnyNewFileAndKeepsThoseOfAnOldOne) {
  const mode_t before = umask(027);
  write_file(dir_ / "new.txt", "x");
  umask(before);
  EXPECT_EQ(fs::status(dir_ / "new.txt").permissions(), fs::perms(0640));
  fs::permissions(dir_ / "new.txt", fs::perms(0604));
  write_file(dir_ / "new.txt", "y");
  EXPECT_EQ(fs::status(dir_ / "new.txt").permissions(), fs::perms(0604));
}

TEST_F(WriteFile, LeavesDevicesWhatTheyAre) {
  write_file("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(WriteFile, FailsOnAFullDiskAndSaysSo) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Error error = error_of([] { write_file("/dev/full", "text"); });
  EXPECT_NE(error.hint().find("the disk is full"), std::string::npos) << error.hint();
}

// A limit on the size of files stands in for a disk that fills up half-way.
TEST_F(WriteFile, LeavesTheOldFileWhenTheDiskFillsUp) {
  write_file(dir_ / "r.txt", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Error error = error_of([&] { write_file(dir_ / "r.txt", std::string(5000, 'x')); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(error.hint().find("the disk is full"), std::string::npos) << error.hint();
  EXPECT_EQ(read(dir_ / "r.txt"), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(WriteFile, LeavesNothingBehindWhenItFails) {
  fs::create_directory(dir_ / "taken");
  EXPECT_EQ(error_of([&] { write_file(dir_ / "taken", "x"); }).hint(), "that is a folder; name a file");
  const Error missing = error_of([&] { write_file(dir_ / "missing/r.txt", "x"); });
  EXPECT_EQ(missing.what(), "cannot write " + (dir_ / "missing/r.txt").string() + ": No such file or directory");
  EXPECT_EQ(missing.hint(), "the folder " + (dir_ / "missing").string() + " does not exist; make it first");
  const Error named = error_of([&] { WholeFile(dir_ / "missing/a.model", "the model", "mend data.tokenizer"); });
  EXPECT_EQ(named.what(),
            "cannot write the model '" + (dir_ / "missing/a.model").string() + "': No such file or directory");
  EXPECT_EQ(named.hint(), "mend data.tokenizer");
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace taut::config
