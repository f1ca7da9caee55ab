#include "runtime/model/attention.h"

#include "taut.h"

namespace taut::model {

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionShape& shape, comm::Group* cp) {
  if ((cp != nullptr && cp->size() > 1) || shape.kind != config::Attention::dense) {
    throw Error("this attention is not built yet", "use dense attention on one rank");
  }
  const at::Tensor output =
      at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {}, 0.0,
                                       /*is_causal=*/true, {}, /*enable_gqa=*/key.size(2) < query.size(2));
  return output.transpose(1, 2).flatten(2, 3);
}

}  // namespace taut::model
