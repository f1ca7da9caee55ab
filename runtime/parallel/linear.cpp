#include "runtime/parallel/linear.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <string>

#include "taut.h"

namespace taut::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

thread_local DeferredWeightGradients* t_active = nullptr;

at::Tensor rows_of(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.reshape({-1, tensor.size(-1)});
}

/// The products are those that at::linear and its backward make, so that the bits are the same. The leaf is hidden from
/// autograd (which looks at tensor arguments, not at pointers): its gradient comes from the queue.
struct DeferringLinear : torch::autograd::Function<DeferringLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& input, const at::Tensor& product_weight,
                          const at::Tensor* leaf, DeferredWeightGradients* queue) {
    ctx->save_for_backward({input, product_weight});
    ctx->saved_data["leaf"] = *leaf;
    ctx->saved_data["queue"] = reinterpret_cast<int64_t>(queue);
    std::vector<int64_t> shape = input.sizes().vec();
    shape.back() = product_weight.size(0);
    return at::_unsafe_view(at::mm(rows_of(input), product_weight.t()), shape);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1];
    const at::Tensor output_gradient = rows_of(gradients[0]);
    reinterpret_cast<DeferredWeightGradients*>(ctx->saved_data["queue"].toInt())
        ->add({rows_of(input), output_gradient, ctx->saved_data["leaf"].toTensor()});
    return {at::mm(output_gradient, weight).view(input.sizes()), Variable(), Variable(), Variable()};
  }
};

void accumulate(const at::Tensor& leaf, const at::Tensor& gradient) {
  at::Tensor& sum = leaf.mutable_grad();
  if (sum.defined()) {
    sum.add_(gradient);
  } else {
    sum = gradient.to(leaf.scalar_type());
  }
}

}  // namespace

DeferredWeightGradients::Scope::Scope(DeferredWeightGradients& queue) : before_(t_active) {
  t_active = &queue;
}
DeferredWeightGradients::Scope::~Scope() {
  t_active = before_;
}

void DeferredWeightGradients::finish_backward(int chunk, int microbatch) {
  finished_[{chunk, microbatch}] = std::move(current_);
  current_.clear();
}

void DeferredWeightGradients::run(int chunk, int microbatch) {
  auto node = finished_.extract({chunk, microbatch});
  if (node.empty()) {
    throw Error("weight gradients of microbatch " + std::to_string(microbatch) + ", chunk " + std::to_string(chunk) +
                " before its backward");
  }
  const at::NoGradGuard no_grad;
  auto& pending = node.mapped();
  for (size_t i = 0; i < pending.size(); ++i) {
    const at::Tensor leaf = pending[i].weight;
    // Cast first: autograd adds in the leaf's dtype.
    accumulate(leaf, at::mm(pending[i].output_gradient.t(), pending[i].input).to(leaf.scalar_type()));
    pending[i] = {};
    const bool comes_again = std::any_of(pending.begin() + static_cast<std::ptrdiff_t>(i) + 1, pending.end(),
                                         [&](const PendingWeightGradient& p) { return p.weight.is_same(leaf); });
    if (comes_again) continue;
    if (const auto& hook = torch::autograd::impl::post_acc_grad_hooks(leaf)) (*hook)(leaf);
  }
}

int64_t DeferredWeightGradients::bytes() const {
  int64_t bytes = 0;
  const auto count = [&](const std::vector<PendingWeightGradient>& list) {
    for (const PendingWeightGradient& p : list) {
      bytes += static_cast<int64_t>(p.input.nbytes() + p.output_gradient.nbytes());
    }
  };
  count(current_);
  for (const auto& [key, list] : finished_) count(list);
  return bytes;
}

at::Tensor as_product_operand(const at::Tensor& tensor) {
  const at::DeviceType type = tensor.device().type();
  if (!at::autocast::is_autocast_enabled(type)) return tensor;
  return at::autocast::cached_cast(at::autocast::get_autocast_dtype(type), tensor, type);
}

bool weight_gradients_are_deferred() {
  return t_active && at::GradMode::is_enabled();
}

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight) {
  const bool defers = t_active && at::GradMode::is_enabled() && input.requires_grad() && weight.requires_grad() &&
                      weight.is_leaf() && input.dim() >= 2;
  if (!defers) return at::linear(input, weight);
  return DeferringLinear::apply(as_product_operand(input), as_product_operand(weight).detach(), &weight, t_active);
}

}  // namespace taut::parallel
