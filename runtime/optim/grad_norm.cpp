#include "runtime/optim/grad_norm.h"

#include <cmath>

#include "runtime/comm/collectives.h"

namespace taut::optim {

double global_grad_norm(const parallel::FlatParameters& flat, comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> squares;
  int64_t first = 0, end = 0;
  const auto close_range = [&] {
    if (end == first) return;
    const at::Tensor range = flat.gradients.narrow(0, first, end - first);
    squares.push_back(at::dot(range, range));
  };
  // Neighbouring spans that count are summed in one go; the gaps between them are zero.
  for (const parallel::Span& span : flat.spans) {
    const parallel::Parameter& parameter = flat.parameters[span.parameter];
    const bool counts = !parameter.second_copy && (parameter.shard.dim >= 0 || communicator.at().tp == 0);
    if (counts) {
      if (end == first) first = span.offset;
      end = span.offset + span.count;
    } else {
      close_range();
      first = end = span.offset + span.count;
    }
  }
  close_range();
  const at::Tensor sum = squares.empty() ? at::zeros({1}, flat.gradients.options().dtype(at::kDouble))
                                         : at::stack(squares).to(at::kDouble).sum().reshape({1});
  comm::all_reduce(communicator.tp(), sum, comm::Reduce::sum, {.reason = comm::Reason::norm});
  comm::all_reduce(communicator.pp(), sum, comm::Reduce::sum, {.reason = comm::Reason::norm});
  return std::sqrt(sum.item<double>());
}

double clip_factor(double norm, double limit) {
  return limit > 0 && norm > limit ? limit / norm : 1.0;
}

}  // namespace taut::optim
