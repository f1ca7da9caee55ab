// The global gradient norm over every rank of the mesh, and the factor that clips to it.
#pragma once

#include "runtime/comm/process_group.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::optim {

/// 2-norm of the whole model's gradient, the same on every rank: parameters that tensor parallelism replicates count
/// once, and so does the embedding that the first and the last stage share. Gradients must be reduced over dp already.
/// Collective over tp and pp. Any rank with a NaN makes it NaN everywhere.
double global_grad_norm(const parallel::FlatParameters& flat, comm::Communicator& communicator);

/// min(1, limit / norm); 1 when limit is 0 (clipping off).
double clip_factor(double norm, double limit);

}  // namespace taut::optim
