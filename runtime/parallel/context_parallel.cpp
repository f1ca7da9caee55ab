#include "runtime/parallel/context_parallel.h"

#include "runtime/config/attention_mask.h"
#include "taut.h"

namespace taut::parallel {

at::Tensor take_sequence(const at::Tensor& full, int64_t dim, int cp_rank, int cp_size, config::Attention attention) {
  if (cp_size == 1) return full;
  const int64_t chunks = attention == config::Attention::sliding_window ? cp_size : 2 * cp_size;
  if (full.size(dim) % chunks != 0) {
    throw Error("a sequence of " + std::to_string(full.size(dim)) + " cannot be cut into " + std::to_string(chunks) +
                    " equal chunks for " + std::to_string(cp_size) + " context-parallel ranks",
                "make model.seq_length a multiple of 2 * parallel.context_parallel_size");
  }
  std::vector<at::Tensor> parts;
  for (const config::Interval& part : config::context_parallel_ranges(attention, full.size(dim), cp_rank, cp_size)) {
    parts.push_back(full.detach().narrow(dim, part.first, part.size()));
  }
  return at::cat(parts, dim);
}

at::Tensor local_positions(int64_t seq, int cp_rank, int cp_size, config::Attention attention) {
  return take_sequence(at::arange(seq, at::kLong), 0, cp_rank, cp_size, attention);
}

}  // namespace taut::parallel
