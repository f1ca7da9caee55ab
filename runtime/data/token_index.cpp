#include "runtime/data/token_index.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "taut.h"

namespace taut::data {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";  // and the array's own NUL: 9 bytes
static_assert(sizeof kMagic == 9);
constexpr uint64_t kHeaderBytes = sizeof kMagic + 8 + 1 + 8 + 8;
constexpr uint64_t kMostDocumentsLookedAt = 1000;
constexpr const char* kHint =
    "copy the two files again, or write them again: taut train CONFIG --prepare, or Megatron's preprocess_data.py";

/// The file, mapped while it is read.
class Mapping {
 public:
  explicit Mapping(const std::string& path) {
    const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (file.fd < 0 || fstat(file.fd, &status) != 0) {
      throw Error("cannot read '" + path + "': " + std::strerror(errno),
                  "token files are a pair, NAME.bin and NAME.idx; data.path names one of them, or NAME");
    }
    bytes_ = static_cast<uint64_t>(status.st_size);
    if (bytes_ == 0) throw Error("'" + path + "' is empty", kHint);
    void* address = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (address == MAP_FAILED) throw Error("cannot map '" + path + "': " + std::strerror(errno));
    data_ = static_cast<const char*>(address);
  }
  ~Mapping() { munmap(const_cast<char*>(data_), bytes_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

/// The number at `from`, which need not be aligned.
template <class Number>
Number load(const char* from) {
  Number number;
  std::memcpy(&number, from, sizeof number);
  return number;
}

/// The numbers of an .idx, at their places.
struct Index {
  std::string path;
  TokenType type = TokenType::uint16;
  uint64_t sequences = 0, documents = 0;
  const char *lengths = nullptr, *pointers = nullptr, *boundaries = nullptr;

  int64_t length(uint64_t i) const { return load<int32_t>(lengths + i * 4); }
  int64_t pointer(uint64_t i) const { return load<int64_t>(pointers + i * 8); }
  int64_t boundary(uint64_t i) const { return load<int64_t>(boundaries + i * 8); }
};

[[noreturn]] void throw_damaged(const std::string& path, const std::string& what) {
  throw Error("'" + path + "' is damaged or no token index: " + what, kHint);
}

Index read_header(const std::string& path, const Mapping& file) {
  if (file.bytes() < kHeaderBytes) throw_damaged(path, "it ends inside its header");
  if (std::memcmp(file.data(), kMagic, sizeof kMagic) != 0) throw_damaged(path, "it does not begin with MMIDIDX");
  const char* at = file.data() + sizeof kMagic;
  const auto version = load<uint64_t>(at);
  if (version != 1) throw_damaged(path, "its version is " + std::to_string(version) + ", not 1");
  Index index;
  index.path = path;
  const auto code = load<uint8_t>(at + 8);
  if (code < 1 || code > 8) throw_damaged(path, "its type code is " + std::to_string(code) + ", not 1 to 8");
  index.type = static_cast<TokenType>(code);
  if (index.type == TokenType::float64 || index.type == TokenType::float32) {
    throw Error(
        "'" + path + "' says that the tokens are floating-point numbers (type code " + std::to_string(code) + ")",
        "token ids must be integers: write the files again as uint16 or int32");
  }
  index.sequences = load<uint64_t>(at + 9);
  index.documents = load<uint64_t>(at + 17);
  const uint64_t rest = file.bytes() - kHeaderBytes;
  if (index.sequences > rest / 12 || index.documents > (rest - index.sequences * 12) / 8) {
    throw_damaged(path, "its header counts " + std::to_string(index.sequences) + " sequences and " +
                            std::to_string(index.documents) + " document boundaries, more than its " +
                            std::to_string(file.bytes()) + " bytes hold");
  }
  const uint64_t left = rest - index.sequences * 12 - index.documents * 8;
  if (left != 0 && left != index.sequences) {
    throw_damaged(path, std::to_string(left) + " bytes follow what its header counts");
  }
  index.lengths = file.data() + kHeaderBytes;
  index.pointers = index.lengths + index.sequences * 4;
  index.boundaries = index.pointers + index.sequences * 8;
  return index;
}

void add_sequences(const Index& index, TokenLayout& layout) {
  const auto width = static_cast<int64_t>(token_bytes(index.type));
  const auto bin_bytes = static_cast<int64_t>(layout.bin_bytes);
  int64_t gapless = -1;  // where the present run would go on
  for (uint64_t i = 0; i < index.sequences; ++i) {
    const int64_t length = index.length(i), begin = index.pointer(i);
    const auto sequence = [&] { return "sequence " + std::to_string(i); };
    if (length < 0) throw_damaged(index.path, sequence() + " has " + std::to_string(length) + " tokens");
    // length × width is below 2^34.
    if (begin < 0 || begin > bin_bytes || length * width > bin_bytes - begin) {
      throw Error("'" + index.path + "' and '" + layout.path + "' do not belong together: " + sequence() + " covers " +
                      std::to_string(length * width) + " bytes from " + std::to_string(begin) +
                      " on, but the .bin has " + std::to_string(bin_bytes),
                  kHint);
    }
    if (length == 0) continue;
    if (begin != gapless) layout.runs.push_back({layout.tokens, static_cast<uint64_t>(begin)});
    gapless = begin + length * width;
    layout.tokens += static_cast<uint64_t>(length);
  }
}

/// Ends in tokens of every `stride`-th document that is not empty. O(sequences).
std::vector<uint64_t> document_ends(const Index& index, uint64_t documents) {
  const uint64_t stride = std::max<uint64_t>(1, documents / kMostDocumentsLookedAt);
  std::vector<uint64_t> ends;
  uint64_t sequence = 0, tokens = 0;
  for (uint64_t document = 0; document < documents; ++document) {
    const uint64_t before = tokens;
    for (const auto end = static_cast<uint64_t>(index.boundary(document + 1)); sequence < end; ++sequence) {
      tokens += static_cast<uint64_t>(index.length(sequence));
    }
    if (document % stride == 0 && tokens > before) ends.push_back(tokens);
  }
  return ends;
}

void check_boundaries(const Index& index) {
  int64_t before = 0;
  for (uint64_t i = 0; i < index.documents; ++i) {
    const int64_t boundary = index.boundary(i);
    if (boundary < before || boundary > static_cast<int64_t>(index.sequences)) {
      throw_damaged(index.path, "document boundary " + std::to_string(i) + " is sequence " + std::to_string(boundary) +
                                    ", after " + std::to_string(before) + " of " + std::to_string(index.sequences));
    }
    before = boundary;
  }
}

}  // namespace

CheckedIndex read_token_index(const std::string& path, const std::string& bin_path, uint64_t bin_bytes) {
  const Mapping file(path);
  const Index index = read_header(path, file);
  check_boundaries(index);
  CheckedIndex checked;
  checked.layout.path = bin_path;
  checked.layout.type = index.type;
  checked.layout.bin_bytes = bin_bytes;
  add_sequences(index, checked.layout);
  if (checked.layout.tokens == 0) throw Error("'" + path + "' holds no tokens", kHint);
  // Some writers leave the last boundary out; then the last document's end is not known to be one.
  if (index.documents > 0) {
    checked.layout.documents = index.documents - 1;
    checked.document_ends = document_ends(index, index.documents - 1);
  }
  return checked;
}

}  // namespace taut::data
