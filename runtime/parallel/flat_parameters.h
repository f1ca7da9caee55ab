// The parameters of one rank in buckets: contiguous ranges that are reduced, gathered and updated as one.
//
// What a rank keeps of a bucket depends on the ZeRO stage (Rajbhandari et al., "ZeRO", arXiv 1910.02054, section 5).
// With N ranks in the bucket's group, each owns an equal slice of it:
//   stage 0   weights, gradients and optimizer states in full
//   stage 1   optimizer states of the own slice
//   stage 2   and gradients of the own slice; a bucket's full gradients exist while they are filled and reduced
//   stage 3   and weights of the own slice; a unit's full weights exist while it computes (parameter_gathering.h)
// Parameters and their gradients are views of the buckets' buffers, so that nothing is copied on the way.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/comm/process_group.h"
#include "runtime/parallel/parameter.h"

namespace taut::parallel {

/// Where a parameter lies in its bucket, in elements.
struct Span {
  int64_t offset = 0, count = 0;
  size_t parameter = 0;  // index into FlatParameters::parameters
};

/// Spans start at multiples of 64 bytes; the gaps between them are zero in every buffer.
struct Bucket {
  comm::Group* group = nullptr;  // reduces the gradients: dp × cp, or edp for experts
  std::vector<Span> spans;       // in reverse order of use: the order in which backward finishes gradients
  int unit = 0, chunk = 0;       // of the parameters; a bucket may hold several units except under ZeRO 3
  int64_t count = 0;             // elements, a multiple of `slices`
  int slices = 1;                // N under ZeRO, else 1
  bool values_sharded = false, gradients_sharded = false;
  int64_t content_id = 0;  // names the bucket in the trace
  int64_t first_element = 0;  // where it lies in the rank's parameters, buckets one after another

  // [count]: the weights that the model computes with. Sharded: empty storage while they are not gathered.
  at::Tensor values;
  // [count] fp32. Sharded: empty storage while no gradient is under way.
  at::Tensor gradients;
  // [count / slices] fp32: the slice that this rank updates, and the gradient for it. Views of the above unless
  // sharded.
  at::Tensor own_values, own_gradients;

  int64_t own_count() const { return count / slices; }
  /// Names a transfer of the bucket.
  comm::ContentTag tag(int64_t version, comm::Reason reason) const {
    return {content_id, version, reason, first_element, count};
  }
  /// The own slice's first element within the bucket.
  int64_t own_offset() const { return slices == 1 ? 0 : group->rank() * own_count(); }
};

struct FlatParameters {
  std::vector<Parameter> parameters;  // in order of use in the forward pass
  std::vector<Bucket> buckets;        // in the order in which backward finishes them; the same on every rank of a group

  int64_t bytes() const;  // of the weights in full, fp32
};

struct FlatSettings {
  int zero_stage = 0;
  int64_t bucket_elements = 0;        // a bucket closes before it grows beyond this; a larger parameter has its own
  int64_t persistence_threshold = 0;  // ZeRO 3: parameters of at most so many elements stay whole
  at::ScalarType compute_type = at::kFloat;  // ZeRO 3: matrices are gathered in this type
  comm::Group* dense_group = nullptr;        // dp × cp; null = this rank alone
  comm::Group* expert_group = nullptr;       // edp
};

/// Moves the parameters (in order of use) into buckets; their tensors stay the same leaves. Collective over nothing:
/// the values are already equal on all ranks of a group. The word embedding has a bucket of its own, since two pipeline
/// stages may share it and must then own the same slice of it.
FlatParameters flatten(std::vector<Parameter> parameters, const FlatSettings& settings);

/// Gives a buffer its memory (uninitialised) or takes it away; views of it stay valid objects.
void allocate_storage(const at::Tensor& buffer);
void release_storage(const at::Tensor& buffer);

}  // namespace taut::parallel
