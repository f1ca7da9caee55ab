#include "runtime/comm/fingerprint.h"

#include <algorithm>
#include <array>
#include <utility>

namespace taut::comm {

using annotate::CollectiveOp;

const char* op_name(annotate::CollectiveOp op) {
  constexpr std::array names = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                "all_to_all", "send",       "recv",           "barrier"};
  const auto index = static_cast<size_t>(op);
  return index < names.size() ? names[index] : "?";
}

const char* dtype_name(annotate::DType dtype) {
  constexpr std::array names = {"float32", "bfloat16", "float16", "float64", "int64", "int32", "uint8", "int8", "bool"};
  const auto index = static_cast<size_t>(dtype);
  return index < names.size() ? names[index] : "?";
}

int fingerprint_words(int members) {
  return kFingerprintWords + (members <= kMostPeers ? 2 * members : 0);
}

std::vector<int64_t> pack(const Fingerprint& f, int members) {
  std::vector<int64_t> words(fingerprint_words(members), 0);
  const int64_t fixed[kFingerprintWords] = {static_cast<int64_t>(f.op),    f.seq,    f.bytes,
                                            static_cast<int64_t>(f.dtype), f.reduce, f.root};
  std::copy(std::begin(fixed), std::end(fixed), words.begin());
  if (f.op == CollectiveOp::all_to_all && members <= kMostPeers) {
    std::copy(f.sends.begin(), f.sends.end(), words.begin() + kFingerprintWords);
    std::copy(f.expects.begin(), f.expects.end(), words.begin() + kFingerprintWords + members);
  }
  return words;
}

std::vector<Fingerprint> unpack(const int64_t* words, int members) {
  std::vector<Fingerprint> all(members);
  for (Fingerprint& f : all) {
    f.op = static_cast<CollectiveOp>(words[0]);
    f.seq = words[1];
    f.bytes = words[2];
    f.dtype = static_cast<annotate::DType>(words[3]);
    f.reduce = words[4];
    f.root = words[5];
    if (f.op == CollectiveOp::all_to_all && members <= kMostPeers) {
      f.sends.assign(words + kFingerprintWords, words + kFingerprintWords + members);
      f.expects.assign(words + kFingerprintWords + members, words + kFingerprintWords + 2 * members);
    }
    words += fingerprint_words(members);
  }
  return all;
}

std::string describe(const Fingerprint& f) {
  std::string text = op_name(f.op);
  if (f.op == CollectiveOp::barrier) return text;
  text += " of " + std::to_string(f.bytes) + (f.op == CollectiveOp::all_to_all ? " bytes a row " : " bytes ") +
          dtype_name(f.dtype);
  if (f.op == CollectiveOp::all_reduce && f.reduce == 1) text += " (max)";
  if (f.op == CollectiveOp::broadcast) text += " from member " + std::to_string(f.root);
  return text;
}

std::string disagreement(const std::vector<Fingerprint>& members, const std::vector<int>& ranks,
                         const std::string& group) {
  const std::string where = "operation " + std::to_string(members[0].seq) + " of group " + group;
  std::vector<std::pair<std::string, std::vector<int>>> calls;  // in the order of the first rank that calls so
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string call = describe(members[i]);
    auto found = std::find_if(calls.begin(), calls.end(), [&](const auto& known) { return known.first == call; });
    if (found == calls.end()) found = calls.insert(calls.end(), {call, {}});
    found->second.push_back(ranks[i]);
  }
  if (calls.size() > 1) {
    std::string text = "ranks disagree on " + where + ": ";
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto& [call, callers] = calls[i];
      text += i == 0 ? "rank" : ", rank";
      if (callers.size() > 1) text += "s";
      for (size_t k = 0; k < callers.size(); ++k) {
        if (k == 8 && callers.size() > 9) {
          text += " and " + std::to_string(callers.size() - k) + " more";
          break;
        }
        text += (k == 0 ? " " : ", ") + std::to_string(callers[k]);
      }
      text += (callers.size() > 1 ? " call " : " calls ") + call;
    }
    return text;
  }
  for (size_t from = 0; from < members.size(); ++from) {
    for (size_t to = 0; to < members[from].sends.size(); ++to) {
      const int64_t sent = members[from].sends[to], expected = members[to].expects[from];
      if (sent == expected) continue;
      return "ranks disagree on " + where + ", all_to_all: rank " + std::to_string(ranks[from]) + " sends " +
             std::to_string(sent) + " bytes to rank " + std::to_string(ranks[to]) + ", which expects " +
             std::to_string(expected);
    }
  }
  return "";
}

std::string disagreement(const Fingerprint& sent, int from_rank, const Fingerprint& expected, int to_rank,
                         const std::string& group) {
  if (sent.bytes == expected.bytes && sent.dtype == expected.dtype) return "";
  const auto size = [](const Fingerprint& f) { return std::to_string(f.bytes) + " bytes " + dtype_name(f.dtype); };
  return "ranks disagree on message " + std::to_string(expected.seq) + " of group " + group + ": rank " +
         std::to_string(from_rank) + " sends " + size(sent) + ", rank " + std::to_string(to_rank) + " receives " +
         size(expected);
}

}  // namespace taut::comm
