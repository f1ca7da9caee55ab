// Finds operations that do not match before the backend runs them: Gloo ends the process on a wrong size or type and
// waits for ever for another operation. Members exchange what they are about to call and compare; each then raises the
// same error. Plain data; the exchange is in operation.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracer/annotate/annotate.h"

namespace taut::comm {

/// torch's names, as the trace has them.
const char* op_name(annotate::CollectiveOp op);
const char* dtype_name(annotate::DType dtype);

/// What one member is about to call. Travels as `kFingerprintWords` int64, followed by the bytes that it sends to and
/// expects from each member (all_to_all in a group of at most kMostPeers, else none).
struct Fingerprint {
  annotate::CollectiveOp op = annotate::CollectiveOp::barrier;
  int64_t seq = 0;
  int64_t bytes = 0;  // all_to_all: of one row
  annotate::DType dtype = annotate::DType::uint8;
  int64_t reduce = 0;                   // 0 = sum, 1 = max
  int64_t root = -1;                    // broadcast: member
  std::vector<int64_t> sends, expects;  // bytes by member
};

inline constexpr int kFingerprintWords = 6, kMostPeers = 64;

/// Words that every member of a group of `members` sends.
int fingerprint_words(int members);
std::vector<int64_t> pack(const Fingerprint& fingerprint, int members);
/// The members' fingerprints from their words, one after another.
std::vector<Fingerprint> unpack(const int64_t* words, int members);

/// "all_reduce of 4096 bytes float32 (max)".
std::string describe(const Fingerprint& fingerprint);

/// Empty when all members call the same; else who calls what. `ranks` are the members' global ranks.
std::string disagreement(const std::vector<Fingerprint>& members, const std::vector<int>& ranks,
                         const std::string& group);

/// Empty when the receiver's buffer takes the sender's message; else both sides.
std::string disagreement(const Fingerprint& sent, int from_rank, const Fingerprint& expected, int to_rank,
                         const std::string& group);

}  // namespace taut::comm
