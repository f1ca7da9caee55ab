// One training rank: builds its part of the model, runs the steps, says what it does in the trace.
//
// A step: begin (gradients cleared) -> the pipeline schedule's forwards and backwards (data-parallel reduction starts
// in the last backward) -> reductions finished -> global norm and clipping -> optimizer -> checkpoint when due.
//
// Loss: every rank's backward starts from its microbatch's mean divided by (microbatches · dp), so the sum over
// microbatches and replicas is the gradient of the mean over all tokens of the global batch, whatever the layout.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <torch/types.h>

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/config/config.h"
#include "runtime/launch/status.h"
#include "runtime/model/gpt.h"
#include "runtime/optim/adamw.h"
#include "runtime/parallel/grad_buckets.h"
#include "runtime/parallel/linear.h"
#include "runtime/parallel/pipeline_runner.h"
#include "runtime/train/microbatch_feed.h"
#include "runtime/train/step_line.h"
#include "tracer/annotate/annotate.h"

namespace taut::train {

class Trainer {
 public:
  /// Connects to the other ranks and builds this rank's part; resumes from the newest checkpoint in checkpoint.dir. All
  /// ranks must call it. Throws taut::Error.
  Trainer(const config::Config& config, const comm::LaunchEnvironment& environment, bool json);
  ~Trainer();

  /// Trains to config.train_steps and saves the last state when checkpoint.dir is set.
  void run();

 private:
  StepReport train_step(int64_t step);
  /// Names one pass in the trace.
  annotate::Microbatch pass_of(int64_t step, int chunk, int microbatch, char pass) const;
  bool needs_tokens(int chunk) const { return plans_[chunk].first || plans_[chunk].last; }
  at::Tensor forward(int64_t step, int chunk, int microbatch, const at::Tensor& input);
  void backward(int64_t step, int chunk, int microbatch, const at::Tensor& output, const at::Tensor& gradient);
  void weight_gradients(int64_t step, int chunk, int microbatch);
  void reduce_tied_embedding(int64_t step);
  void save_if_due(int64_t steps_done);
  void save(int64_t steps_done);
  void print_start() const;

  config::Config config_;
  bool json_;
  at::Device device_;
  c10::DeviceGuard current_device_;  // kernels start on this rank's GPU
  comm::Communicator communicator_;
  parallel::TensorParallel tensor_parallel_;
  std::vector<model::StagePlan> plans_;                   // of this rank's chunks of layers
  std::vector<std::unique_ptr<model::GptStage>> chunks_;  // more than one in an interleaved pipeline
  parallel::FlatParameters flat_;
  std::unique_ptr<parallel::GradBuckets> buckets_;
  std::unique_ptr<optim::AdamW> optimizer_;
  std::unique_ptr<parallel::PipelineRunner> pipeline_;
  std::optional<parallel::DeferredWeightGradients> deferred_;  // where the schedule splits backward
  std::unique_ptr<MicrobatchFeed> feed_;
  std::optional<launch::StatusFile> status_;

  bool last_stage_, reports_;
  int64_t first_step_ = 0, last_saved_ = -1;
  double peak_ = 0, last_save_time_ = 0;
  std::map<int, at::Tensor> tokens_;  // of the microbatches whose forward is to come
  at::Tensor loss_sum_;               // of this step's microbatches
};

}  // namespace taut::train
