// What the trainer tells its workers: everything that they need, through descriptors that they inherit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/batch_maker.h"
#include "runtime/data/handover.h"
#include "runtime/data/recipe.h"
#include "runtime/data/source.h"

namespace taut::data {

/// The same for all workers of a loader; a worker's number is its command-line argument.
struct Job {
  Recipe recipe;
  std::string tokenizer;            // data.tokenizer; of text
  std::vector<Document> documents;  // of text
  TokenLayout token_file;           // without a path: the source is text, or a mock
  bool source_fd = false;           // kSourceFd is there
  RingShape ring;
  int64_t dp_rank = 0, rank = 0;
  int64_t first_batch = 0, end_batch = 0;  // half-open
  int64_t trainer_pid = 0;
};

/// Descriptors of a worker. Its standard streams are the trainer's.
enum WorkerFd : int {
  kJobFd = 3,  // memory with the Job
  kLifeFd,     // socket to the trainer: carries a last message, and its hang-up shows either side the other's end
  kTakenFd,    // eventfd: the trainer took a batch
  kOutputFd,   // eventfd: a batch is in its slot; or the pipe that batches go through
  kRingFd,     // the ring's memory
  kSourceFd,   // the corpus's memory, if it has one, or the .bin of token files
};

/// The first batch ≥ `first` that `worker` makes, when batch b is made by worker b % workers.
constexpr int64_t first_batch_of(int64_t worker, int64_t workers, int64_t first) {
  return first + ((worker - first) % workers + workers) % workers;
}

/// Before the tokens of each batch that goes through a pipe.
struct PipeHeader {
  int64_t batch;
  uint64_t sample_hash;
};

/// Writes and reads the job as CBOR, since paths need not be UTF-8.
std::vector<uint8_t> encode_job(const Job& job);
/// Throws taut::Error if the bytes are not a job.
Job decode_job(const char* bytes, size_t count);

/// What a worker says before it gives up.
struct LastWords {
  std::string what, hint;
};
std::vector<uint8_t> encode_last_words(const LastWords& words);
/// Nothing but empty strings if `bytes` is not such a message.
LastWords decode_last_words(const std::vector<uint8_t>& bytes);

/// Fills in what a job says of its source.
void describe_source(const Source& source, Job& job);
/// The descriptor that a worker needs for it; -1 = none.
int source_fd(const Source& source);
/// The source as `job` describes it, with the descriptor that the worker got (taken over).
Source source_of(const Job& job, int fd);

/// Documents as they travel (also used by preload.cpp).
std::vector<uint8_t> encode_documents(const std::vector<Document>& documents);
std::vector<Document> decode_documents(const char* bytes, size_t count);

}  // namespace taut::data
