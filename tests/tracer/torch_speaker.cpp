// Runs LibTorch operators with the observer installed; with "time", says what the observer costs an operator.
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <torch/torch.h>

#include "tracer/collect/torch_observer.h"

namespace {

double cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double ns_per_add() {
  const torch::NoGradGuard no_grad;
  auto x = torch::ones({1});
  double best = 1e12;
  for (int round = 0; round < 20; ++round) {
    constexpr int kOps = 2000;
    const double start = cpu_ns();
    for (int i = 0; i < kOps; ++i) x.add_(1.0);
    best = std::min(best, (cpu_ns() - start) / kOps);
  }
  return best;
}

}  // namespace

int main(int count, char** arguments) {
  torch::set_num_threads(1);
  if (count > 1 && strcmp(arguments[1], "time") == 0) {
    const double without = ns_per_add();
    taut::collect::install_torch_observer();
    printf("%.0f ns an operator without, %.0f with the observer\n", without, ns_per_add());
    return 0;
  }
  taut::collect::install_torch_observer();
  taut::collect::install_torch_observer();  // twice is once
  auto weight = torch::ones({4, 4}, torch::requires_grad());
  auto loss = torch::mm(weight, torch::ones({4, 4})).sum();
  loss.backward();
  return weight.grad().sum().item<float>() == 64.0f ? 0 : 1;
}
