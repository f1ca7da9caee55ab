// The global gradient norm over every rank of the mesh, and the factor that clips to it.
#pragma once

#include "runtime/comm/process_group.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::optim {

/// 2-norm of the whole model's gradient, the same on every rank: every element counts once, whether tensor parallelism
/// or data parallelism replicates it, ZeRO shards it, an expert-parallel rank alone holds it, or the first and the last
/// stage share it. Gradients must be complete (GradientReduction::finish). Collective over the world. Any rank with a
/// NaN makes it NaN everywhere.
double global_grad_norm(const parallel::FlatParameters& flat, comm::Communicator& communicator);

/// min(1, limit / norm); 1 when limit is 0 (clipping off).
double clip_factor(double norm, double limit);

}  // namespace taut::optim
