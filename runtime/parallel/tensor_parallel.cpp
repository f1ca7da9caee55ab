#include "runtime/parallel/tensor_parallel.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "runtime/parallel/element.h"
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

kernels::Logits logits_of(const at::Tensor& logits, const at::Tensor& labels, int64_t vocab, int64_t rank) {
  const int64_t width = logits.size(-1), first = width * rank;
  return {logits.data_ptr(),
          element_of(logits),
          logits.size(0),
          width,
          std::clamp<int64_t>(vocab - first, 0, width),
          first,
          labels.const_data_ptr<int64_t>()};
}

/// Calls `part` with the logits' rows from `first` on, a share of them per thread.
template <class Part>
void for_rows(const kernels::Logits& logits, Part part) {
  at::parallel_for(0, logits.rows, std::max<int64_t>(1, 16384 / logits.width), [&](int64_t first, int64_t last) {
    kernels::Logits rows = logits;
    rows.values = static_cast<char*>(logits.values) + first * logits.width * kernels::bytes_of(logits.type);
    rows.labels += first;
    rows.rows = last - first;
    part(first, rows);
  });
}

// Everything runs on the default stream, which is stream 0. A dry run's tensors have shapes alone: nothing to compute.
struct VocabParallelCrossEntropy : torch::autograd::Function<VocabParallelCrossEntropy> {
  static Variable forward(AutogradContext* ctx, const Variable& input, const Variable& targets, int64_t vocab,
                          TensorParallel* tp) {
    const at::Tensor logits = input.contiguous(), labels = targets.contiguous();
    const at::Tensor statistics = at::empty({3, logits.size(0)}, logits.options().dtype(at::kFloat));
    if (!logits.is_meta()) {
      const kernels::Logits work = logits_of(logits, labels, vocab, tp->rank());
      float *largest = statistics[0].data_ptr<float>(), *sum = statistics[1].data_ptr<float>(),
            *label = statistics[2].data_ptr<float>();
      if (logits.is_cuda()) {
        kernels::cross_entropy_forward_cuda(work, {largest, sum, label});
      } else {
        for_rows(work, [&](int64_t first, const kernels::Logits& rows) {
          kernels::cross_entropy_forward_cpu(rows, {largest + first, sum + first, label + first});
        });
      }
    }
    at::Tensor largest = statistics[0], sums = statistics.narrow(0, 1, 2);
    if (tp->size() > 1) {
      largest = largest.clone();
      comm::all_reduce(*tp->group, largest, comm::Reduce::max, {.reason = comm::Reason::loss});
      sums[0].mul_((statistics[0] - largest).exp_());
      comm::all_reduce(*tp->group, sums, comm::Reduce::sum, {.reason = comm::Reason::loss});
    }
    const at::Tensor log_sum_exp = sums[0].log().add_(largest);
    ctx->save_for_backward({logits, labels, log_sum_exp});
    ctx->saved_data["vocab"] = vocab;
    ctx->saved_data["rank"] = static_cast<int64_t>(tp->rank());
    return (log_sum_exp - sums[1]).masked_fill_(labels < 0, 0);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor logits = saved[0].detach(), &labels = saved[1], &log_sum_exp = saved[2];
    const at::Tensor gradient = gradients[0].contiguous();
    if (!logits.is_meta()) {
      const kernels::Logits work =
          logits_of(logits, labels, ctx->saved_data["vocab"].toInt(), ctx->saved_data["rank"].toInt());
      const float *joined = log_sum_exp.const_data_ptr<float>(), *scale = gradient.const_data_ptr<float>();
      if (logits.is_cuda()) {
        kernels::cross_entropy_backward_cuda(work, joined, scale);
      } else {
        for_rows(work, [&](int64_t first, const kernels::Logits& rows) {
          kernels::cross_entropy_backward_cpu(rows, joined + first, scale + first);
        });
      }
    }
    return {logits, Variable(), Variable(), Variable()};
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

at::ScalarType ColumnParallelLinear::input_type() const {
  const at::DeviceType device = weight_.device().type();
  const bool casts_first = tp_->sequence_parallel || tp_->size() == 1;
  return casts_first && at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device)
                                                                  : at::kFloat;
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
  return VocabParallelCrossEntropy::apply(logits, labels, vocab, &tp);
}

}  // namespace taut::parallel
