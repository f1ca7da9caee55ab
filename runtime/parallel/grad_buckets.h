// Data-parallel gradient reduction: gradients are summed over the dp group in flat buckets, filled in the order in
// which backward finishes them, so that the first buckets travel while backward still computes (Li et al., "PyTorch
// Distributed", VLDB 2020, section 3.2). Only the last microbatch of a step synchronises; the ones before just
// accumulate.
//
// Buckets are slices of FlatParameters::gradients: nothing is copied. The sum becomes the average because the loss is
// divided by the number of replicas before backward.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/comm/collectives.h"
#include "runtime/parallel/flat_parameters.h"

namespace taut::parallel {

struct BucketSettings {
  bool overlap = true;                   // else one blocking reduction after another once backward has ended
  std::optional<double> bucket_size_mb;  // none = "auto"
};

/// Bytes of a bucket: the setting, or for "auto" an eighth of the gradients within 1 … 25 MiB: enough buckets to
/// overlap, each long enough to be worth its latency.
int64_t bucket_bytes(const BucketSettings& settings, int64_t gradient_bytes);

class GradBuckets {
 public:
  /// Puts hooks on the parameters. `flat` and `dp` must outlive this object.
  GradBuckets(FlatParameters& flat, comm::Group& dp, const BucketSettings& settings);
  ~GradBuckets();
  GradBuckets(const GradBuckets&) = delete;
  GradBuckets& operator=(const GradBuckets&) = delete;

  /// Clears the gradients of the step before.
  void begin_step(int64_t step);
  /// Before the backward of the step's last microbatch: from now on finished buckets are reduced.
  void expect_last_backward();
  /// After it: reduces what is left and waits until all gradients are reduced.
  void finish();

  size_t size() const { return buckets_.size(); }

 private:
  struct Bucket {
    at::Tensor gradients;
    int parameters = 0, missing = 0;
    int64_t content_id = 0;
    comm::Handle handle;
  };
  void gradient_ready(size_t bucket);
  void reduce_ready_buckets();
  comm::ContentTag tag_of(const Bucket& bucket) const;

  FlatParameters& flat_;
  comm::Group& dp_;
  const bool overlap_;
  std::vector<Bucket> buckets_;
  bool last_backward_ = false;
  size_t next_to_reduce_ = 0;  // every rank issues in this order
  int64_t step_ = 0;
};

}  // namespace taut::parallel
