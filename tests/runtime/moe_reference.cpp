#include "tests/runtime/moe_reference.h"

#include <algorithm>
#include <cmath>

namespace taut::testing {

at::Tensor MoeReference::forward(const config::Model& shape, const at::Tensor& x, at::Tensor& aux) {
  const int64_t experts = shape.num_experts, topk = shape.moe_router_topk, tokens_here = x.size(0) * x.size(1);
  const bool gated = shape.activation == config::Activation::swiglu;
  int64_t room = tokens_here;
  if (shape.moe_capacity_factor) {
    room = static_cast<int64_t>(
        std::ceil(*shape.moe_capacity_factor * static_cast<double>(topk * tokens_here) / static_cast<double>(experts)));
  }
  tokens.resize(experts);
  dropped.resize(experts);
  std::vector<int64_t> chosen_count(experts, 0);
  at::Tensor probability_sum = at::zeros({experts}, at::kDouble), z_sum = at::zeros({}, at::kDouble);
  std::vector<at::Tensor> outputs;
  for (int64_t t = 0; t < tokens_here; ++t) {
    const at::Tensor token = x.reshape({tokens_here, -1})[t];
    const at::Tensor logits = at::mv(parameters.at("router.weight"), token);
    const at::Tensor z = logits.exp().sum().log();
    const at::Tensor probabilities = (logits - z).exp();
    probability_sum = probability_sum + probabilities;
    z_sum = z_sum + z * z;

    std::vector<int64_t> order(experts);
    for (int64_t e = 0; e < experts; ++e) order[e] = e;
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return probabilities[a].item<double>() > probabilities[b].item<double>(); });
    at::Tensor norm = at::ones({}, at::kDouble);
    if (topk > 1) {
      norm = probabilities[order[0]];
      for (int64_t j = 1; j < topk; ++j) norm = norm + probabilities[order[j]];
    }
    at::Tensor output = at::zeros_like(token);
    for (int64_t j = 0; j < topk; ++j) {
      const int64_t e = order[j];
      ++tokens[e];
      if (++chosen_count[e] > room) {
        ++dropped[e];
        continue;
      }
      const std::string name = "experts." + std::to_string(e);
      const at::Tensor up = at::mv(parameters.at(name + (gated ? ".gate_up.weight" : ".up.weight")), token);
      const int64_t ffn = shape.ffn_hidden_size;
      const at::Tensor active = gated
                                    ? up.narrow(0, 0, ffn) * at::sigmoid(up.narrow(0, 0, ffn)) * up.narrow(0, ffn, ffn)
                                    : up * 0.5 * (1.0 + at::erf(up / std::sqrt(2.0)));
      output = output + probabilities[e] / norm * at::mv(parameters.at(name + ".down.weight"), active);
    }
    outputs.push_back(output);
  }
  const double count = static_cast<double>(tokens_here);
  aux = shape.moe_z_loss_coeff * z_sum / count;
  for (int64_t e = 0; e < experts; ++e) {
    const double share = static_cast<double>(chosen_count[e]) / (count * static_cast<double>(topk));
    aux = aux + shape.moe_aux_loss_coeff * static_cast<double>(experts) * share * probability_sum[e] / count;
  }
  return at::stack(outputs).view_as(x);
}

}  // namespace taut::testing
