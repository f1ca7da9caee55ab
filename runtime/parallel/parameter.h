// What everybody who handles parameters knows about one: its global name, its local values, and which part of the full
// tensor they are.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace taut::parallel {

/// How tensor parallelism divides a tensor. `dim` -1 = every rank holds all of it. Otherwise dimension `dim` consists
/// of `blocks` (sizes in elements; the query, key and value rows of a fused projection, say); each block is divided
/// evenly and a rank's shard is its piece of every block, one after another. A block that tp does not divide (the
/// vocabulary) is padded with zeros at its end.
struct Shard {
  int dim = -1;
  std::vector<int64_t> blocks;
};

/// This rank's shard of `full`: a contiguous copy.
at::Tensor take_shard(const at::Tensor& full, const Shard& shard, int tp_rank, int tp_size);

struct Parameter {
  std::string name;                 // global: the same on every layout ("layers.3.attention.qkv.weight")
  at::Tensor value;                 // this rank's fp32 leaf
  std::vector<int64_t> full_shape;  // of the whole tensor
  Shard shard;
  bool decay = true;         // weight decay applies: matrices yes, norms' weights and biases no
  bool second_copy = false;  // the last stage's copy of the tied embedding: count it once
  bool expert = false;       // held by one expert-parallel rank; its gradient is reduced over edp, not dp × cp
  // Under sequence parallelism each tp rank sees a part of the sequence: the gradient is summed over tp.
  bool sequence_partial = false;
  int unit = 0;   // what ZeRO 3 gathers together, in order of use: the embedding, one layer, the head
  int chunk = 0;  // the virtual pipeline stage on this rank that it belongs to
};

}  // namespace taut::parallel
