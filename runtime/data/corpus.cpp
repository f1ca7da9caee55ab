#include "runtime/data/corpus.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/data/gzip.h"
#include "runtime/data/text.h"
#include "taut.h"

namespace taut::data {
namespace fs = std::filesystem;
namespace {

constexpr size_t kTextCheckBytes = 64 << 10;
constexpr const char* kPathHint = "data.path names a UTF-8 text file, a .gz of one, or a folder of them";

/// Closes the descriptor at the end of the scope.
struct File {
  explicit File(const std::string& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0)
      throw Error("cannot read '" + path + "': " + std::strerror(errno), "check the file and its permissions");
  }
  ~File() { close(fd); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd;
};

/// Reads up to `count` bytes at `offset`; fewer at the file's end.
size_t read_at(int fd, char* to, size_t count, uint64_t offset, const std::string& path) {
  size_t done = 0;
  while (done < count) {
    const ssize_t got = pread(fd, to + done, count - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error("cannot read '" + path + "': " + std::strerror(errno), "check the file and its disk");
    done += static_cast<size_t>(got);
  }
  return done;
}

bool is_gzip_name(const std::string& path) {
  return path.ends_with(".gz");
}

/// The documents of a corpus as they are found, and the text that has to be kept in memory.
struct Listing {
  std::vector<Document> documents;
  std::string unpacked;
};

/// Adds the file; returns why not, if it is empty or not text.
std::optional<std::string> add_file(const std::string& path, Listing& listing) {
  Document document{path, 0, -1};
  std::string head;
  if (is_gzip_name(path)) {
    const size_t start = listing.unpacked.size();
    read_gzip(path, listing.unpacked);
    document.bytes = listing.unpacked.size() - start;
    document.memory_offset = static_cast<int64_t>(start);
    head = listing.unpacked.substr(start, kTextCheckBytes);
  } else {
    const File file(path);
    struct stat status {};
    if (fstat(file.fd, &status) != 0) throw Error("cannot read '" + path + "': " + std::strerror(errno));
    document.bytes = static_cast<uint64_t>(status.st_size);
    head.resize(std::min<uint64_t>(kTextCheckBytes, document.bytes));
    head.resize(read_at(file.fd, head.data(), head.size(), 0, path));
  }
  std::optional<std::string> reason;
  if (document.bytes == 0) {
    reason = "is empty";
  } else {
    reason = why_not_text(head, head.size() == document.bytes);
  }
  if (!reason) {
    listing.documents.push_back(std::move(document));
  } else if (document.memory_offset >= 0) {
    listing.unpacked.resize(static_cast<size_t>(document.memory_offset));
  }
  return reason;
}

std::vector<std::string> regular_files(const fs::path& folder) {
  std::vector<std::string> paths;
  try {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_symlink() && entry.is_regular_file()) paths.push_back(entry.path().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw Error("cannot list '" + error.path1().string() + "': " + error.code().message(),
                "check the folder and its permissions");
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

Corpus Corpus::open(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status)) throw Error("data.path '" + path.string() + "' does not exist", kPathHint);
  Listing listing;
  if (fs::is_directory(status)) {
    for (const std::string& file : regular_files(path)) add_file(file, listing);
    if (listing.documents.empty()) throw Error("data.path '" + path.string() + "' holds no text files", kPathHint);
  } else if (fs::is_regular_file(status)) {
    if (const auto reason = add_file(path.string(), listing)) {
      throw Error("data.path '" + path.string() + "' " + *reason, kPathHint);
    }
  } else {
    throw Error("data.path '" + path.string() + "' is neither a file nor a folder", kPathHint);
  }
  std::shared_ptr<SharedMemory> memory;
  if (!listing.unpacked.empty()) {
    memory = std::make_shared<SharedMemory>(listing.unpacked.size(), "the unpacked corpus");
    std::copy(listing.unpacked.begin(), listing.unpacked.end(), memory->data());
  }
  return Corpus(std::move(listing.documents), std::move(memory));
}

Corpus::Corpus(std::vector<Document> documents, std::shared_ptr<const SharedMemory> memory)
    : memory_(std::move(memory)) {
  std::vector<uint64_t> ends;
  ends.reserve(documents.size());
  for (uint64_t end = 0; const Document& document : documents) ends.push_back(end += document.bytes);
  documents_ = std::make_shared<const std::vector<Document>>(std::move(documents));
  ends_ = std::make_shared<const std::vector<uint64_t>>(std::move(ends));
}

Corpus::Position Corpus::locate(uint64_t offset) const {
  const auto end = std::upper_bound(ends_->begin(), ends_->end(), offset);
  const auto document = static_cast<size_t>(end - ends_->begin());
  return {document, offset - (*end - (*documents_)[document].bytes)};
}

void Corpus::read(size_t index, uint64_t offset, uint64_t count, std::string& text) const {
  const Document& document = (*documents_)[index];
  if (offset >= document.bytes) return;
  count = std::min(count, document.bytes - offset);
  if (document.memory_offset >= 0) {
    text.append(memory_->data() + document.memory_offset + offset, count);
    return;
  }
  const File file(document.path);
  const size_t size = text.size();
  text.resize(size + count);
  if (read_at(file.fd, text.data() + size, count, offset, document.path) != count) {
    throw Error("'" + document.path + "' became shorter while it was being read",
                "do not change the data of a run that is going on");
  }
}

}  // namespace taut::data
