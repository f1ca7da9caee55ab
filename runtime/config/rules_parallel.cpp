#include <numeric>

#include "runtime/config/rules.h"
#include "taut.h"

namespace taut::config {

void check_mesh(Config& c) {
  const int64_t model_parallel = c.model_parallel_size();
  if (c.world_size == 0) c.world_size = model_parallel;
  if (c.world_size % model_parallel == 0) return;
  const Parallel& p = c.parallel;
  throw Error(
      "world_size is " + text(c.world_size) +
          ", which is not a multiple of tensor × pipeline × context parallel size = " +
          product({p.tensor_parallel_size, p.pipeline_parallel_size, p.context_parallel_size}) + " = " +
          text(model_parallel),
      "start " + text(next_multiple(c.world_size, model_parallel)) +
          " ranks (--nproc or world_size), or lower parallel.tensor_parallel_size, parallel.pipeline_parallel_size or "
          "parallel.context_parallel_size");
}

void check_tensor_parallel(const Config& c) {
  const Model& m = c.model;
  const int64_t tp = c.parallel.tensor_parallel_size;
  // Heads make up the width, so that more of them is no neighbour; the MLP and the vocabulary may grow.
  const auto require = [&](const char* key, int64_t value, bool may_grow) {
    if (value % tp == 0) return;
    const int64_t nearest =
        nearest_divisor({m.num_attention_heads, m.num_query_groups, m.ffn_hidden_size, m.vocab_size}, tp);
    throw Error(
        "parallel.tensor_parallel_size is " + text(tp) + ", which does not divide " + key + " = " + text(value),
        "set parallel.tensor_parallel_size to a divisor such as " + text(nearest) +
            (may_grow ? ", or " + std::string(key) + " to a multiple such as " + text(next_multiple(value, tp)) : ""));
  };
  require("model.num_attention_heads", m.num_attention_heads, false);
  require("model.num_query_groups", m.num_query_groups, false);
  require("model.ffn_hidden_size", m.ffn_hidden_size, true);
  require("model.vocab_size", m.vocab_size, true);
}

void check_context_parallel(const Config& c) {
  const int64_t cp = c.parallel.context_parallel_size, seq = c.model.seq_length;
  if (cp == 1 || seq % (2 * cp) == 0) return;
  throw Error("parallel.context_parallel_size is " + text(cp) + ": each rank takes two of " + text(2 * cp) +
                  " chunks of the sequence, but model.seq_length = " + text(seq) + " does not divide into those",
              "set model.seq_length to a multiple of " + text(2 * cp) + " such as " + text(next_multiple(seq, 2 * cp)) +
                  ", or parallel.context_parallel_size to " +
                  (seq % 2 == 0 ? text(nearest_divisor({seq / 2}, cp)) : "1"));
}

void check_sequence_parallel(const Config& c) {
  const Parallel& p = c.parallel;
  if (!p.sequence_parallel || p.tensor_parallel_size == 1) return;
  if (p.gather_output) {
    throw Error(
        "parallel.sequence_parallel and parallel.gather_output are both true: one cuts the sequence where the "
        "other gathers whole outputs",
        "set parallel.gather_output to false, or parallel.sequence_parallel to false");
  }
  const int64_t local = c.model.seq_length / p.context_parallel_size;
  if (local % p.tensor_parallel_size == 0) return;
  const int64_t unit = std::lcm(p.context_parallel_size > 1 ? 2 * p.context_parallel_size : 1,
                                p.context_parallel_size * p.tensor_parallel_size);
  throw Error("parallel.sequence_parallel cuts model.seq_length / parallel.context_parallel_size = " + text(local) +
                  " tokens into parallel.tensor_parallel_size = " + text(p.tensor_parallel_size) +
                  " parts, which does not go",
              "set model.seq_length to a multiple of " + text(unit) + " such as " +
                  text(next_multiple(c.model.seq_length, unit)) + ", or parallel.sequence_parallel to false");
}

void check_expert_parallel(const Config& c) {
  const Parallel& p = c.parallel;
  const int64_t ep = p.expert_parallel_size, experts = c.model.num_experts;
  if (ep == 1) return;
  const int64_t ranks = c.data_parallel_size() * p.context_parallel_size;
  const int64_t nearest = nearest_divisor({ranks, experts}, ep);
  if (ranks % ep != 0) {
    throw Error("parallel.expert_parallel_size is " + text(ep) +
                    ", which does not divide the ranks that share the experts, data × context parallel size = " +
                    product({c.data_parallel_size(), p.context_parallel_size}) + " = " + text(ranks),
                "set parallel.expert_parallel_size to " + text(nearest) +
                    ", or start as many ranks as make that a multiple of " + text(ep));
  }
  if (!p.expert_placement && experts % ep != 0) {
    throw Error(
        "parallel.expert_parallel_size is " + text(ep) + ", which does not divide model.num_experts = " + text(experts),
        "set parallel.expert_parallel_size to " + text(nearest) + ", or model.num_experts to a multiple such as " +
            text(next_multiple(experts, ep)) + ", or give each rank its experts in parallel.expert_placement");
  }
}

}  // namespace taut::config
