#include <set>

#include "runtime/config/rules.h"
#include "taut.h"

namespace taut::config {

void check_model(Config& c) {
  Model& m = c.model;
  if (m.num_query_groups == 0) m.num_query_groups = m.num_attention_heads;
  if (m.ffn_hidden_size == 0) m.ffn_hidden_size = 4 * m.hidden_size;
  if (m.hidden_size % m.num_attention_heads != 0) {
    throw Error("model.num_attention_heads is " + text(m.num_attention_heads) +
                    ", which does not divide model.hidden_size = " + text(m.hidden_size),
                "set model.hidden_size to a multiple such as " +
                    text(next_multiple(m.hidden_size, 2 * m.num_attention_heads)) +
                    ", or model.num_attention_heads to a divisor");
  }
  if (m.num_attention_heads % m.num_query_groups != 0) {
    throw Error("model.num_query_groups is " + text(m.num_query_groups) +
                    ", which does not divide model.num_attention_heads = " + text(m.num_attention_heads),
                "set model.num_query_groups to a divisor such as " +
                    text(nearest_divisor({m.num_attention_heads}, m.num_query_groups)));
  }
  const int64_t head_size = m.hidden_size / m.num_attention_heads;
  if (m.position_embedding == PositionEmbedding::rope && head_size % 2 != 0) {
    throw Error("model.hidden_size / model.num_attention_heads is " + text(head_size) +
                    ", but model.position_embedding \"rope\" rotates pairs and needs an even head size",
                "set model.hidden_size to a multiple of " + text(2 * m.num_attention_heads) + " such as " +
                    text(next_multiple(m.hidden_size, 2 * m.num_attention_heads)) +
                    ", or model.position_embedding to \"learned\"");
  }
}

void check_experts(const Config& c) {
  const Model& m = c.model;
  if (m.num_experts == 0) {
    if (c.parallel.expert_parallel_size > 1) {
      throw Error("parallel.expert_parallel_size is " + text(c.parallel.expert_parallel_size) +
                      ", but model.num_experts is 0: there are no experts to share",
                  "set parallel.expert_parallel_size to 1, or model.num_experts to a multiple such as " +
                      text(c.parallel.expert_parallel_size));
    }
    if (c.parallel.expert_placement) {
      throw Error("parallel.expert_placement is set, but model.num_experts is 0",
                  "set parallel.expert_placement to null");
    }
    return;
  }
  if (m.moe_router_topk > m.num_experts) {
    throw Error("model.moe_router_topk is " + text(m.moe_router_topk) +
                    ", more experts a token than model.num_experts = " + text(m.num_experts),
                "set model.moe_router_topk to " + text(m.num_experts) + ", or model.num_experts to " +
                    text(next_multiple(m.moe_router_topk, c.parallel.expert_parallel_size)));
  }
}

void check_expert_placement(const Config& c) {
  if (!c.parallel.expert_placement) return;
  const auto& placement = *c.parallel.expert_placement;
  const int64_t experts = c.model.num_experts, ranks = c.parallel.expert_parallel_size;
  const std::string hint = "list each of the experts 0 to " + text(experts - 1) + " once over " + text(ranks) +
                           " lists, or set parallel.expert_placement to null for an even split in order";
  if (static_cast<int64_t>(placement.size()) != ranks) {
    throw Error("parallel.expert_placement has " + text(static_cast<int64_t>(placement.size())) +
                    " lists for parallel.expert_parallel_size = " + text(ranks),
                hint);
  }
  std::set<int64_t> placed;
  for (size_t rank = 0; rank < placement.size(); ++rank) {
    const std::string where = "parallel.expert_placement[" + text(static_cast<int64_t>(rank)) + "]";
    if (placement[rank].empty()) throw Error(where + " is empty: that rank would hold no expert", hint);
    for (const int64_t expert : placement[rank]) {
      if (expert >= experts) {
        throw Error(where + " names expert " + text(expert) + ", but model.num_experts is " + text(experts), hint);
      }
      if (!placed.insert(expert).second) {
        throw Error(where + " names expert " + text(expert) + ", which is placed already", hint);
      }
    }
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    if (placed.count(expert) == 0) throw Error("parallel.expert_placement leaves out expert " + text(expert), hint);
  }
}

}  // namespace taut::config
