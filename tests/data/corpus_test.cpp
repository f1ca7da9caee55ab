#include "runtime/data/corpus.h"

#include <filesystem>

#include "tests/data/fixture.h"

namespace taut::data {
namespace {

std::string whole_text(const Corpus& corpus) {
  std::string text;
  for (size_t i = 0; i < corpus.documents().size(); ++i) corpus.read(i, 0, corpus.documents()[i].bytes, text);
  return text;
}

std::vector<std::string> names(const Corpus& corpus) {
  std::vector<std::string> names;
  for (const Document& document : corpus.documents()) {
    names.push_back(std::filesystem::path(document.path).filename().string());
  }
  return names;
}

TEST(Corpus, ReadsAFile) {
  const Folder folder;
  const Corpus corpus = Corpus::open(folder.write("a.txt", "hello world"));
  EXPECT_EQ(corpus.bytes(), 11u);
  std::string text = ">";
  corpus.read(0, 6, 3, text);
  EXPECT_EQ(text, ">wor");
  corpus.read(0, 9, 100, text);
  EXPECT_EQ(text, ">world");
}

TEST(Corpus, OrdersAFolderByPathAndPassesOverWhatIsNotText) {
  const Folder folder;
  folder.write("b", "second");
  folder.write("a", "first");
  folder.write("c/d", "third");
  folder.write("empty", "");
  folder.write("picture.png", std::string("\x89PNG\0\0", 6));
  folder.write("latin1", "caf\xe9 ole");
  std::filesystem::create_symlink("a", folder.path() / "a.link");
  const Corpus corpus = Corpus::open(folder.path());
  EXPECT_EQ(names(corpus), (std::vector<std::string>{"a", "b", "d"}));
  EXPECT_EQ(whole_text(corpus), "firstsecondthird");
}

TEST(Corpus, LocatesBytesInDocuments) {
  const Folder folder;
  folder.write("a", "0123");
  folder.write("b", "45");
  folder.write("c", "6789");
  const Corpus corpus = Corpus::open(folder.path());
  for (uint64_t offset = 0; offset < 10; ++offset) {
    const Corpus::Position at = corpus.locate(offset);
    std::string text;
    corpus.read(at.document, at.offset, 1, text);
    EXPECT_EQ(text, std::to_string(offset));
  }
}

TEST(Corpus, UnpacksGzip) {
  const Folder folder;
  const std::string text = prose(3 << 20, 1);  // more than one block
  const Corpus corpus = Corpus::open(folder.write_gzip("a.gz", text));
  EXPECT_EQ(whole_text(corpus), text);
}

TEST(Corpus, UnpacksAllMembersOfAGzipFile) {
  const Folder folder;
  const std::string first = read_file(folder.write_gzip("1.gz", "one ")),
                    second = read_file(folder.write_gzip("2.gz", "two"));
  EXPECT_EQ(whole_text(Corpus::open(folder.write("both.gz", first + second))), "one two");
}

TEST(Corpus, MixesPlainAndCompressedFiles) {
  const Folder folder;
  folder.write_gzip("a.gz", "first");
  folder.write("b", "second");
  folder.write_gzip("c.gz", std::string("\0binary", 7));
  folder.write_gzip("d.gz", "third");
  EXPECT_EQ(whole_text(Corpus::open(folder.path())), "firstsecondthird");
}

TEST(Corpus, ReadsTheFortunesPackageAsItLies) {
  const std::filesystem::path fortunes = "/usr/share/games/fortunes";
  if (!std::filesystem::exists(fortunes / "fortunes")) GTEST_SKIP() << "the fortunes package is not installed";
  uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fortunes)) {
    if (!entry.is_symlink() && entry.path().extension() != ".dat") bytes += entry.file_size();
  }
  EXPECT_EQ(Corpus::open(fortunes).bytes(), bytes);
}

TEST(Corpus, SaysWhatIsWrongWithThePath) {
  const Folder folder;
  const auto open = [&](const std::string& name) { return error_of([&] { Corpus::open(folder.path() / name); }); };
  expect_contains(open("nothing-here"), "nothing-here' does not exist | data.path names");
  folder.write("empty", "");
  expect_contains(open("empty"), "is empty | data.path names");
  folder.write("binary", std::string("MZ\0", 3));
  expect_contains(open("binary"), "is not text: NUL at byte 2");
  std::filesystem::create_directory(folder.path() / "folder");
  expect_contains(open("folder"), "holds no text files");
  folder.write("fake.gz", "not compressed");
  expect_contains(open("fake.gz"), "is not a gzip file");
}

TEST(Corpus, SaysThatCompressedDataAreDamaged) {
  const Folder folder;
  const std::string packed = read_file(folder.write_gzip("whole.gz", prose(100'000, 1)));
  for (const size_t kept : {packed.size() - 1, packed.size() / 2, size_t{12}}) {
    const std::string file = folder.write("cut.gz", packed.substr(0, kept));
    expect_contains(error_of([&] { Corpus::open(file); }), "cut.gz' is damaged: the compressed data end too early");
  }
  std::string flipped = packed;
  flipped[flipped.size() / 2] ^= 0x55;
  const std::string file = folder.write("flipped.gz", flipped);
  expect_contains(error_of([&] { Corpus::open(file); }), "flipped.gz' is damaged");
}

TEST(Corpus, NoticesAFileThatBecameShorter) {
  const Folder folder;
  const std::string file = folder.write("a", "0123456789");
  const Corpus corpus = Corpus::open(file);
  std::filesystem::resize_file(file, 4);
  std::string text;
  expect_contains(error_of([&] { corpus.read(0, 0, 10, text); }), "became shorter");
}

}  // namespace
}  // namespace taut::data
