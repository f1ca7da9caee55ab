#include "runtime/model/moe.h"

#include <ATen/autocast_mode.h>

#include <algorithm>

#include "runtime/model/fused.h"
#include "runtime/model/grouped_linear.h"
#include "runtime/model/moe_dispatch.h"
#include "runtime/model/moe_router.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::model {
namespace {

/// The router's logits need all of fp32's digits: in bf16 close probabilities become ties.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(at::DeviceType type) : type_(type), was_(at::autocast::is_autocast_enabled(type)) {
    at::autocast::set_autocast_enabled(type_, false);
  }
  ~WithoutAutocast() { at::autocast::set_autocast_enabled(type_, was_); }
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  at::DeviceType type_;
  bool was_;
};

RouterSettings router_settings(const config::Model& shape) {
  return {shape.num_experts, shape.moe_router_topk, shape.moe_capacity_factor, shape.moe_aux_loss_coeff,
          shape.moe_z_loss_coeff, shape.attention != config::Attention::sliding_window};
}

}  // namespace

ExpertPlacement place_experts(const config::Model& shape, const config::Parallel& parallel) {
  const int64_t experts = shape.num_experts, ranks = parallel.expert_parallel_size;
  if (!parallel.expert_placement) {
    if (experts % ranks != 0) {
      throw Error("parallel.expert_parallel_size " + std::to_string(ranks) + " does not divide model.num_experts " +
                      std::to_string(experts),
                  "choose a divisor, or say in parallel.expert_placement which rank holds which experts");
    }
    ExpertPlacement placement(ranks);
    for (int64_t expert = 0; expert < experts; ++expert) placement[expert / (experts / ranks)].push_back(expert);
    return placement;
  }
  const ExpertPlacement& placement = *parallel.expert_placement;
  const std::string what = "parallel.expert_placement ";
  const std::string hint = "list for each of the " + std::to_string(ranks) +
                           " expert-parallel ranks its experts, each of 0 … " + std::to_string(experts - 1) + " once";
  if (static_cast<int64_t>(placement.size()) != ranks) {
    throw Error(what + "has " + std::to_string(placement.size()) + " lists for " + std::to_string(ranks) + " ranks",
                hint);
  }
  std::vector<int> places(experts, 0);
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    if (placement[rank].empty()) throw Error(what + "gives rank " + std::to_string(rank) + " no expert", hint);
    for (const int64_t expert : placement[rank]) {
      if (expert < 0 || expert >= experts) throw Error(what + "names expert " + std::to_string(expert), hint);
      ++places[expert];
    }
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (places[expert] != 1) {
      throw Error(what + "places expert " + std::to_string(expert) + " " + std::to_string(places[expert]) + " times",
                  hint);
    }
  }
  return placement;
}

MoeLayer::MoeLayer(const config::Model& shape, int64_t layer, ExpertPlacement placement, MoeGroups groups,
                   double deviation, double output_deviation, const CreateParameter& create)
    : shape_(shape), layer_(layer), placement_(std::move(placement)), groups_(groups) {
  if (shape_.ffn_hidden_size == 0) shape_.ffn_hidden_size = 4 * shape_.hidden_size;
  const int64_t hidden = shape_.hidden_size, ffn = shape_.ffn_hidden_size;
  const std::string name = "layers." + std::to_string(layer) + ".moe.";
  router_ = create(name + "router.weight", {shape_.num_experts, hidden}, {}, deviation, /*expert=*/false);

  const bool gated = shape_.activation == config::Activation::swiglu;
  const parallel::Shard rows{0, gated ? std::vector<int64_t>{ffn, ffn} : std::vector<int64_t>{ffn}};
  const auto name_of = [&](int64_t expert) { return name + "experts." + std::to_string(expert); };
  const std::vector<int64_t>& held = placement_[groups_.ep ? groups_.ep->rank() : 0];
  for (const int64_t expert : held) {
    up_.push_back(create(name_of(expert) + (gated ? ".gate_up.weight" : ".up.weight"), {gated ? 2 * ffn : ffn, hidden},
                         rows, deviation, /*expert=*/true));
  }
  for (const int64_t expert : held) {
    down_.push_back(create(name_of(expert) + ".down.weight", {hidden, ffn}, {1, {ffn}}, output_deviation, true));
  }
  tokens_.assign(shape_.num_experts, 0);
  dropped_.assign(shape_.num_experts, 0);
}

at::Tensor MoeLayer::experts(const at::Tensor& rows, const std::vector<int64_t>& rows_per_expert) {
  const auto in_type = [&](const std::vector<at::Tensor>& weights) {
    std::vector<at::Tensor> cast;
    for (const at::Tensor& weight : weights) {
      // Through autocast's cache: the weights are cast once a step, not once a microbatch.
      cast.push_back(weight.scalar_type() == rows.scalar_type()
                         ? weight
                         : at::autocast::cached_cast(rows.scalar_type(), weight, rows.device().type()));
    }
    return cast;
  };
  const at::Tensor up = grouped_linear(rows, in_type(up_), rows_per_expert);
  const at::Tensor active = shape_.activation == config::Activation::gelu ? at::gelu(up) : swiglu(up);
  return grouped_linear(active, in_type(down_), rows_per_expert);
}

at::Tensor MoeLayer::forward(const at::Tensor& x, double aux_gradient_scale) {
  const int64_t hidden = shape_.hidden_size;
  const at::DeviceType device = x.device().type();
  const at::ScalarType type =
      at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : up_[0].scalar_type();
  Routing routing;
  {
    const WithoutAutocast fp32(device);
    const at::Tensor logits = at::linear(x.to(at::kFloat), router_.to(at::kFloat));
    routing = route(logits, router_settings(shape_), groups_.cp);
  }
  if (at::GradMode::is_enabled()) {
    for (int64_t expert = 0; expert < shape_.num_experts; ++expert) {
      tokens_[expert] += routing.tokens_per_expert[expert];
      dropped_[expert] += routing.dropped_per_expert[expert];
    }
  }
  const DispatchPlan plan = plan_dispatch(routing, placement_, groups_.ep);

  // A tp rank computes with its share of every expert: its rows are partial sums all the way through the combination,
  // so that one reduction of [tokens, hidden] ends it. What flows into the partial part has its gradient summed over
  // tp: the tokens and the combination's weights.
  const at::Tensor tokens = parallel::copy_to_tensor_parallel(x.reshape({-1, hidden}), *groups_.tp);
  const at::Tensor weights = parallel::copy_to_tensor_parallel(routing.weights, *groups_.tp);
  const at::Tensor rows = experts(dispatch(tokens, plan, type), plan.rows_per_expert);
  at::Tensor output = parallel::reduce_from_tensor_parallel(combine(rows, weights, plan), *groups_.tp);
  output = output.view_as(x);
  return routing.aux_loss.defined() ? attach_loss(output, routing.aux_loss, aux_gradient_scale) : output;
}

void MoeLayer::mark_and_reset(int64_t step) {
  static const annotate::Name name(annotate::ExpertLoad::kName);
  if (groups_.tp->rank() == 0) {
    const int32_t rank = groups_.tp->group ? groups_.tp->group->global_rank() : 0;
    for (int64_t expert = 0; expert < shape_.num_experts; ++expert) {
      annotate::mark(name, annotate::ExpertLoad{step, tokens_[expert], dropped_[expert], rank,
                                                static_cast<int32_t>(layer_), static_cast<int32_t>(expert), 0});
    }
  }
  std::fill(tokens_.begin(), tokens_.end(), 0);
  std::fill(dropped_.begin(), dropped_.end(), 0);
}

}  // namespace taut::model
