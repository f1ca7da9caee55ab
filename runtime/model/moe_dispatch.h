// The way of tokens to their experts and back.
//
//   dispatch  a row per (token, chosen expert) that found room, sorted by the rank that holds the expert and by its
//             experts; all-to-all over ep; the received rows sorted by expert. The order within an expert is that of
//             the sending ranks, then of the batch.
//   combine   the same way back; then each token's sum of weight · row.
//
// The rows that travel have the type of the matrix products (bf16 under autocast); the sums over a token's experts, in
// forward and backward, are fp32. With one ep rank nothing is sent.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/model/moe_router.h"

namespace taut::model {

/// How one microbatch's rows travel. A "choice" is a (token, one of its topk experts) pair, numbered token · topk + j.
struct DispatchPlan {
  comm::Group* ep = nullptr;                // null = one rank
  at::Tensor row_of_choice;                 // [tokens, topk] int64; 0 where dropped
  at::Tensor kept;                          // [tokens, topk] bool; undefined when dropless
  at::Tensor choice_of_row;                 // [rows sent] int64
  at::Tensor token_of_row;                  // [rows sent] int64
  std::vector<int64_t> rows_to, rows_from;  // per ep rank
  at::Tensor by_expert, by_sender;          // index of received rows: into experts' order, and back; undefined: sorted
  std::vector<int64_t> rows_per_expert;     // received, per expert of this rank
};

/// `placement[r]` are the experts of ep rank r. Exchanges counts: a collective over ep.
DispatchPlan plan_dispatch(const Routing& routing, const std::vector<std::vector<int64_t>>& placement, comm::Group* ep);

/// [tokens, hidden] -> [rows received, hidden] in `type`. A collective over ep, in backward, too.
at::Tensor dispatch(const at::Tensor& tokens, const DispatchPlan& plan, at::ScalarType type);

/// [rows received, hidden], `weights` fp32 [tokens, topk] -> fp32 [tokens, hidden]. A collective over ep, in backward,
/// too.
at::Tensor combine(const at::Tensor& rows, const at::Tensor& weights, const DispatchPlan& plan);

}  // namespace taut::model
