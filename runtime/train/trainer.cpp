#include "runtime/train/trainer.h"

#include <ATen/autocast_mode.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/collectives.h"
#include "runtime/config/model_math.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/train/matmul_peak.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

comm::MeshSize mesh_of(const config::Config& config) {
  comm::MeshSize size;
  size.pp = static_cast<int>(config.parallel.pipeline_parallel_size);
  size.cp = static_cast<int>(config.parallel.context_parallel_size);
  size.ep = static_cast<int>(config.parallel.expert_parallel_size);
  size.tp = static_cast<int>(config.parallel.tensor_parallel_size);
  size.dp = static_cast<int>(config.data_parallel_size());
  return size;
}

at::Device choose_device(const comm::LaunchEnvironment& environment) {
  if (!torch::cuda::is_available()) return at::kCPU;
  // More ranks than GPUs share them; the communicator then goes through the host.
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(environment.local_rank % torch::cuda::device_count()));
}

/// bf16 matrix products while it lives. The casts of the weights are cached until `clear_cache`: once a step, not once
/// a microbatch.
class Autocast {
 public:
  Autocast(at::DeviceType type, bool enabled) : type_(type), enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(type_, at::kBFloat16);
    at::autocast::set_autocast_enabled(type_, true);
  }
  ~Autocast() {
    if (enabled_) at::autocast::set_autocast_enabled(type_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  at::DeviceType type_;
  bool enabled_;
};

}  // namespace

Trainer::Trainer(const config::Config& config, const comm::LaunchEnvironment& environment, bool json)
    : config_(config),
      json_(json),
      device_(choose_device(environment)),
      current_device_(device_),
      communicator_(environment, mesh_of(config), config.communication, device_),
      tensor_parallel_{&communicator_.tp(), config.parallel.gather_output} {
  static const annotate::Name init_name("init");
  const annotate::Range init(init_name);
  const comm::Coordinates& at = communicator_.at();
  const model::StagePlan plan = model::plan_stage(config_, at.pp);
  first_stage_ = plan.first;
  last_stage_ = plan.last;
  reports_ = at.dp == 0 && at.tp == 0 && last_stage_;

  stage_ = std::make_unique<model::GptStage>(config_.model, plan, tensor_parallel_, config_.seed, device_);
  flat_ = parallel::flatten(stage_->parameters());
  buckets_ = std::make_unique<parallel::GradBuckets>(
      flat_, communicator_.dp(),
      parallel::BucketSettings{config_.communication.overlap_grad_reduce, config_.communication.bucket_size_mb});
  optimizer_ = std::make_unique<optim::AdamW>(flat_, config_.optimizer.params);

  const int stages = communicator_.size().pp, microbatches = static_cast<int>(config_.gradient_accumulation_steps);
  // Without a pipeline every schedule is plain accumulation; 1f1b keeps one microbatch in flight.
  const auto schedule = stages == 1 ? parallel::one_forward_one_backward(1, microbatches)
                                    : parallel::make_schedule(config_.parallel.pipeline_schedule, stages, microbatches);
  parallel::validate(schedule);
  pipeline_ = std::make_unique<parallel::PipelineRunner>(
      communicator_.pp(), schedule.programs[at.pp],
      std::vector<int64_t>{config_.train_micro_batch_size_per_gpu, config_.model.seq_length, config_.model.hidden_size},
      at::TensorOptions().dtype(at::kFloat).device(device_));

  if (!config_.checkpoint.dir.empty()) {
    if (const auto steps_done = checkpoint::newest(config_.checkpoint.dir)) {
      checkpoint::load(config_, *steps_done, {flat_, *optimizer_}, communicator_);
      first_step_ = last_saved_ = *steps_done;
    }
  }
  feed_ = std::make_unique<MicrobatchFeed>(config_, communicator_, device_, first_step_);
  if (const char* path = std::getenv(launch::kStatusFileVariable); path && *path) {
    status_ = launch::StatusFile::open(path);
  }
  peak_ = matmul_peak(device_, config_.bf16.enabled ? at::kBFloat16 : at::kFloat);
  last_save_time_ = now_seconds();
  comm::barrier(communicator_.world());
}

Trainer::~Trainer() = default;

void Trainer::print_start() const {
  if (!reports_ || json_) return;
  const comm::MeshSize& size = communicator_.size();
  std::printf(
      "%.2f M parameters on %d ranks (tp %d, pp %d, dp %d), %s; peak %.0f GFLOP/s a rank (%s); "
      "MFU counts 6 FLOP a token and matrix parameter, causal attention at half\n",
      static_cast<double>(config::parameter_count(config_.model)) / 1e6, size.world(), size.tp, size.pp, size.dp,
      config_.bf16.enabled ? "bf16" : "fp32", peak_ / 1e9, device_.is_cuda() ? "GPU table" : "measured");
  if (first_step_ > 0) {
    std::printf("resumed from %s/step-%lld\n", config_.checkpoint.dir.c_str(), static_cast<long long>(first_step_));
  }
  std::fflush(stdout);
}

void Trainer::run() {
  print_start();
  for (int64_t step = first_step_; step < config_.train_steps; ++step) {
    const StepReport report = train_step(step);
    if (!reports_) continue;
    std::printf("%s\n", (json_ ? step_json(report) : step_text(report)).c_str());
    std::fflush(stdout);
  }
  if (!config_.checkpoint.dir.empty() && last_saved_ < std::max(first_step_, config_.train_steps)) {
    save(std::max(first_step_, config_.train_steps));
  }
  // Nobody leaves while others still talk to it: rank 0 serves the store.
  comm::barrier(communicator_.world());
}

at::Tensor Trainer::forward(int64_t step, int microbatch, const at::Tensor& input) {
  static const annotate::Name name("microbatch F");
  const comm::Coordinates& at = communicator_.at();
  const annotate::Range range(name, annotate::Microbatch{step, communicator_.rank(), microbatch, at.pp, 0, 'F', 0});
  const Autocast autocast(device_.type(), config_.bf16.enabled);
  const model::MicrobatchId id{step,
                               (microbatch * communicator_.size().dp + at.dp) * config_.train_micro_batch_size_per_gpu};
  const int64_t seq = config_.model.seq_length;
  at::Tensor tokens;
  if (feed_->needed()) {
    tokens = std::move(tokens_.at(microbatch));
    tokens_.erase(microbatch);
  }
  const at::Tensor hidden = stage_->forward(first_stage_ ? tokens.narrow(1, 0, seq) : input, id);
  if (!last_stage_) return hidden;
  const at::Tensor loss = stage_->loss(hidden, tokens.narrow(1, 1, seq));
  loss_sum_.add_(loss.detach());
  return loss / static_cast<double>(config_.gradient_accumulation_steps * communicator_.size().dp);
}

void Trainer::backward(int64_t step, int microbatch, const at::Tensor& output, const at::Tensor& gradient) {
  static const annotate::Name name("microbatch B");
  const annotate::Range range(
      name, annotate::Microbatch{step, communicator_.rank(), microbatch, communicator_.at().pp, 0, 'B', 0});
  if (microbatch + 1 == config_.gradient_accumulation_steps) buckets_->expect_last_backward();
  output.backward(gradient);
}

void Trainer::reduce_tied_embedding(int64_t step) {
  if (!config_.model.tie_embeddings || communicator_.size().pp == 1 || !communicator_.embedding()) return;
  for (const parallel::Span& span : flat_.spans) {
    if (flat_.parameters[span.parameter].name != "embedding.weight") continue;
    comm::all_reduce(*communicator_.embedding(), flat_.gradients.narrow(0, span.offset, span.count), comm::Reduce::sum,
                     {comm::content_id("gradients.embedding." + communicator_.embedding()->name()), step,
                      comm::Reason::gradient, span.offset, span.count});
  }
}

StepReport Trainer::train_step(int64_t step) {
  static const annotate::Name step_name(annotate::Step::kName), result_name(annotate::StepResult::kName),
      optimizer_name("optimizer"), clip_name("clip_grad");
  const double start = now_seconds();
  StepReport report{step, config_.train_steps};
  const annotate::Range step_range(step_name, annotate::Step{step, communicator_.rank(), 0});
  if (status_) status_->set(communicator_.rank(), step);

  buckets_->begin_step(step);
  loss_sum_ = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device_));
  parallel::StageWork work;
  work.prepare = [&](int microbatch) {
    if (feed_->needed()) tokens_[microbatch] = feed_->next(step, microbatch);
  };
  work.forward = [&](int microbatch, const at::Tensor& input) { return forward(step, microbatch, input); };
  work.backward = [&](int microbatch, const at::Tensor&, const at::Tensor& output, const at::Tensor& gradient) {
    backward(step, microbatch, output, gradient);
  };
  pipeline_->run(work);

  buckets_->finish();
  comm::Handle loss_reduced;
  if (last_stage_)
    loss_reduced =
        comm::all_reduce_async(communicator_.dp(), loss_sum_, comm::Reduce::sum, {.reason = comm::Reason::loss});
  reduce_tied_embedding(step);

  report.lr = optim::learning_rate(config_.scheduler, config_.optimizer.params.lr, step, config_.train_steps);
  double factor = 1.0;
  {
    const annotate::Range range(clip_name);
    report.grad_norm = optim::global_grad_norm(flat_, communicator_);
    factor = optim::clip_factor(report.grad_norm, config_.gradient_clipping);
  }
  {
    const annotate::Range range(optimizer_name);
    const at::NoGradGuard no_grad;
    optimizer_->step(report.lr, factor);
    at::autocast::clear_cache();
  }
  loss_reduced.wait();
  report.loss = last_stage_ ? loss_sum_.item<double>() /
                                  static_cast<double>(config_.gradient_accumulation_steps * communicator_.size().dp)
                            : kNan;
  save_if_due(step + 1);

  const int64_t replica_tokens =
      config_.train_micro_batch_size_per_gpu * config_.gradient_accumulation_steps * config_.model.seq_length;
  annotate::mark(result_name, annotate::StepResult{replica_tokens, report.loss, report.grad_norm});
  const double seconds = now_seconds() - start;
  const double tokens = static_cast<double>(replica_tokens * communicator_.size().dp);
  report.step_ms = seconds * 1e3;
  report.tokens_per_s = tokens / seconds;
  report.mfu = config::flops_per_token(config_.model) * report.tokens_per_s / (peak_ * communicator_.size().world());
  return report;
}

void Trainer::save_if_due(int64_t steps_done) {
  const config::Checkpoint& when = config_.checkpoint;
  if (when.dir.empty()) return;
  bool due = when.interval_steps > 0 && steps_done % when.interval_steps == 0;
  if (when.interval_minutes > 0) {
    // Clocks differ: the decision must be everybody's.
    const at::Tensor flag = at::zeros({1}, at::TensorOptions().dtype(at::kFloat).device(device_));
    if (now_seconds() - last_save_time_ >= when.interval_minutes * 60) flag.fill_(1);
    comm::all_reduce(communicator_.world(), flag, comm::Reduce::max, {.reason = comm::Reason::control});
    due = due || flag.item<float>() > 0;
  }
  if (due) save(steps_done);
}

void Trainer::save(int64_t steps_done) {
  static const annotate::Name name(annotate::Checkpoint::kName);
  const int64_t bytes = communicator_.at().dp == 0 ? 3 * static_cast<int64_t>(flat_.values.nbytes()) : 0;
  const annotate::Range range(name, annotate::Checkpoint{steps_done, bytes, communicator_.rank(), 0});
  checkpoint::save(config_, steps_done, {flat_, *optimizer_}, communicator_);
  last_saved_ = steps_done;
  last_save_time_ = now_seconds();
}

}  // namespace taut::train
