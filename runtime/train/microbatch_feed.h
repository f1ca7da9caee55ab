// Brings each microbatch's tokens to the ranks that need them: the first and the last pipeline stage. There the rank
// with tp = 0 and cp = 0 has the loader and broadcasts to the others of its replica; the other stages have nothing to
// fetch.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/config/config.h"
#include "runtime/data/loader.h"
#include "runtime/train/pinned_memory.h"

namespace taut::train {

/// int64 [batch, seq_cp] each: what this rank's part of the sequence reads and should predict. Labels of masked tokens
/// are −1.
struct Tokens {
  at::Tensor inputs, labels;
};

class MicrobatchFeed {
 public:
  /// Starts the loader where this rank has one. `communicator` must outlive the feed.
  MicrobatchFeed(const config::Config& config, comm::Communicator& communicator, at::Device device, int64_t first_step);

  /// The next microbatch: inputs are tokens 0 … seq − 1 of each sample, labels 1 … seq. Collective over tp and cp.
  /// Throws taut::Error when the loader fails or is out of step with the trainer.
  Tokens next(int64_t step, int microbatch);

 private:
  at::Tensor load(int64_t step, int microbatch);

  comm::Communicator& communicator_;
  at::Device device_;
  std::vector<int64_t> shape_;
  config::Attention attention_;
  std::optional<int64_t> end_of_document_;  // the label that is masked
  bool needed_;
  std::unique_ptr<data::Loader> loader_;
  std::optional<PinnedMemory> pinned_;  // the loader's ring, for a GPU
};

}  // namespace taut::train
