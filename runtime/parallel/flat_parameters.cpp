#include "runtime/parallel/flat_parameters.h"

#include <algorithm>

namespace taut::parallel {
namespace {

constexpr int64_t kAlignment = 16;  // elements of 4 bytes

int64_t aligned(int64_t count, int64_t unit) {
  return (count + unit - 1) / unit * unit;
}

/// A bucket while it is filled, and what decides whether the next parameter may join.
struct Open {
  Bucket bucket;
  bool persistent = false, alone = false;
  size_t last_position = 0;  // of its last parameter in backward order
};

void make_buffers(Bucket& bucket, const FlatParameters& flat, const FlatSettings& settings) {
  const at::Device device = flat.parameters[bucket.spans.front().parameter].value.device();
  const auto fp32 = at::TensorOptions().dtype(at::kFloat).device(device);
  const at::Tensor whole = at::zeros({bucket.count}, fp32);
  for (const Span& span : bucket.spans) {
    whole.narrow(0, span.offset, span.count).copy_(flat.parameters[span.parameter].value.flatten());
  }
  const auto own_slice = [&](const at::Tensor& buffer) {
    return buffer.narrow(0, bucket.own_offset(), bucket.own_count());
  };
  if (bucket.values_sharded) {
    bucket.own_values = own_slice(whole).clone();
    bucket.values = at::empty({bucket.count}, fp32.dtype(settings.compute_type));
  } else {
    bucket.values = whole;
    bucket.own_values = own_slice(whole);
  }
  if (bucket.gradients_sharded) {
    bucket.gradients = at::empty({bucket.count}, fp32);
    bucket.own_gradients = at::zeros({bucket.own_count()}, fp32);
  } else {
    bucket.gradients = at::zeros({bucket.count}, fp32);
    bucket.own_gradients = own_slice(bucket.gradients);
  }
}

}  // namespace

at::Tensor take_shard(const at::Tensor& full, const Shard& shard, int tp_rank, int tp_size) {
  if (shard.dim < 0 || tp_size == 1) return full.contiguous().clone();
  std::vector<at::Tensor> pieces;
  int64_t start = 0;
  for (const int64_t block : shard.blocks) {
    const int64_t piece = (block + tp_size - 1) / tp_size;
    const int64_t first = std::min(block, piece * tp_rank), last = std::min(block, first + piece);
    pieces.push_back(full.narrow(shard.dim, start + first, last - first));
    if (last - first < piece) {
      std::vector<int64_t> padding = full.sizes().vec();
      padding[shard.dim] = piece - (last - first);
      pieces.push_back(at::zeros(padding, full.options()));
    }
    start += block;
  }
  return at::cat(pieces, shard.dim).contiguous();
}

int64_t FlatParameters::bytes() const {
  int64_t elements = 0;
  for (const Bucket& bucket : buckets) elements += bucket.count;
  return 4 * elements;
}

void allocate_storage(const at::Tensor& buffer) {
  c10::StorageImpl* storage = buffer.storage().unsafeGetStorageImpl();
  const size_t bytes = static_cast<size_t>(buffer.storage_offset() + buffer.numel()) * buffer.element_size();
  if (storage->nbytes() == bytes) return;
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

void release_storage(const at::Tensor& buffer) {
  c10::StorageImpl* storage = buffer.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(0);
}

FlatParameters flatten(std::vector<Parameter> parameters, const FlatSettings& settings) {
  const at::NoGradGuard no_grad;
  FlatParameters flat;
  flat.parameters = std::move(parameters);
  std::vector<Open> open;  // open or closed, in order of opening; the last of each group may still grow
  for (size_t position = 0; position < flat.parameters.size(); ++position) {
    const size_t index = flat.parameters.size() - 1 - position;
    const Parameter& parameter = flat.parameters[index];
    const int64_t count = parameter.value.numel();
    comm::Group* group = parameter.expert ? settings.expert_group : settings.dense_group;
    const bool persistent = settings.zero_stage == 3 && count <= settings.persistence_threshold;
    const bool alone = parameter.name == "embedding.weight";
    // An expert's bucket and a dense one grow side by side.
    const auto joins = [&](const Open& candidate) {
      const Bucket& bucket = candidate.bucket;
      return bucket.group == group && bucket.chunk == parameter.chunk && candidate.persistent == persistent &&
             !candidate.alone && !alone && bucket.count + count <= settings.bucket_elements &&
             (settings.zero_stage < 3 || persistent || bucket.unit == parameter.unit);
    };
    const auto same_group = [&](const Open& candidate) {
      return candidate.bucket.group == group && candidate.persistent == persistent;
    };
    auto found = std::find_if(open.rbegin(), open.rend(), same_group);
    if (found == open.rend() || !joins(*found)) {
      Open fresh;
      fresh.bucket.group = group;
      fresh.bucket.unit = parameter.unit;
      fresh.bucket.chunk = parameter.chunk;
      fresh.persistent = persistent;
      fresh.alone = alone;
      open.push_back(std::move(fresh));
      found = open.rbegin();
    }
    found->bucket.spans.push_back({found->bucket.count, count, index});
    found->bucket.count += aligned(count, kAlignment);
    found->last_position = position;
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Open& a, const Open& b) { return a.last_position < b.last_position; });
  int64_t elements = 0;
  for (Open& finished : open) {
    Bucket& bucket = finished.bucket;
    const int ranks = bucket.group ? bucket.group->size() : 1;
    bucket.slices = settings.zero_stage > 0 ? ranks : 1;
    bucket.count = aligned(bucket.count, kAlignment * bucket.slices);
    bucket.values_sharded = settings.zero_stage == 3 && ranks > 1 && !finished.persistent;
    bucket.gradients_sharded = settings.zero_stage >= 2 && ranks > 1;
    const std::string group_name = bucket.group ? bucket.group->name() : "alone";
    bucket.content_id =
        comm::content_id(group_name + ".bucket." + flat.parameters[bucket.spans.front().parameter].name);
    bucket.first_element = elements;
    elements += bucket.count;
    make_buffers(bucket, flat, settings);
    for (const Span& span : bucket.spans) {
      at::Tensor& value = flat.parameters[span.parameter].value;
      const auto view = [&](const at::Tensor& buffer) {
        return buffer.narrow(0, span.offset, span.count).view(value.sizes());
      };
      value.set_data(view(bucket.values));
      if (!bucket.gradients_sharded) value.mutable_grad() = view(bucket.gradients);
    }
    if (bucket.values_sharded) release_storage(bucket.values);
    if (bucket.gradients_sharded) release_storage(bucket.gradients);
    flat.buckets.push_back(std::move(bucket));
  }
  return flat;
}

}  // namespace taut::parallel
