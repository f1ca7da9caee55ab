#include "runtime/parallel/pipeline_runner.h"

namespace taut::parallel {
namespace {

// Posted ahead per direction: one being filled while the other is used.
constexpr size_t kReceivesAhead = 2;

constexpr comm::Reason kForward = comm::Reason::activation, kBackward = comm::Reason::activation_gradient;

}  // namespace

PipelineRunner::PipelineRunner(comm::Group& pp, std::vector<Action> program, std::vector<int64_t> shape,
                               at::TensorOptions options)
    : pp_(pp), program_(std::move(program)), shape_(std::move(shape)), options_(options) {
  for (const Action& action : program_) {
    if (action.kind == ActionKind::recv_forward) ++receives_in_program_[0];
    if (action.kind == ActionKind::recv_backward) ++receives_in_program_[1];
  }
}

void PipelineRunner::post_receives(bool forward) {
  const int direction = forward ? 0 : 1;
  auto& posted = receives_[direction];
  while (posted.size() < kReceivesAhead && receives_posted_[direction] < receives_in_program_[direction]) {
    at::Tensor buffer = at::empty(shape_, options_);
    comm::Handle handle = comm::recv_async(pp_, buffer, forward ? pp_.rank() - 1 : pp_.rank() + 1,
                                           {.reason = forward ? kForward : kBackward});
    posted.push_back({std::move(buffer), std::move(handle)});
    ++receives_posted_[direction];
  }
}

at::Tensor PipelineRunner::take_received(bool forward) {
  auto& posted = receives_[forward ? 0 : 1];
  Receive receive = std::move(posted.front());
  posted.pop_front();
  receive.handle.wait();
  post_receives(forward);
  return receive.tensor;
}

void PipelineRunner::run(const StageWork& work) {
  struct InFlight {
    at::Tensor input, output, output_gradient;
  };
  std::map<int, InFlight> in_flight;
  std::map<int, at::Tensor> input_gradients;
  std::vector<comm::Handle> sends;
  receives_posted_[0] = receives_posted_[1] = 0;
  post_receives(true);
  post_receives(false);

  for (const Action& action : program_) {
    const int m = action.microbatch;
    switch (action.kind) {
      case ActionKind::recv_forward:
        work.prepare(m);
        in_flight[m].input = take_received(true).requires_grad_();
        break;
      case ActionKind::forward: {
        InFlight& own = in_flight[m];
        if (!own.input.defined()) work.prepare(m);
        own.output = work.forward(m, own.input);
        break;
      }
      case ActionKind::send_forward:
        sends.push_back(
            comm::send_async(pp_, in_flight[m].output.detach().contiguous(), pp_.rank() + 1, {.reason = kForward}));
        break;
      case ActionKind::recv_backward:
        in_flight[m].output_gradient = take_received(false);
        break;
      case ActionKind::backward: {
        InFlight own = std::move(in_flight[m]);
        in_flight.erase(m);
        work.backward(m, own.input, own.output, own.output_gradient);
        if (own.input.defined()) input_gradients[m] = own.input.grad();
        break;
      }
      case ActionKind::send_backward:
        sends.push_back(comm::send_async(pp_, input_gradients[m].contiguous(), pp_.rank() - 1, {.reason = kBackward}));
        input_gradients.erase(m);
        break;
    }
  }
  for (comm::Handle& send : sends) send.wait();
}

}  // namespace taut::parallel
