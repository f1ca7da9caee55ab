#include "runtime/parallel/flat_parameters.h"

namespace taut::parallel {

at::Tensor take_shard(const at::Tensor& full, const Shard& shard, int tp_rank, int tp_size) {
  if (shard.dim < 0 || tp_size == 1) return full.contiguous().clone();
  std::vector<at::Tensor> pieces;
  int64_t start = 0;
  for (const int64_t block : shard.blocks) {
    const int64_t piece = (block + tp_size - 1) / tp_size;
    const int64_t first = std::min(block, piece * tp_rank), last = std::min(block, first + piece);
    pieces.push_back(full.narrow(shard.dim, start + first, last - first));
    if (last - first < piece) {
      std::vector<int64_t> padding = full.sizes().vec();
      padding[shard.dim] = piece - (last - first);
      pieces.push_back(at::zeros(padding, full.options()));
    }
    start += block;
  }
  return at::cat(pieces, shard.dim).contiguous();
}

FlatParameters flatten(std::vector<Parameter> parameters) {
  constexpr int64_t kAlignment = 16;  // elements of 4 bytes
  FlatParameters flat;
  flat.parameters = std::move(parameters);
  int64_t total = 0;
  for (size_t i = flat.parameters.size(); i-- > 0;) {
    const int64_t count = flat.parameters[i].value.numel();
    flat.spans.push_back({total, count, i});
    total += (count + kAlignment - 1) / kAlignment * kAlignment;
  }
  const auto options = at::TensorOptions()
                           .dtype(at::kFloat)
                           .device(flat.parameters.empty() ? at::Device(at::kCPU) : flat.parameters[0].value.device());
  flat.values = at::zeros({total}, options);
  flat.gradients = at::zeros({total}, options);
  const at::NoGradGuard no_grad;
  for (const Span& span : flat.spans) {
    at::Tensor& value = flat.parameters[span.parameter].value;
    const auto shape = value.sizes().vec();
    const at::Tensor home = flat.values.narrow(0, span.offset, span.count).view(shape);
    home.copy_(value);
    value.set_data(home);
    value.mutable_grad() = flat.gradients.narrow(0, span.offset, span.count).view(shape);
  }
  return flat;
}

}  // namespace taut::parallel
