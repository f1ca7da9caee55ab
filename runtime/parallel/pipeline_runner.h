// Executes one stage's program of a pipeline schedule over real send and receive between processes.
//
// Receives are posted ahead of their use and sends do not block, so that a transfer goes on while the stage computes.
#pragma once

#include <torch/types.h>

#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/parallel/schedule.h"

namespace taut::parallel {

/// What a stage does with a microbatch.
struct StageWork {
  /// Called before the stage waits for the microbatch's input: the moment to fetch tokens or labels.
  std::function<void(int microbatch)> prepare;
  /// Input undefined on the first stage. Returns the stage's output (the scalar loss on the last stage).
  std::function<at::Tensor(int microbatch, const at::Tensor& input)> forward;
  /// Runs backward from `output` with its gradient (undefined on the last stage). `input` is the leaf that `forward`
  /// got; its .grad, when it is defined, goes to the stage before.
  std::function<void(int microbatch, const at::Tensor& input, const at::Tensor& output, const at::Tensor& gradient)>
      backward;
};

class PipelineRunner {
 public:
  /// `shape` and `options` describe the tensor that passes between stages. `pp` must outlive this object; its rank is
  /// the stage.
  PipelineRunner(comm::Group& pp, std::vector<Action> program, std::vector<int64_t> shape, at::TensorOptions options);

  /// One training step. Returns once every transfer of this stage is done.
  void run(const StageWork& work);

 private:
  struct Receive {
    at::Tensor tensor;
    comm::Handle handle;
  };
  void post_receives(bool forward);
  at::Tensor take_received(bool forward);

  comm::Group& pp_;
  std::vector<Action> program_;
  std::vector<int64_t> shape_;
  at::TensorOptions options_;
  int receives_in_program_[2] = {0, 0};
  int receives_posted_[2] = {0, 0};
  std::deque<Receive> receives_[2];  // [0] activations, [1] gradients
};

}  // namespace taut::parallel
