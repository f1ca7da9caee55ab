// One training rank: builds its part of the model, runs the steps, says what it does in the trace.
//
// A step: begin (gradients cleared) -> the pipeline schedule's forwards and backwards (data-parallel reduction goes on
// meanwhile) -> reductions finished -> global norm and clipping -> optimizer on the own slices -> new weights gathered
// where ZeRO divides them (the next forward pass waits for them) -> checkpoint when due.
//
// Loss: every rank's backward starts from the sum of its tokens' losses divided by the tokens of the global batch, so
// the sum over microbatches and ranks is the gradient of the mean over all tokens, whatever the layout. Tokens that are
// masked (data.eod_mask_loss) are known only at the step's end: the optimizer then scales by tokens / unmasked tokens.
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
#include "runtime/optim/loss_scaler.h"
#include "runtime/parallel/gradient_reduction.h"
#include "runtime/parallel/linear.h"
#include "runtime/parallel/parameter_gathering.h"
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
  void backward(int64_t step, int chunk, int microbatch, at::Tensor output, const at::Tensor& gradient);
  void weight_gradients(int64_t step, int chunk, int microbatch);
  void build_chunks();
  void shard_parameters();
  void build_pipeline();
  void finish_gradients(int64_t step);
  void update_weights(int64_t step, double lr, double gradient_scale);
  /// What the gradient of the global mean scales a sum of token losses by.
  double loss_factor() const { return scaler_.scale() / step_tokens_; }
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
  std::unique_ptr<parallel::GradientReduction> reduction_;
  std::unique_ptr<parallel::ParameterGathering> gathering_;
  std::unique_ptr<optim::AdamW> optimizer_;
  optim::LossScaler scaler_;
  std::unique_ptr<parallel::PipelineRunner> pipeline_;
  std::optional<parallel::DeferredWeightGradients> deferred_;  // where the schedule splits backward
  std::unique_ptr<MicrobatchFeed> feed_;
  std::optional<launch::StatusFile> status_;

  bool reports_;
  int64_t first_step_ = 0, last_saved_ = -1;
  double peak_ = 0, last_save_time_ = 0;
  std::map<int, Tokens> tokens_;  // of the microbatches whose forward is to come
  double step_tokens_;            // of the global batch
  at::Tensor loss_;               // [2] fp64: sum of losses and unmasked tokens of this step's microbatches
};

}  // namespace taut::train
