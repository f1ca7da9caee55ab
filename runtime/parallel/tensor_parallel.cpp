#include "runtime/parallel/tensor_parallel.h"

#include <ATen/autocast_mode.h>

#include "runtime/parallel/linear.h"

namespace taut::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// autograd's context saves plain values only; the layers' owner keeps the TensorParallel alive.
void keep(AutogradContext* ctx, TensorParallel* tp) {
  ctx->saved_data["tp"] = reinterpret_cast<int64_t>(tp);
}
TensorParallel& kept(AutogradContext* ctx) {
  return *reinterpret_cast<TensorParallel*>(ctx->saved_data["tp"].toInt());
}
void keep(AutogradContext* ctx, comm::ContentTag tag) {
  ctx->saved_data["id"] = tag.id;
  ctx->saved_data["version"] = tag.version;
  ctx->saved_data["reason"] = static_cast<int64_t>(tag.reason);
}
comm::ContentTag kept_tag(AutogradContext* ctx) {
  return {ctx->saved_data["id"].toInt(), ctx->saved_data["version"].toInt(),
          static_cast<comm::Reason>(ctx->saved_data["reason"].toInt())};
}

// Passing through: nobody keeps it, so that no version identifies it.
constexpr comm::ContentTag kActivation{.reason = comm::Reason::activation},
    kActivationGradient{.reason = comm::Reason::activation_gradient};

at::Tensor gather_last_dimension(const at::Tensor& part, TensorParallel& tp, comm::ContentTag tag) {
  const at::Tensor input = part.contiguous();
  std::vector<int64_t> stacked = input.sizes().vec(), whole = stacked;
  stacked[0] *= tp.size();
  whole.back() *= tp.size();
  const at::Tensor output = at::empty(stacked, input.options());
  comm::all_gather_into_tensor(*tp.group, output, input, tag);
  return output.unflatten(0, {tp.size(), input.size(0)}).movedim(0, -2).reshape(whole);
}

at::Tensor own_part(const at::Tensor& whole, TensorParallel& tp, comm::ContentTag tag) {
  const int64_t part = whole.size(-1) / tp.size();
  const int64_t bytes_total = static_cast<int64_t>(whole.nbytes());
  comm::mark_tensor_use(*tp.group, tag, bytes_total / tp.size(), bytes_total);
  return whole.narrow(-1, part * tp.rank(), part).contiguous();
}

// Collectives work on the first dimension: the parts of [batch, seq, n] travel as [tp, batch, seq/tp, n].
at::Tensor gathered_sequence(const at::Tensor& part, TensorParallel& tp, comm::ContentTag tag) {
  const at::Tensor input = part.contiguous();
  const int64_t batch = input.size(0), length = input.size(1), width = input.size(2);
  const at::Tensor parts = at::empty({tp.size(), batch, length, width}, input.options());
  comm::all_gather_into_tensor(*tp.group, parts.flatten(0, 1), input, tag);
  return parts.transpose(0, 1).reshape({batch, tp.size() * length, width});
}

at::Tensor reduce_scattered_sequence(const at::Tensor& whole, TensorParallel& tp, comm::ContentTag tag) {
  const int64_t batch = whole.size(0), length = whole.size(1) / tp.size(), width = whole.size(2);
  const at::Tensor parts = whole.view({batch, tp.size(), length, width}).transpose(0, 1).contiguous();
  const at::Tensor own = at::empty({batch, length, width}, whole.options());
  comm::reduce_scatter(*tp.group, own, parts.flatten(0, 1), tag);
  return own;
}

at::Tensor own_sequence(const at::Tensor& whole, TensorParallel& tp) {
  const int64_t length = whole.size(1) / tp.size();
  return whole.narrow(1, length * tp.rank(), length).contiguous();
}

struct GatherSequence : torch::autograd::Function<GatherSequence> {
  static Variable forward(AutogradContext* ctx, const Variable& input, TensorParallel* tp, bool gradient_is_complete) {
    keep(ctx, tp);
    ctx->saved_data["complete"] = gradient_is_complete;
    return gathered_sequence(input, *tp, kActivation);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    TensorParallel& tp = kept(ctx);
    const at::Tensor whole = gradients[0].contiguous();
    const bool complete = ctx->saved_data["complete"].toBool();
    return {complete ? own_sequence(whole, tp) : reduce_scattered_sequence(whole, tp, kActivationGradient), Variable(),
            Variable()};
  }
};

struct ScatterSequence : torch::autograd::Function<ScatterSequence> {
  static Variable forward(AutogradContext* ctx, const Variable& input, TensorParallel* tp, bool partial_sums) {
    keep(ctx, tp);
    const at::Tensor whole = input.contiguous();
    return partial_sums ? reduce_scattered_sequence(whole, *tp, kActivation) : own_sequence(whole, *tp);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {gathered_sequence(gradients[0], kept(ctx), kActivationGradient), Variable(), Variable()};
  }
};

/// What autocast would cast a product's input to: cast before it travels, half the bytes travel.
at::Tensor in_compute_type(const at::Tensor& input) {
  const at::DeviceType device = input.device().type();
  return at::autocast::is_autocast_enabled(device) ? input.to(at::autocast::get_autocast_dtype(device)) : input;
}

struct CopyToTensorParallel : torch::autograd::Function<CopyToTensorParallel> {
  static Variable forward(AutogradContext* ctx, const Variable& input, TensorParallel* tp) {
    keep(ctx, tp);
    return input.view_as(input);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    // autograd may hand the same buffer to others; the reduction works in place.
    const at::Tensor sum = gradients[0].clone(at::MemoryFormat::Contiguous);
    comm::all_reduce(*kept(ctx).group, sum, comm::Reduce::sum, {.reason = comm::Reason::activation_gradient});
    return {sum, Variable()};
  }
};

struct ReduceFromTensorParallel : torch::autograd::Function<ReduceFromTensorParallel> {
  static Variable forward(AutogradContext*, const Variable& input, TensorParallel* tp) {
    const at::Tensor sum = input.clone(at::MemoryFormat::Contiguous);
    comm::all_reduce(*tp->group, sum, comm::Reduce::sum, {.reason = comm::Reason::activation});
    return sum;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return {gradients[0], Variable()}; }
};

struct GatherFromTensorParallel : torch::autograd::Function<GatherFromTensorParallel> {
  static Variable forward(AutogradContext* ctx, const Variable& input, TensorParallel* tp, comm::ContentTag tag,
                          comm::ContentTag gradient_tag) {
    keep(ctx, tp);
    keep(ctx, gradient_tag);
    return gather_last_dimension(input, *tp, tag);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {own_part(gradients[0], kept(ctx), kept_tag(ctx)), Variable(), Variable(), Variable()};
  }
};

struct SliceToTensorParallel : torch::autograd::Function<SliceToTensorParallel> {
  static Variable forward(AutogradContext* ctx, const Variable& input, TensorParallel* tp, comm::ContentTag tag,
                          comm::ContentTag gradient_tag) {
    keep(ctx, tp);
    keep(ctx, gradient_tag);
    return own_part(input, *tp, tag);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {gather_last_dimension(gradients[0], kept(ctx), kept_tag(ctx)), Variable(), Variable(), Variable()};
  }
};

struct VocabParallelCrossEntropy : torch::autograd::Function<VocabParallelCrossEntropy> {
  static Variable forward(AutogradContext* ctx, const Variable& logits, const Variable& labels, int64_t vocab,
                          TensorParallel* tp) {
    const int64_t rows = logits.size(-1), first = rows * tp->rank();
    const int64_t held = std::clamp<int64_t>(vocab - first, 0, rows);
    at::Tensor shifted = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
    if (held < rows) shifted.narrow(-1, held, rows - held).fill_(-std::numeric_limits<float>::infinity());
    at::Tensor largest = std::get<0>(shifted.max(-1));
    comm::all_reduce(*tp->group, largest, comm::Reduce::max, {.reason = comm::Reason::loss});
    shifted.sub_(largest.unsqueeze(-1));

    const at::Tensor is_masked = labels < 0;
    const at::Tensor is_here = (labels >= first).logical_and(labels < first + held);
    const at::Tensor index = at::where(is_here, labels - first, at::zeros_like(labels)).unsqueeze(-1);
    const at::Tensor here = is_here.to(at::kFloat);
    const at::Tensor label_logit = shifted.gather(-1, index).squeeze(-1);
    shifted.exp_();
    // A rank that holds padding alone has −inf as label logit; it is not the label's owner.
    const at::Tensor sums = at::stack({shifted.sum(-1), at::where(is_here, label_logit, at::zeros_like(label_logit))});
    comm::all_reduce(*tp->group, sums, comm::Reduce::sum, {.reason = comm::Reason::loss});
    shifted.div_(sums[0].unsqueeze(-1));
    ctx->save_for_backward({shifted, index, here, is_masked});
    ctx->saved_data["dtype"] = static_cast<int64_t>(logits.scalar_type());
    return (sums[0].log() - sums[1]).masked_fill_(is_masked, 0);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    at::Tensor gradient = saved[0].scatter_add(-1, saved[1], saved[2].neg().unsqueeze(-1));
    gradient.mul_(gradients[0].masked_fill(saved[3], 0).unsqueeze(-1));
    const auto dtype = static_cast<at::ScalarType>(ctx->saved_data["dtype"].toInt());
    return {gradient.to(dtype), Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor copy_to_tensor_parallel(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : CopyToTensorParallel::apply(input, &tp);
}

at::Tensor reduce_from_tensor_parallel(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : ReduceFromTensorParallel::apply(input, &tp);
}

at::Tensor gather_from_tensor_parallel(const at::Tensor& input, TensorParallel& tp, comm::ContentTag tag,
                                       comm::ContentTag gradient_tag) {
  return tp.size() == 1 ? input : GatherFromTensorParallel::apply(input, &tp, tag, gradient_tag);
}

at::Tensor slice_to_tensor_parallel(const at::Tensor& input, TensorParallel& tp, comm::ContentTag tag,
                                    comm::ContentTag gradient_tag) {
  return tp.size() == 1 ? input : SliceToTensorParallel::apply(input, &tp, tag, gradient_tag);
}

at::Tensor gather_sequence(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : GatherSequence::apply(input, &tp, /*gradient_is_complete=*/false);
}

at::Tensor gather_sequence_split(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : GatherSequence::apply(input, &tp, /*gradient_is_complete=*/true);
}

at::Tensor reduce_scatter_sequence(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : ScatterSequence::apply(input, &tp, /*partial_sums=*/true);
}

at::Tensor scatter_sequence(const at::Tensor& input, TensorParallel& tp) {
  return tp.size() == 1 ? input : ScatterSequence::apply(input, &tp, /*partial_sums=*/false);
}

ColumnParallelLinear::ColumnParallelLinear(const std::string& name, at::Tensor weight, TensorParallel& tp)
    : weight_(std::move(weight)), tp_(&tp) {
  const std::string here = name + "@tp" + (tp.group ? tp.group->name() : std::string());
  output_id_ = comm::content_id(here + ".output");
  gradient_id_ = comm::content_id(here + ".output_gradient");
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& input) {
  const at::Tensor whole =
      tp_->sequence_parallel ? gather_sequence(in_compute_type(input), *tp_) : copy_to_tensor_parallel(input, *tp_);
  const at::Tensor output = parallel::linear(whole, weight_);
  if (!tp_->gather_output) return output;
  const int64_t version = ++calls_;
  const comm::ContentTag tag{output_id_, version, comm::Reason::activation},
      gradient_tag{gradient_id_, version, comm::Reason::activation_gradient};
  return slice_to_tensor_parallel(gather_from_tensor_parallel(output, *tp_, tag, gradient_tag), *tp_, tag,
                                  gradient_tag);
}

at::Tensor RowParallelLinear::forward(const at::Tensor& input) const {
  const at::Tensor partial = parallel::linear(input, weight_);
  return tp_->sequence_parallel ? reduce_scatter_sequence(partial, *tp_) : reduce_from_tensor_parallel(partial, *tp_);
}

at::Tensor vocab_parallel_embedding(const at::Tensor& weight, const at::Tensor& tokens, TensorParallel& tp) {
  if (tp.size() == 1) return at::embedding(weight, tokens);
  const int64_t rows = weight.size(0), first = rows * tp.rank();
  const at::Tensor elsewhere = (tokens < first).logical_or(tokens >= first + rows);
  const at::Tensor index = (tokens - first).masked_fill(elsewhere, 0);
  const at::Tensor part = at::embedding(weight, index).masked_fill(elsewhere.unsqueeze(-1), 0);
  return tp.sequence_parallel ? reduce_scatter_sequence(part, tp) : reduce_from_tensor_parallel(part, tp);
}

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t vocab,
                                        TensorParallel& tp) {
  if (tp.size() == 1) {
    return at::cross_entropy_loss(logits.to(at::kFloat), labels, {}, at::Reduction::None, /*ignore_index=*/-1);
  }
  return VocabParallelCrossEntropy::apply(logits, labels, vocab, &tp);
}

}  // namespace taut::parallel
