#include "runtime/model/attention_block.h"

#include <cmath>
#include <limits>

namespace taut::model {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Key or value heads repeated for each query head of their group.
at::Tensor for_each_head(const at::Tensor& grouped, int64_t heads) {
  const int64_t groups = grouped.size(1);
  return groups == heads ? grouped : grouped.repeat_interleave(heads / groups, 1);
}

at::Tensor sum_over_group(const at::Tensor& gradient, int64_t groups) {
  const int64_t heads = gradient.size(1);
  return groups == heads ? gradient : gradient.unflatten(1, {groups, heads / groups}).sum(2);
}

/// Scaled and masked scores in the type of the sums.
at::Tensor scores_of(const at::Tensor& query, const at::Tensor& key, const BlockMask& mask, at::ScalarType wide) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  at::Tensor scores = at::matmul(query.to(wide), key.to(wide).transpose(2, 3)).mul_(scale);
  if (mask.bias.defined()) {
    scores.add_(mask.bias);
  } else if (mask.causal) {
    scores.add_(band_bias(query.size(2), key.size(2), -query.size(2), 0, scores.options()));
  }
  return scores;
}

at::ScalarType sum_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

BlockOutput plain_forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const BlockMask& mask) {
  const at::ScalarType wide = sum_type(query);
  const at::Tensor scores = scores_of(query, for_each_head(key, query.size(1)), mask, wide);
  const at::Tensor log_sum_exp = scores.logsumexp(-1);
  const at::Tensor weights = (scores - log_sum_exp.unsqueeze(-1)).exp_();
  return {at::matmul(weights, for_each_head(value, query.size(1)).to(wide)).to(query.scalar_type()), log_sum_exp};
}

BlockGradients plain_backward(const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
                              const at::Tensor& value, const at::Tensor& output, const at::Tensor& log_sum_exp,
                              const BlockMask& mask) {
  const at::ScalarType wide = sum_type(query);
  const int64_t heads = query.size(1), groups = key.size(1);
  const double scale = 1.0 / std::sqrt(static_cast<double>(query.size(3)));
  const at::Tensor all_keys = for_each_head(key, heads).to(wide), all_values = for_each_head(value, heads).to(wide);
  const at::Tensor gradient = output_gradient.to(wide);
  const at::Tensor weights = (scores_of(query, all_keys, mask, wide) - log_sum_exp.unsqueeze(-1)).exp_();
  const at::Tensor delta = (gradient * output.to(wide)).sum(-1, /*keepdim=*/true);
  const at::Tensor score_gradient =
      (at::matmul(gradient, all_values.transpose(2, 3)) - delta).mul_(weights).mul_(scale);
  const at::ScalarType type = query.scalar_type();
  return {at::matmul(score_gradient, all_keys).to(type),
          sum_over_group(at::matmul(score_gradient.transpose(2, 3), query.to(wide)), groups).to(type),
          sum_over_group(at::matmul(weights.transpose(2, 3), gradient), groups).to(type)};
}

/// The memory-efficient kernels want a bias of full shape whose rows start at aligned addresses.
std::optional<at::Tensor> aligned_bias(const at::Tensor& query, const at::Tensor& key, const BlockMask& mask) {
  if (!mask.bias.defined()) return {};
  const int64_t keys = key.size(2), padded = (keys + 15) / 16 * 16;
  const at::Tensor rows = at::constant_pad_nd(mask.bias, {0, padded - keys}).narrow(1, 0, keys);
  return rows.expand({query.size(0), query.size(1), query.size(2), keys});
}

BlockOutput efficient_forward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const BlockMask& mask) {
  const int64_t heads = query.size(1);
  const auto result = at::_scaled_dot_product_efficient_attention(
      query, for_each_head(key, heads), for_each_head(value, heads), aligned_bias(query, key, mask),
      /*compute_log_sumexp=*/true, 0.0, mask.causal);
  // Its log-sum-exp is padded to a multiple of 32 queries.
  return {std::get<0>(result), std::get<1>(result).narrow(2, 0, query.size(2))};
}

BlockGradients efficient_backward(const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const at::Tensor& output, const at::Tensor& log_sum_exp,
                                  const BlockMask& mask) {
  const int64_t heads = query.size(1), groups = key.size(1), queries = query.size(2);
  const at::Tensor padded = at::constant_pad_nd(log_sum_exp, {0, (queries + 31) / 32 * 32 - queries}, kInfinity);
  const at::Tensor no_dropout = at::empty({}, at::kLong);
  const auto bias = aligned_bias(query, key, mask);
  const auto result = at::_scaled_dot_product_efficient_attention_backward(
      output_gradient, query, for_each_head(key, heads), for_each_head(value, heads), bias ? *bias : at::Tensor(),
      output, padded, no_dropout, no_dropout, 0.0, {true, true, true, false}, mask.causal);
  return {std::get<0>(result), sum_over_group(std::get<1>(result), groups),
          sum_over_group(std::get<2>(result), groups)};
}

std::optional<at::Tensor> optional_bias(const BlockMask& mask) {
  if (!mask.bias.defined()) return {};
  return mask.bias;
}

BlockGradients cpu_flash_backward(const at::Tensor& output_gradient, const at::Tensor& query, const at::Tensor& key,
                                  const at::Tensor& value, const at::Tensor& output, const at::Tensor& log_sum_exp,
                                  const BlockMask& mask) {
  const at::ScalarType given = query.scalar_type();
  const bool widen = backward_widens(BlockKernel::cpu_flash, query);
  const at::ScalarType type = widen ? at::kFloat : given;
  std::optional<at::Tensor> bias;
  if (mask.bias.defined()) bias = mask.bias.to(type);
  auto [for_query, for_key, for_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      output_gradient.to(type), query.to(type), key.to(type), value.to(type), output.to(type), log_sum_exp, 0.0,
      mask.causal, bias);
  return {for_query, for_key, for_value};
}

}  // namespace

at::Tensor band_bias(int64_t queries, int64_t keys, int64_t lower, int64_t upper, const at::TensorOptions& options) {
  const at::Tensor offset = at::arange(keys, options.dtype(at::kLong)).unsqueeze(0) -
                            at::arange(queries, options.dtype(at::kLong)).unsqueeze(1);
  return at::zeros({queries, keys}, options).masked_fill_((offset < lower).logical_or_(offset > upper), -kInfinity);
}

bool backward_widens(BlockKernel kernel, const at::Tensor& query) {
  if (kernel != BlockKernel::cpu_flash) return false;
  // Below 192 queries the kernel works in strips of 32, whose 16-bit products take up to twice as long as 32-bit ones
  // (AVX-512 without AMX); so do products with few columns. The copies are small beside that.
  const bool half = query.scalar_type() == at::kBFloat16 || query.scalar_type() == at::kHalf;
  return half && (query.size(2) < 192 || (query.size(2) < 512 && query.size(3) <= 32));
}

BlockKernel choose_kernel(const at::Tensor& query, const BlockMask& mask) {
  const at::ScalarType type = query.scalar_type();
  const bool half = type == at::kHalf || type == at::kBFloat16;
  const int64_t head_dim = query.size(3);
  if (query.is_cpu())
    return half || type == at::kFloat || type == at::kDouble ? BlockKernel::cpu_flash : BlockKernel::plain;
  if (query.is_cuda()) {
    if (half && head_dim % 8 == 0 && head_dim <= 256 && !mask.bias.defined()) return BlockKernel::cuda_flash;
    if ((half && head_dim % 8 == 0) || (type == at::kFloat && head_dim % 4 == 0)) return BlockKernel::cuda_efficient;
  }
  return BlockKernel::plain;
}

BlockOutput block_forward(BlockKernel kernel, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const BlockMask& mask) {
  switch (kernel) {
    case BlockKernel::cpu_flash: {
      auto [output, log_sum_exp] =
          at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, mask.causal, optional_bias(mask));
      return {output, log_sum_exp};
    }
    case BlockKernel::cuda_flash: {
      const auto result = at::_scaled_dot_product_flash_attention(query, key, value, 0.0, mask.causal);
      return {std::get<0>(result), std::get<1>(result)};
    }
    case BlockKernel::cuda_efficient:
      return efficient_forward(query, key, value, mask);
    case BlockKernel::plain:
      break;
  }
  return plain_forward(query, key, value, mask);
}

BlockGradients block_backward(BlockKernel kernel, const at::Tensor& output_gradient, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value, const at::Tensor& output,
                              const at::Tensor& log_sum_exp, const BlockMask& mask) {
  switch (kernel) {
    case BlockKernel::cpu_flash:
      return cpu_flash_backward(output_gradient, query, key, value, output, log_sum_exp, mask);
    case BlockKernel::cuda_flash: {
      const at::Tensor no_dropout = at::empty({2}, query.options().dtype(at::kUInt64));
      auto [for_query, for_key, for_value] = at::_scaled_dot_product_flash_attention_backward(
          output_gradient, query, key, value, output, log_sum_exp.contiguous(), at::Tensor(), at::Tensor(),
          query.size(2), key.size(2), 0.0, mask.causal, no_dropout, no_dropout);
      return {for_query, for_key, for_value};
    }
    case BlockKernel::cuda_efficient:
      return efficient_backward(output_gradient, query, key, value, output, log_sum_exp, mask);
    case BlockKernel::plain:
      break;
  }
  return plain_backward(output_gradient, query, key, value, output, log_sum_exp, mask);
}

void merge_block(const at::Tensor& output, const at::Tensor& log_sum_exp, const BlockOutput& block) {
  const at::Tensor weight = (block.log_sum_exp - log_sum_exp).sigmoid_().to(output.scalar_type());
  output.lerp_(block.output.to(output.scalar_type()), weight.unsqueeze(-1));
  log_sum_exp.copy_(at::logaddexp(log_sum_exp, block.log_sum_exp));
}

}  // namespace taut::model
