// The linear layer of the parallel layers, whose weight gradient may wait: zero-bubble pipelines (Qi et al., arXiv
// 2401.10241) compute the input's gradient first, because the stage before needs it, and the weights' later, when they
// would otherwise idle.
#pragma once

#include <torch/types.h>

#include <map>
#include <utility>
#include <vector>

namespace taut::parallel {

/// What a weight gradient is computed from: dW = output_gradientᵀ · input.
struct PendingWeightGradient {
  at::Tensor input;            // [rows, in], in the dtype of the product
  at::Tensor output_gradient;  // [rows, out], likewise
  at::Tensor weight;           // the leaf [out, in]
};

/// Collects weight gradients instead of computing them. Forward passes that run inside a `Scope` defer: their backward
/// queues here. One object per pipeline stage; used from one thread at a time (autograd's device thread while backward
/// runs, the trainer's else), and it outlives every graph made inside its scopes.
///
///   { DeferredWeightGradients::Scope scope(deferred); output = stage.forward(input); }    // F
///   output.backward(gradient); deferred.finish_backward(chunk, microbatch);               // B
///   …
///   deferred.run(chunk, microbatch);                                                      // W
class DeferredWeightGradients {
 public:
  /// While it lives, linear() on this thread defers to the queue. Scopes nest; the inner one counts.
  class Scope {
   public:
    explicit Scope(DeferredWeightGradients& queue);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredWeightGradients* before_;
  };

  /// After a backward: keeps what it queued under (chunk, microbatch).
  void finish_backward(int chunk, int microbatch);
  /// Computes the kept gradients in the order in which backward met them, adds each to its leaf's .grad as autograd
  /// would (the same bits), runs the leaf's post-accumulate-grad hook once, after the leaf's last one, and frees what
  /// was kept. Throws taut::Error when that backward has not been finished.
  void run(int chunk, int microbatch);

  /// Bytes that wait: inputs and output gradients.
  int64_t bytes() const;

  void add(PendingWeightGradient pending) { current_.push_back(std::move(pending)); }

 private:
  std::vector<PendingWeightGradient> current_;                                  // of the backward that runs
  std::map<std::pair<int, int>, std::vector<PendingWeightGradient>> finished_;  // by (chunk, microbatch)
};

/// `tensor` as autocast would hand it to a matrix product, differentiable; a leaf's cast comes from autocast's cache.
at::Tensor as_product_operand(const at::Tensor& tensor);

/// Whether linear() would defer a leaf's gradient now.
bool weight_gradients_are_deferred();

/// input [.., in] · weightᵀ [out, in] -> [.., out]: at::linear without a bias, under autocast too. Inside a
/// DeferredWeightGradients::Scope the backward of a leaf weight is deferred, and `weight` gets no gradient from
/// autograd; where the input needs no gradient, or the weight is no leaf, it is not deferred. Call it
/// qualified (parallel::linear): argument-dependent lookup finds at::linear as well.
at::Tensor linear(const at::Tensor& input, const at::Tensor& weight);

}  // namespace taut::parallel
