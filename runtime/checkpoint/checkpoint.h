// Saving and resuming a run in the layout in which it was trained.
//
//   DIR/step-N/meta.json                                N = steps done; layout, model, data position
//   DIR/step-N/weights-tp<t>-pp<p>.safetensors          this shard's parameters under their global names
//   DIR/step-N/optimizer-tp<t>-pp<p>.safetensors        "<name>.moment1" and "<name>.moment2"
// With expert parallelism names end in "-ep<e>": rank ep 0 of a replica has the dense parameters and its experts, the
// others their experts.
//
// Everything is written to DIR/.step-N.tmp, flushed, and renamed once every rank is done: a checkpoint is whole or not
// there. What ZeRO has divided is gathered first, bucket by bucket, so that files do not depend on it. On tp = pp = ep
// = 1 the weights file is the whole model. A resumed run continues bit for bit: the data position, the learning rate
// and dropout follow from the step alone. Data- and context-parallel sizes and the ZeRO stage may change between runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/comm/process_group.h"
#include "runtime/config/config.h"
#include "runtime/optim/adamw.h"
#include "runtime/optim/loss_scaler.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::checkpoint {

/// What a checkpoint is made of, on this rank.
struct State {
  parallel::FlatParameters& flat;
  optim::AdamW& optimizer;
  optim::LossScaler& scaler;
};

/// Collective over all ranks. Keeps the `config.checkpoint.keep` newest checkpoints (0 = all). Returns the bytes that
/// this rank wrote. Throws taut::Error on the rank that fails.
int64_t save(const config::Config& config, int64_t steps_done, const State& state, comm::Communicator& communicator);

/// Steps done of the newest whole checkpoint in `dir`; none when there is none.
std::optional<int64_t> newest(const std::filesystem::path& dir);

/// Restores this rank's shard from DIR/step-N. Throws taut::Error when the checkpoint was made in another layout, for
/// another model or batch, or is broken; parameters are then undefined.
void load(const config::Config& config, int64_t steps_done, const State& state, comm::Communicator& communicator);

}  // namespace taut::checkpoint
