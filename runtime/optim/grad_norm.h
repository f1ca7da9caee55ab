// The global gradient norm over every rank of the mesh, and the factor that clips to it.
#pragma once

#include "runtime/comm/process_group.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::optim {

/// This rank's part of the squared 2-norm of the whole model's gradient, fp64 [1]: summed over the world every element
/// counts once, whether tensor parallelism or data parallelism replicates it, ZeRO shards it, an expert-parallel rank
/// alone holds it, or the first and the last stage share it. Gradients must be complete (GradientReduction::finish).
at::Tensor squared_grad_norm(const parallel::FlatParameters& flat, int tp_rank);

/// min(1, limit / norm); 1 when limit is 0 (clipping off).
double clip_factor(double norm, double limit);

}  // namespace taut::optim
