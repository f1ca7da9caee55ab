#include "runtime/parallel/context_parallel.h"

#include "runtime/config/attention_mask.h"

namespace taut::parallel {

at::Tensor take_sequence(const at::Tensor& full, int64_t dim, int cp_rank, int cp_size, config::Attention attention) {
  if (cp_size == 1) return full;
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
