#include "runtime/data/prepare.h"

#include <sentencepiece_processor.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "runtime/data/corpus.h"
#include "runtime/data/tokenizer.h"
#include "tests/data/fixture.h"
#include "tests/data/token_bytes.h"

namespace taut::data {
namespace {

TEST(Prepare, WritesEveryByteOfTheFormat) {
  const Folder folder;
  folder.write("texts/a", "ab");
  folder.write("texts/b", "\xe2\x82\xac");
  const Prepared prepared = prepare(small_config((folder.path() / "texts/").string()), "/nowhere");
  EXPECT_EQ(prepared.prefix, folder.path() / "texts_byte_text_document");
  EXPECT_EQ(prepared.tokens, 7u);
  EXPECT_EQ(prepared.documents, 2u);
  EXPECT_EQ(prepared.text_bytes, 5u);
  const std::string bin = read_file(prepared.prefix.string() + ".bin"),
                    idx = read_file(prepared.prefix.string() + ".idx");
  EXPECT_EQ(bin, packed<uint16_t>({97, 98, 256, 0xe2, 0x82, 0xac, 256}));
  EXPECT_EQ(idx, index_bytes(8, {3, 4}, {0, 6}, {0, 1, 2}));
  EXPECT_EQ(prepared.file_bytes, bin.size() + idx.size());
  // Nothing but the two files and the texts is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 3);
}

// With one document, the token at stream position i is the byte at offset i, so text and token files agree.
TEST(Prepare, GivesTheBatchesOfTheTextItself) {
  const Folder folder;
  config::Config config = small_config(folder.write_gzip("a.txt.gz", prose(2'500'000, 3)));
  config.data.num_workers = 0;
  const std::vector<Kept> expected = all_batches(config);
  const Prepared prepared = prepare(config, folder.path());
  EXPECT_EQ(prepared.prefix, folder.path() / "a_byte_text_document");
  EXPECT_EQ(prepared.tokens, Corpus::open(config.data.path).bytes() + 1);
  config.data.path = prepared.prefix.string();
  EXPECT_EQ(all_batches(config), expected);
}

TEST(Prepare, TokenizesDocumentsAsTheLibraryDoes) {
  const Folder folder;
  const std::string texts[] = {prose(1'300'000, 1), "naïve €\n", prose(5'000, 2)};
  for (size_t i = 0; i < 3; ++i) folder.write("texts/" + std::to_string(i), texts[i]);
  config::Config config = small_config((folder.path() / "texts/2").string());
  config.data.tokenizer = "sentencepiece:" + (folder.path() / "words.model").string();
  ensure_tokenizer(config);
  config.data.path = (folder.path() / "texts").string();
  uint64_t last = 0, calls = 0;
  const Prepared prepared = prepare(config, folder.path(), [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
    ++calls;
  });
  EXPECT_GE(calls, 1u);
  EXPECT_EQ(last, prepared.text_bytes);
  EXPECT_EQ(prepared.prefix.filename(), "texts_words_text_document");
  // Line by line, which is how the model was trained: no token crosses a line's end.
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load((folder.path() / "words.model").string()).ok());
  std::vector<int64_t> expected;
  for (const std::string& text : texts) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      std::vector<int> ids;
      ASSERT_TRUE(library.Encode(text.substr(begin, end - begin), &ids).ok());
      expected.insert(expected.end(), ids.begin(), ids.end());
      begin = end;
    }
    expected.push_back(library.eos_id());
  }
  std::vector<int64_t> tokens(prepared.tokens);
  const TokenFile file = TokenFile::open(prepared.prefix);
  file.read(0, tokens);
  EXPECT_EQ(tokens, expected);
  EXPECT_EQ(file.layout().end_of_document, library.eos_id());
}

TEST(Prepare, ReplacesOlderFilesWholeOrNotAtAll) {
  const Folder folder;
  config::Config config = small_config(folder.write("a.txt", "first"));
  const std::string prefix = prepare(config, folder.path()).prefix.string();
  folder.write("a.txt", "another text");
  prepare(config, folder.path());
  EXPECT_EQ(TokenFile::open(prefix).tokens(), 13u);
  // The next attempt fails half-way: the folder in the .idx file's place cannot be replaced.
  std::filesystem::remove(prefix + ".idx");
  std::filesystem::create_directories(prefix + ".idx/x");
  expect_contains(error_of([&] { prepare(config, folder.path()); }),
                  "cannot write the token index '" + prefix + ".idx");
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) files += entry.is_regular_file();
  EXPECT_EQ(files, 2u);  // the text and a .bin
}

TEST(Prepare, WritesIntoTheConfigsFolderWhereTheDataAreReadOnly) {
  const Folder folder, configs;
  const config::Config config = small_config(folder.write("a.txt", "text"));
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0555));
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(65534) != 0) _exit(2);  // root may write everywhere
    _exit(prepared_prefix(config, configs.path()) == configs.path() / "a_byte_text_document" ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  std::filesystem::permissions(folder.path(), std::filesystem::perms::owner_all);
}

TEST(Prepare, SaysWhatItCannotPrepare) {
  const Folder folder;
  config::Config config = small_config((folder.path() / "missing").string());
  expect_contains(error_of([&] { prepare(config, "."); }), "does not exist");
  config.data.path = folder.write("a.txt", "text");
  config.data.path = prepare(config, ".").prefix.string();
  expect_contains(error_of([&] { prepare(config, "."); }), "names token files already");
  config.data.mock = true;
  expect_contains(error_of([&] { prepare(config, "."); }), "data.mock is true");
}

}  // namespace
}  // namespace taut::data
