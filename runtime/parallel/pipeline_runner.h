// Executes one stage's program of a pipeline schedule over real send and receive between processes.
//
// Receives are posted ahead of their use and sends do not block, so that a transfer goes on while the stage computes.
// What travels is one tensor of one shape, activations one way round the ring of virtual stages, gradients the other.
//
// Why this cannot deadlock. (1) The schedule was validated: it runs to its end when sends do not block, and a stage
// awaits another's messages in the order in which that one sends them. (2) On the CPU (Gloo) sends and receives have
// queues of their own and messages of one direction are numbered. (3) NCCL runs the messages of a pair of ranks within
// one communicator in issue order, whatever their direction, so a receive posted ahead would hold up a send behind it:
// messages to lower members of the group therefore use a second communicator (comm's backward_backend). Between two
// ranks each communicator then carries one direction, and both sides issue that direction's messages in the same order,
// by (1). This holds for the ring's closing pair (last and first stage, with several chunks) and for two stages, whose
// directions carry activations and gradients alike. NCCL connects a pair at its first message and blocks the host until
// both sides are there; posting ahead would let them wait for each other, so comm connects the neighbouring pairs, the
// closing one included, before the first step.
#pragma once

#include <torch/types.h>

#include <deque>
#include <functional>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/parallel/schedule.h"

namespace taut::parallel {

/// What a stage does with a microbatch in one of its chunks of layers (chunk 0 unless the schedule is interleaved).
struct StageWork {
  /// Called before the stage waits for the chunk's input: the moment to fetch tokens or labels. Microbatches come in
  /// order within a chunk.
  std::function<void(int chunk, int microbatch)> prepare;
  /// Input undefined on the first virtual stage. Returns the chunk's output (the scalar loss on the last one). The
  /// output's memory is freed once it is sent; its history stays.
  std::function<at::Tensor(int chunk, int microbatch, const at::Tensor& input)> forward;
  /// Runs backward from `output` with its gradient (undefined on the last virtual stage). `input` is the leaf that
  /// `forward` got; its .grad, when it is defined, goes to the virtual stage before. In a schedule that splits backward
  /// the weights' gradients may wait for `weight_gradients`.
  std::function<void(int chunk, int microbatch, const at::Tensor& input, at::Tensor output, const at::Tensor& gradient)>
      backward;
  /// The W pass; needed only where the schedule has one.
  std::function<void(int chunk, int microbatch)> weight_gradients = {};
};

class PipelineRunner {
 public:
  /// `shape` and `options` describe the tensor that passes between stages. `pp` must outlive this object; its rank is
  /// the stage. Throws taut::Error for several chunks on a group of one.
  PipelineRunner(comm::Group& pp, std::vector<Action> program, std::vector<int64_t> shape, at::TensorOptions options);

  /// One training step. Returns once every transfer of this stage is done.
  void run(const StageWork& work);

 private:
  struct Receive {
    at::Tensor tensor;
    comm::Handle handle;
  };
  /// A neighbour that this stage receives from.
  struct Source {
    int peer = 0;
    std::vector<ActionKind> messages = {};  // in the program's order
    size_t posted = 0;                      // of them, in this step
    std::deque<Receive> under_way = {};
  };
  Source& source_of(const Action& receive);
  void post_receives(Source& source);
  at::Tensor take_received(const Action& receive);

  comm::Group& pp_;
  std::vector<Action> program_;
  std::vector<int64_t> shape_;
  at::TensorOptions options_;
  std::vector<Source> sources_;
};

}  // namespace taut::parallel
