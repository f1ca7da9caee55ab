#include "runtime/optim/grad_norm.h"

#include <algorithm>
namespace taut::optim {

at::Tensor squared_grad_norm(const parallel::FlatParameters& flat, int tp_rank) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  for (const parallel::Bucket& bucket : flat.buckets) {
    // Without ZeRO every member of the group has the whole bucket.
    if (bucket.slices == 1 && bucket.group && bucket.group->rank() != 0) continue;
    const int64_t own_first = bucket.own_offset(), own_last = own_first + bucket.own_count();
    int64_t first = 0, end = 0;
    const auto close_range = [&] {
      const int64_t from = std::max(first, own_first), to = std::min(end, own_last);
      if (from >= to) return;
      const at::Tensor range = bucket.own_gradients.narrow(0, from - own_first, to - from);
      squares.push_back(at::dot(range, range));
    };
    // Neighbouring spans that count are summed in one go; the gaps between them are zero.
    for (const parallel::Span& span : bucket.spans) {
      const parallel::Parameter& parameter = flat.parameters[span.parameter];
      const bool counts = !parameter.second_copy && (parameter.shard.dim >= 0 || tp_rank == 0);
      if (counts) {
        if (end == first) first = span.offset;
        end = span.offset + span.count;
      } else {
        close_range();
        first = end = span.offset + span.count;
      }
    }
    close_range();
  }
  const auto fp64 = at::TensorOptions().dtype(at::kDouble).device(flat.buckets.front().own_gradients.device());
  return squares.empty() ? at::zeros({1}, fp64) : at::stack(squares).to(at::kDouble).sum().reshape({1});
}

double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace taut::optim
