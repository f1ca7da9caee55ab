#include "runtime/data/prepare.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/config/load.h"
#include "runtime/config/whole_file.h"
#include "runtime/data/corpus.h"
#include "runtime/data/text.h"
#include "runtime/data/tokenizer.h"
#include "taut.h"

namespace taut::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kPieceBytes = 16 << 10;  // SentencePiece takes more than linear time
constexpr size_t kPiecesAtOnce = 1024;
constexpr int64_t kLeastIdsForInt32 = 65'500;  // Megatron's choice of type
constexpr uint64_t kMostTokensOfSequence = std::numeric_limits<int32_t>::max();
constexpr const char* kWriteHint = "free space on this disk, or make the folder of the data or of the config writable";

/// "text" of "/data/text.txt.gz", "texts" of "/data/texts/".
std::string name_of(fs::path data) {
  data = data.lexically_normal();
  if (!data.has_filename()) data = data.parent_path();
  if (fs::is_directory(data)) return data.filename().string();
  if (data.extension() == ".gz") data.replace_extension();
  return data.stem().string();
}

/// How much of `text`, which more follows, to tokenize at once: up to the end of its last line.
size_t piece_length(std::string_view text) {
  const size_t newline = text.rfind('\n');
  return newline != std::string_view::npos ? newline + 1 : without_torn_end(text).size();
}

/// Text that is tokenized at once, and its ids.
struct Piece {
  std::string text;
  std::vector<int64_t> ids;
  bool ends_document = false;
};

/// Tokenizes the pieces on as many threads as there are cores.
void encode(const Tokenizer& tokenizer, std::span<Piece> pieces) {
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < pieces.size(); i = next++) {
        tokenizer.encode(pieces[i].text, pieces[i].ids);
        if (pieces[i].ends_document) pieces[i].ids.push_back(tokenizer.end_of_document());
      }
    } catch (...) {
      const std::scoped_lock lock(mutex);
      failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    const size_t threads = std::min<size_t>(std::max(1u, std::thread::hardware_concurrency()), pieces.size());
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

/// Goes over the corpus piece by piece.
class PieceReader {
 public:
  explicit PieceReader(const Corpus& corpus, bool whole_characters)
      : corpus_(corpus), whole_characters_(whole_characters) {}

  /// Fills `pieces`, fewer at the end of the corpus.
  void read(std::vector<Piece>& pieces) {
    pieces.clear();
    while (pieces.size() < kPiecesAtOnce && document_ < corpus_.documents().size()) {
      const uint64_t bytes = corpus_.documents()[document_].bytes;
      Piece& piece = pieces.emplace_back();
      corpus_.read(document_, offset_, kPieceBytes, piece.text);
      if (offset_ + piece.text.size() < bytes && whole_characters_) piece.text.resize(piece_length(piece.text));
      offset_ += piece.text.size();
      piece.ends_document = offset_ == bytes;
      if (!piece.ends_document) continue;
      ++document_;
      offset_ = 0;
    }
  }

 private:
  const Corpus& corpus_;
  bool whole_characters_;
  size_t document_ = 0;
  uint64_t offset_ = 0;
};

template <class Id>
void write_ids(config::WholeFile& file, const std::vector<int64_t>& ids) {
  const std::vector<Id> narrow(ids.begin(), ids.end());
  file.write(std::span<const Id>(narrow));
}

void write_index(config::WholeFile& file, TokenType type, const std::vector<int32_t>& lengths,
                 const std::vector<int64_t>& documents) {
  std::vector<int64_t> pointers;
  int64_t pointer = 0;
  for (const int32_t length : lengths) {
    pointers.push_back(pointer);
    pointer += length * static_cast<int64_t>(token_bytes(type));
  }
  file.write(std::string_view("MMIDIDX\0", 9));
  const uint64_t version = 1, counts[] = {lengths.size(), documents.size()};
  file.write(std::span<const uint64_t>(&version, 1));
  file.write(std::span<const TokenType>(&type, 1));
  file.write(std::span<const uint64_t>(counts));
  file.write(std::span<const int32_t>(lengths));
  file.write(std::span<const int64_t>(pointers));
  file.write(std::span<const int64_t>(documents));
}

}  // namespace

fs::path prepared_prefix(const config::Config& config, const fs::path& config_folder) {
  fs::path data = fs::path(config.data.path).lexically_normal();
  if (!data.has_filename()) data = data.parent_path();
  const std::string model = config::tokenizer_file(config);
  const std::string tokenizer = model.empty() ? "byte" : fs::path(model).stem().string();
  const fs::path beside = data.has_parent_path() ? data.parent_path() : fs::path(".");
  const fs::path folder = access(beside.c_str(), W_OK | X_OK) == 0 ? beside : config_folder;
  return folder / (name_of(data) + "_" + tokenizer + "_text_document");
}

Prepared prepare(const config::Config& config, const fs::path& config_folder,
                 const std::function<void(uint64_t, uint64_t)>& progress) {
  if (config.data.mock) throw Error("data.mock is true: there is nothing to prepare", "set data.mock to false");
  if (token_file_prefix(config.data.path)) {
    throw Error("data.path '" + config.data.path + "' names token files already", "train with it as it is");
  }
  const Corpus corpus = Corpus::open(config.data.path);
  const Tokenizer tokenizer(config.data.tokenizer);
  check_vocabulary(tokenizer, config.model.vocab_size);

  Prepared prepared;
  prepared.prefix = prepared_prefix(config, config_folder);
  prepared.type = tokenizer.vocabulary() < kLeastIdsForInt32 ? TokenType::uint16 : TokenType::int32;
  prepared.documents = corpus.documents().size();
  config::WholeFile bin(prepared.prefix.string() + ".bin", "the token file", kWriteHint);
  config::WholeFile idx(prepared.prefix.string() + ".idx", "the token index", kWriteHint);
  std::vector<int32_t> lengths;
  std::vector<int64_t> boundaries{0};
  uint64_t length = 0;  // of the present sequence
  const auto end_sequence = [&] {
    lengths.push_back(static_cast<int32_t>(length));
    length = 0;
  };
  PieceReader reader(corpus, !tokenizer.is_byte());
  std::vector<Piece> pieces;
  for (reader.read(pieces); !pieces.empty(); reader.read(pieces)) {
    encode(tokenizer, pieces);
    for (const Piece& piece : pieces) {
      // A sequence's length is an int32; a larger document goes on in another sequence.
      if (length + piece.ids.size() > kMostTokensOfSequence) end_sequence();
      prepared.type == TokenType::uint16 ? write_ids<uint16_t>(bin, piece.ids) : write_ids<int32_t>(bin, piece.ids);
      length += piece.ids.size();
      prepared.tokens += piece.ids.size();
      prepared.text_bytes += piece.text.size();
      if (!piece.ends_document) continue;
      end_sequence();
      boundaries.push_back(static_cast<int64_t>(lengths.size()));
    }
    if (progress) progress(prepared.text_bytes, corpus.bytes());
  }
  write_index(idx, prepared.type, lengths, boundaries);
  prepared.file_bytes = bin.bytes() + idx.bytes();
  // A .bin without an .idx is refused; a new .bin with an old .idx could pass for a pair.
  std::error_code ec;
  fs::remove(prepared.prefix.string() + ".idx", ec);
  bin.commit();
  idx.commit();
  return prepared;
}

}  // namespace taut::data
