#include "runtime/model/moe_dispatch.h"

#include <torch/csrc/autograd/custom_function.h>

#include "runtime/comm/collectives.h"

namespace taut::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor index_tensor(const std::vector<int64_t>& values, at::Device device) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(device);
}

/// Rows of the tokens, one for each choice that was kept; backward sums a token's rows.
struct TakeRows : torch::autograd::Function<TakeRows> {
  static Variable forward(AutogradContext* ctx, const Variable& tokens, const Variable& token_of_row,
                          const Variable& row_of_choice, const std::optional<at::Tensor>& kept, at::ScalarType type) {
    ctx->save_for_backward({row_of_choice, kept.value_or(at::Tensor())});
    ctx->saved_data["type"] = static_cast<int64_t>(tokens.scalar_type());
    return tokens.to(type).index_select(0, token_of_row);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = gradients[0], &row_of_choice = saved[0], &kept = saved[1];
    at::Tensor sum = at::zeros({row_of_choice.size(0), rows.size(1)}, rows.options().dtype(at::kFloat));
    for (int64_t j = 0; j < row_of_choice.size(1) && rows.size(0) > 0; ++j) {
      at::Tensor part = rows.index_select(0, row_of_choice.select(1, j));
      if (kept.defined()) part = part * kept.select(1, j).unsqueeze(1);
      sum.add_(part);
    }
    return {sum.to(static_cast<at::ScalarType>(ctx->saved_data["type"].toInt())), Variable(), Variable(), Variable(),
            Variable()};
  }
};

/// All-to-all of rows; backward sends the gradients the other way.
struct ExchangeRows : torch::autograd::Function<ExchangeRows> {
  static Variable forward(AutogradContext* ctx, const Variable& rows, comm::Group* ep,
                          const std::vector<int64_t>& rows_to, const std::vector<int64_t>& rows_from) {
    // The context saves plain values only; the layer's owner keeps the group alive.
    ctx->saved_data["ep"] = reinterpret_cast<int64_t>(ep);
    ctx->saved_data["to"] = rows_to;
    ctx->saved_data["from"] = rows_from;
    return exchange(*ep, rows, rows_to, rows_from, comm::Reason::activation);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    comm::Group& ep = *reinterpret_cast<comm::Group*>(ctx->saved_data["ep"].toInt());
    return {exchange(ep, gradients[0], ctx->saved_data["from"].toIntVector(), ctx->saved_data["to"].toIntVector(),
                     comm::Reason::activation_gradient),
            Variable(), Variable(), Variable()};
  }
  static at::Tensor exchange(comm::Group& ep, const at::Tensor& rows, const std::vector<int64_t>& to,
                             const std::vector<int64_t>& from, comm::Reason reason) {
    int64_t received = 0;
    for (const int64_t count : from) received += count;
    const at::Tensor output = at::empty({received, rows.size(1)}, rows.options());
    comm::all_to_all(ep, output, rows.contiguous(), from, to, {.reason = reason});
    return output;
  }
};

struct PermuteRows : torch::autograd::Function<PermuteRows> {
  static Variable forward(AutogradContext* ctx, const Variable& rows, const Variable& index, const Variable& inverse) {
    ctx->save_for_backward({inverse});
    return rows.index_select(0, index);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    return {gradients[0].index_select(0, ctx->get_saved_variables()[0]), Variable(), Variable()};
  }
};

/// Each token's sum of weight · row over its choices.
struct WeightedSum : torch::autograd::Function<WeightedSum> {
  static Variable forward(AutogradContext* ctx, const Variable& rows, const Variable& weights,
                          const Variable& row_of_choice, const Variable& choice_of_row, const Variable& token_of_row) {
    ctx->save_for_backward({rows, weights, choice_of_row, token_of_row});
    const at::Tensor sum = at::zeros({weights.size(0), rows.size(1)}, weights.options());
    for (int64_t j = 0; j < weights.size(1) && rows.size(0) > 0; ++j) {
      sum.addcmul_(rows.index_select(0, row_of_choice.select(1, j)), weights.select(1, j).unsqueeze(1));
    }
    return sum;
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &rows = saved[0], &weights = saved[1], &choice_of_row = saved[2];
    const at::Tensor gradient = gradients[0].index_select(0, saved[3]);  // [rows, hidden]
    const at::Tensor of_weights = at::zeros_like(weights);
    of_weights.view({-1}).index_copy_(0, choice_of_row, (gradient * rows).sum(-1));
    const at::Tensor weight_of_row = weights.flatten().index_select(0, choice_of_row).unsqueeze(1);
    return {(gradient * weight_of_row).to(rows.scalar_type()), of_weights, Variable(), Variable(), Variable()};
  }
};

/// Fills in what a rank receives. `sent` are this rank's rows per expert, in the placement's order.
void plan_exchange(DispatchPlan& plan, const std::vector<int64_t>& sent,
                   const std::vector<std::vector<int64_t>>& placement, at::Device device) {
  const int64_t ranks = plan.ep->size(), own = plan.ep->rank(), experts = static_cast<int64_t>(sent.size());
  at::Tensor all = at::empty({ranks * experts}, at::TensorOptions().dtype(at::kLong).device(device));
  comm::all_gather_into_tensor(*plan.ep, all, index_tensor(sent, device), {.reason = comm::Reason::routing});
  all = all.to(at::kCPU).view({ranks, experts});
  const auto counts = all.accessor<int64_t, 2>();

  const int64_t held = static_cast<int64_t>(placement[own].size());
  int64_t first = 0;  // of this rank's experts in the placement's order
  for (int64_t rank = 0; rank < own; ++rank) first += static_cast<int64_t>(placement[rank].size());

  plan.rows_from.assign(ranks, 0);
  std::vector<std::vector<int64_t>> start(ranks, std::vector<int64_t>(held));  // of a sender's rows for an expert
  int64_t received = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t expert = 0; expert < held; ++expert) {
      start[rank][expert] = received + plan.rows_from[rank];
      plan.rows_from[rank] += counts[rank][first + expert];
    }
    received += plan.rows_from[rank];
  }
  std::vector<int64_t> by_expert, by_sender(received);
  by_expert.reserve(received);
  plan.rows_per_expert.assign(held, 0);
  for (int64_t expert = 0; expert < held; ++expert) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const int64_t count = counts[rank][first + expert];
      plan.rows_per_expert[expert] += count;
      for (int64_t row = 0; row < count; ++row) {
        by_sender[start[rank][expert] + row] = static_cast<int64_t>(by_expert.size());
        by_expert.push_back(start[rank][expert] + row);
      }
    }
  }
  if (held == 1) return;  // senders' order is the expert's
  plan.by_expert = index_tensor(by_expert, device);
  plan.by_sender = index_tensor(by_sender, device);
}

}  // namespace

DispatchPlan plan_dispatch(const Routing& routing, const std::vector<std::vector<int64_t>>& placement,
                           comm::Group* ep) {
  const at::NoGradGuard no_grad;
  const at::Device device = routing.chosen.device();
  DispatchPlan plan;
  plan.ep = ep && ep->size() > 1 ? ep : nullptr;
  plan.kept = routing.kept;

  std::vector<int64_t> sent, first_row(routing.tokens_per_expert.size());
  int64_t rows = 0;
  for (const auto& experts : placement) {
    const int64_t before = rows;
    for (const int64_t expert : experts) {
      first_row[expert] = rows;
      sent.push_back(routing.tokens_per_expert[expert] - routing.dropped_per_expert[expert]);
      rows += sent.back();
    }
    plan.rows_to.push_back(rows - before);
  }

  at::Tensor row = index_tensor(first_row, device).index_select(0, routing.chosen.flatten()).view_as(routing.chosen) +
                   routing.position;
  // A dropped choice writes to a row past the end, which is cut off.
  at::Tensor target = routing.kept.defined() ? row.masked_fill(routing.kept.logical_not(), rows) : row;
  const at::Tensor choices = at::arange(row.numel(), row.options());
  plan.choice_of_row =
      at::empty({rows + 1}, row.options()).scatter_(0, target.flatten(), choices).narrow(0, 0, rows).contiguous();
  plan.token_of_row = plan.choice_of_row.floor_divide(routing.chosen.size(1));
  plan.row_of_choice = routing.kept.defined() ? row.masked_fill(routing.kept.logical_not(), 0) : row;

  if (plan.ep) {
    plan_exchange(plan, sent, placement, device);
  } else {
    plan.rows_from = plan.rows_to;
    plan.rows_per_expert = sent;
  }
  return plan;
}

at::Tensor dispatch(const at::Tensor& tokens, const DispatchPlan& plan, at::ScalarType type) {
  const std::optional<at::Tensor> kept = plan.kept.defined() ? std::optional(plan.kept) : std::nullopt;
  at::Tensor rows = TakeRows::apply(tokens, plan.token_of_row, plan.row_of_choice, kept, type);
  if (plan.ep) rows = ExchangeRows::apply(rows, plan.ep, plan.rows_to, plan.rows_from);
  return plan.by_expert.defined() ? PermuteRows::apply(rows, plan.by_expert, plan.by_sender) : rows;
}

at::Tensor combine(const at::Tensor& rows, const at::Tensor& weights, const DispatchPlan& plan) {
  at::Tensor back = plan.by_expert.defined() ? PermuteRows::apply(rows, plan.by_sender, plan.by_expert) : rows;
  if (plan.ep) back = ExchangeRows::apply(back, plan.ep, plan.rows_from, plan.rows_to);
  return WeightedSum::apply(back, weights, plan.row_of_choice, plan.choice_of_row, plan.token_of_row);
}

}  // namespace taut::model
