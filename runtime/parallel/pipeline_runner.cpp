#include "runtime/parallel/pipeline_runner.h"

#include <algorithm>
#include <map>
#include <utility>

#include "taut.h"

namespace taut::parallel {
namespace {

comm::Reason reason_of(ActionKind kind) {
  const bool forward = kind == ActionKind::send_forward || kind == ActionKind::recv_forward;
  return forward ? comm::Reason::activation : comm::Reason::activation_gradient;
}

// Posted ahead per neighbour: one being filled while the other is used.
constexpr size_t kReceivesAhead = 2;

/// A chunk's microbatch between its first and its last action.
struct InFlight {
  bool prepared = false;
  at::Tensor input, output, output_gradient, input_gradient;
};

/// Sent already, and autograd needs the history alone: the memory goes back as soon as the transfer is done.
void release_memory(const at::Tensor& output) {
  if (output.is_leaf()) return;  // a chunk without layers passes its input on
  const at::NoGradGuard no_grad;
  output.set_data(at::empty({0}, output.options()));
}

}  // namespace

PipelineRunner::PipelineRunner(comm::Group& pp, std::vector<Action> program, std::vector<int64_t> shape,
                               at::TensorOptions options)
    : pp_(pp), program_(std::move(program)), shape_(std::move(shape)), options_(options) {
  for (const Action& action : program_) {
    if (pp_.size() == 1 && action.chunk > 0) {
      throw Error("a pipeline of one stage has several chunks", "set parallel.virtual_pipeline_stages to 1");
    }
    if (is_receive(action.kind)) source_of(action).messages.push_back(action.kind);
  }
}

PipelineRunner::Source& PipelineRunner::source_of(const Action& receive) {
  const int peer = peer_stage(receive, pp_.rank(), pp_.size());
  for (Source& source : sources_) {
    if (source.peer == peer) return source;
  }
  return sources_.emplace_back(Source{peer});
}

void PipelineRunner::post_receives(Source& source) {
  while (source.under_way.size() < kReceivesAhead && source.posted < source.messages.size()) {
    at::Tensor buffer = at::empty(shape_, options_);
    comm::Handle handle =
        comm::recv_async(pp_, buffer, source.peer, {.reason = reason_of(source.messages[source.posted])});
    source.under_way.push_back({std::move(buffer), std::move(handle)});
    ++source.posted;
  }
}

at::Tensor PipelineRunner::take_received(const Action& action) {
  Source& source = source_of(action);
  Receive receive = std::move(source.under_way.front());
  source.under_way.pop_front();
  receive.handle.wait();
  post_receives(source);
  return receive.tensor;
}

void PipelineRunner::run(const StageWork& work) {
  std::map<std::pair<int, int>, InFlight> in_flight;  // (chunk, microbatch)
  std::vector<comm::Handle> sends;
  for (Source& source : sources_) {
    source.posted = 0;
    post_receives(source);
  }
  const auto send = [&](const Action& action, const at::Tensor& tensor) {
    sends.push_back(comm::send_async(pp_, tensor.detach().contiguous(), peer_stage(action, pp_.rank(), pp_.size()),
                                     {.reason = reason_of(action.kind)}));
  };

  for (const Action& action : program_) {
    const int chunk = action.chunk, m = action.microbatch;
    const auto prepare = [&](InFlight& own) {
      if (!own.prepared) work.prepare(chunk, m);
      own.prepared = true;
    };
    switch (action.kind) {
      case ActionKind::recv_forward: {
        InFlight& own = in_flight[{chunk, m}];
        prepare(own);
        own.input = take_received(action).requires_grad_();
        break;
      }
      case ActionKind::forward: {
        InFlight& own = in_flight[{chunk, m}];
        prepare(own);
        own.output = work.forward(chunk, m, own.input);
        break;
      }
      case ActionKind::send_forward: {
        const InFlight& own = in_flight[{chunk, m}];
        send(action, own.output);
        release_memory(own.output);
        break;
      }
      case ActionKind::recv_backward:
        in_flight[{chunk, m}].output_gradient = take_received(action);
        break;
      case ActionKind::backward: {
        auto own = in_flight.extract({chunk, m});
        InFlight& done = own.mapped();
        work.backward(chunk, m, done.input, std::move(done.output), done.output_gradient);
        if (!done.input.defined()) break;
        InFlight to_send;
        to_send.input_gradient = done.input.grad();
        in_flight[{chunk, m}] = std::move(to_send);
        break;
      }
      case ActionKind::send_backward: {
        const auto own = in_flight.extract({chunk, m});
        send(action, own.mapped().input_gradient);
        break;
      }
      case ActionKind::weight_gradient:
        work.weight_gradients(chunk, m);
        break;
    }
  }
  for (comm::Handle& handle : sends) handle.wait();
}

}  // namespace taut::parallel
