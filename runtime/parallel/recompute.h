// Activation checkpointing (Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174): of a part
// of the model only the input is kept; backward runs the part again to get the rest.
#pragma once

#include <torch/types.h>

#include <functional>

namespace taut::parallel {

/// f(input), keeping nothing for backward but `input` and f itself. Backward calls f once more, under the autocast
/// settings of the first call, and runs its backward, so that the gradients of the weights inside reach their leaves
/// and hooks. Gradients are bit-equal to those without recomputation.
///
/// f must be a pure function of its input and of weights that stay the same until backward: it is called twice, and the
/// copies of what it captured must still be valid then. No random state is kept: a dropout mask must be a function of
/// the sample (as in runtime/model). Communication inside f is issued again, so every member of the group must
/// recompute the same parts in the same order. Gradients flow to `input` and to leaves, not to other captured tensors
/// that have a history. Without grad mode this is f(input).
///
/// Backward must be plain `backward()` (leaves accumulate into .grad), not autograd.grad. Calls may be nested.
at::Tensor recompute(std::function<at::Tensor(const at::Tensor&)> f, const at::Tensor& input);

}  // namespace taut::parallel
