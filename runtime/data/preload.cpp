#include "runtime/data/preload.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/data/available_memory.h"
#include "runtime/data/job.h"
#include "runtime/data/keeper.h"
#include "taut.h"

namespace taut::data {
namespace {

constexpr uint64_t kBlockBytes = 1 << 20;

void wait(double milliseconds) {
  if (milliseconds > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
}

std::string key_of(const std::filesystem::path& path, const std::string& job) {
  return std::filesystem::absolute(path).lexically_normal().string() + '\n' + job;
}

/// The text, then the documents (job.h), then the size of those: all that another process needs.
std::shared_ptr<SharedMemory> load(const Corpus& corpus, double read_latency_ms) {
  std::vector<Document> documents = corpus.documents();
  for (int64_t offset = 0; Document & document : documents) {
    document.memory_offset = offset;
    offset += static_cast<int64_t>(document.bytes);
  }
  const std::vector<uint8_t> listing = encode_documents(documents);
  const uint64_t listing_bytes = listing.size();
  auto memory = std::make_shared<SharedMemory>(corpus.bytes() + listing_bytes + sizeof listing_bytes,
                                               "the preloaded corpus (data.preload)");
  char* to = memory->data();
  std::string block;
  for (size_t index = 0; index < documents.size(); ++index) {
    for (uint64_t offset = 0; offset < documents[index].bytes; offset += kBlockBytes) {
      wait(read_latency_ms);
      block.clear();
      corpus.read(index, offset, kBlockBytes, block);
      to = std::copy(block.begin(), block.end(), to);
    }
  }
  to = std::copy(listing.begin(), listing.end(), to);
  std::memcpy(to, &listing_bytes, sizeof listing_bytes);
  return memory;
}

Corpus as_corpus(std::shared_ptr<const SharedMemory> memory) {
  uint64_t listing_bytes = 0;
  const size_t tail = memory->bytes() - sizeof listing_bytes;
  std::memcpy(&listing_bytes, memory->data() + tail, sizeof listing_bytes);
  std::vector<Document> documents = decode_documents(memory->data() + (tail - listing_bytes), listing_bytes);
  return Corpus(std::move(documents), std::move(memory));
}

}  // namespace

struct PreloadedCorpus::Impl {
  std::optional<Corpus> corpus;
  std::optional<Keeper> keeper;
};

PreloadedCorpus::PreloadedCorpus(const std::filesystem::path& path, const std::string& job, double read_latency_ms)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.keeper.emplace(key_of(path, job), [&] {
    impl.corpus = as_corpus(load(Corpus::open(path), read_latency_ms));
    return impl.corpus->memory()->fd();
  });
  if (impl.keeper->is_keeper()) return;
  const int fd = impl.keeper->take_received().release();
  impl.corpus = as_corpus(std::make_shared<SharedMemory>(fd, SharedMemory::Access::read_only));
}

PreloadedCorpus::~PreloadedCorpus() = default;

const Corpus& PreloadedCorpus::corpus() const {
  return *impl_->corpus;
}
bool PreloadedCorpus::is_keeper() const {
  return impl_->keeper->is_keeper();
}

PreloadedTokens::PreloadedTokens(const TokenFile& file, const std::string& job, double read_latency_ms,
                                 uint64_t available_bytes)
    : file_(file) {
  keeper_ = std::make_unique<Keeper>(key_of(file.layout().path, job), [&] {
    const uint64_t bytes = file.layout().bin_bytes;
    check_preload_memory(file.layout().path, bytes, available_bytes);
    for (uint64_t offset = 0; offset < bytes; offset += kBlockBytes) {
      wait(read_latency_ms);
      file_.load(offset, std::min(kBlockBytes, bytes - offset));
    }
    return file_.fd();
  });
}

PreloadedTokens::~PreloadedTokens() = default;

bool PreloadedTokens::is_keeper() const {
  return keeper_->is_keeper();
}

void check_preload_memory(const std::string& path, uint64_t bytes, uint64_t available_bytes) {
  if (bytes <= available_bytes) return;
  throw Error("data.preload needs " + mebibytes(bytes) + " of memory for '" + path + "', and " +
                  mebibytes(available_bytes) + " are available",
              "set data.preload to false (the data are then read as they are needed), or free memory on this machine");
}

}  // namespace taut::data
