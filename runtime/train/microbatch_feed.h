// Brings each microbatch's tokens to the ranks that need them: the first and the last pipeline stage. There the rank
// with tp = 0 has the loader and broadcasts over its tp group; the other stages have nothing to fetch.
#pragma once

#include <torch/types.h>

#include <memory>

#include "runtime/comm/process_group.h"
#include "runtime/config/config.h"
#include "runtime/data/loader.h"

namespace taut::train {

class MicrobatchFeed {
 public:
  /// Starts the loader where this rank has one. `communicator` must outlive the feed.
  MicrobatchFeed(const config::Config& config, comm::Communicator& communicator, at::Device device, int64_t first_step);

  /// The next microbatch's tokens [batch, seq + 1] int64: inputs are columns 0 … seq − 1, labels 1 … seq. Collective
  /// over tp. Throws taut::Error when the loader fails or is out of step with the trainer.
  at::Tensor next(int64_t step, int microbatch);

 private:
  comm::Communicator& communicator_;
  at::Device device_;
  std::vector<int64_t> shape_;
  bool needed_;
  std::unique_ptr<data::Loader> loader_;
};

}  // namespace taut::train
