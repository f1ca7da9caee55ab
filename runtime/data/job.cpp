#include "runtime/data/job.h"

#include <nlohmann/json.hpp>

#include "taut.h"

namespace taut::data {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Document, path, bytes, memory_offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TokenRun, first_token, byte_offset)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TokenLayout, path, type, tokens, documents, bin_bytes, runs, end_of_document)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(BatchShape, micro_batch, microbatches, data_parallel_size)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SampleOrder, samples, seed, shuffle)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Recipe, seq_length, vocab_size, shape, order, stride_bytes, mock, read_latency_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RingShape, workers, prefetch_factor, tokens_per_batch, slots)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, recipe, tokenizer, documents, token_file, source_fd, ring, dp_rank, rank,
                                   first_batch, end_batch, trainer_pid)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LastWords, what, hint)

std::vector<uint8_t> encode_job(const Job& job) {
  return Json::to_cbor(job);
}

Job decode_job(const char* bytes, size_t count) {
  try {
    return Json::from_cbor(bytes, bytes + count).get<Job>();
  } catch (const Json::exception& error) {
    throw Error(std::string("the loader's job cannot be read: ") + error.what());
  }
}

void describe_source(const Source& source, Job& job) {
  if (const auto* text = std::get_if<TextSource>(&source)) job.documents = text->corpus.documents();
  if (const auto* file = std::get_if<TokenFile>(&source)) job.token_file = file->layout();
  job.source_fd = source_fd(source) >= 0;
}

int source_fd(const Source& source) {
  if (const auto* file = std::get_if<TokenFile>(&source)) return file->fd();
  const auto* text = std::get_if<TextSource>(&source);
  return text != nullptr && text->corpus.memory() ? text->corpus.memory()->fd() : -1;
}

Source source_of(const Job& job, int fd) {
  if (job.recipe.mock) return {};
  if (!job.token_file.path.empty()) return TokenFile(job.token_file, Descriptor(fd));
  std::shared_ptr<const SharedMemory> memory;
  if (job.source_fd) memory = std::make_shared<SharedMemory>(fd, SharedMemory::Access::read_only);
  return TextSource{Corpus(job.documents, std::move(memory)), Tokenizer(job.tokenizer)};
}

std::vector<uint8_t> encode_last_words(const LastWords& words) {
  return Json::to_cbor(words);
}

LastWords decode_last_words(const std::vector<uint8_t>& bytes) {
  const Json json = Json::from_cbor(bytes, true, false);
  try {
    return json.get<LastWords>();
  } catch (const Json::exception&) {
    return {};
  }
}

std::vector<uint8_t> encode_documents(const std::vector<Document>& documents) {
  return Json::to_cbor(documents);
}

std::vector<Document> decode_documents(const char* bytes, size_t count) {
  try {
    return Json::from_cbor(bytes, bytes + count).get<std::vector<Document>>();
  } catch (const Json::exception& error) {
    throw Error(std::string("the preloaded corpus cannot be read: ") + error.what());
  }
}

}  // namespace taut::data
