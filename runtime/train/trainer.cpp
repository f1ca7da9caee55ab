#include "runtime/train/trainer.h"

#include <ATen/autocast_mode.h>

#include <chrono>
#include <cmath>
#include <cstdio>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/collectives.h"
#include "runtime/config/model_math.h"
#include "runtime/optim/grad_norm.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/train/allocated_memory.h"
#include "runtime/train/matmul_peak.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::train {
namespace {

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

at::ScalarType compute_type(const config::Config& config) {
  if (config.bf16.enabled) return at::kBFloat16;
  return config.fp16.enabled ? at::kHalf : at::kFloat;
}

const char* precision_name(const config::Config& config) {
  if (config.bf16.enabled) return "bf16";
  return config.fp16.enabled ? "fp16" : "fp32";
}

/// Matrix products in the compute type while it lives. The casts of the weights are cached until `clear_cache`: once a
/// step, not once a microbatch.
class Autocast {
 public:
  Autocast(at::DeviceType type, at::ScalarType compute_type) : type_(type), enabled_(compute_type != at::kFloat) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(type_, compute_type);
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
      tensor_parallel_{&communicator_.tp(), config.parallel.gather_output, config.parallel.sequence_parallel},
      scaler_(config.fp16),
      step_tokens_(static_cast<double>(config.train_batch_size * config.model.seq_length)) {
  static const annotate::Name init_name("init");
  const annotate::Range init(init_name);
  const comm::Coordinates& at = communicator_.at();
  reports_ = at.dp == 0 && at.cp == 0 && at.tp == 0 && at.pp + 1 == communicator_.size().pp;

  build_chunks();
  build_pipeline();
  shard_parameters();
  if (!config_.checkpoint.dir.empty()) {
    if (const auto steps_done = checkpoint::newest(config_.checkpoint.dir)) {
      checkpoint::load(config_, *steps_done, {flat_, *optimizer_, scaler_}, communicator_);
      first_step_ = last_saved_ = *steps_done;
    }
  }
  feed_ = std::make_unique<MicrobatchFeed>(config_, communicator_, device_, first_step_);
  if (const char* path = std::getenv(launch::kStatusFileVariable); path && *path) {
    status_ = launch::StatusFile::open(path);
  }
  peak_ = matmul_peak(device_, compute_type(config_));
  last_save_time_ = now_seconds();
  comm::barrier(communicator_.world());
}

Trainer::~Trainer() = default;

void Trainer::build_chunks() {
  const int chunks = communicator_.size().pp == 1 ? 1 : static_cast<int>(config_.parallel.virtual_pipeline_stages);
  int unit = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    model::StageContext context{tensor_parallel_};
    context.cp = &communicator_.cp();
    context.ep = &communicator_.ep();
    context.checkpointing = config_.activation_checkpointing.mode;
    if (config_.model.num_experts > 0) context.experts = model::place_experts(config_.model, config_.parallel);
    context.chunk = chunk;
    context.first_unit = unit;
    plans_.push_back(model::plan_stage(config_, communicator_.at().pp, chunk));
    chunks_.push_back(std::make_unique<model::GptStage>(config_.model, plans_[chunk], context, config_.seed, device_));
    unit = chunks_.back()->end_unit();
  }
}

void Trainer::shard_parameters() {
  const config::ZeroOptimization& zero = config_.zero_optimization;
  std::vector<parallel::Parameter> parameters;
  int64_t elements = 0;
  for (const auto& chunk : chunks_) {
    for (const parallel::Parameter& parameter : chunk->parameters()) {
      elements += parameter.value.numel();
      parameters.push_back(parameter);
    }
  }
  parallel::FlatSettings layout;
  layout.zero_stage = static_cast<int>(zero.stage);
  layout.bucket_elements = zero.stage > 0
                               ? zero.reduce_bucket_size
                               : parallel::bucket_elements(config_.communication.bucket_size_mb, 4 * elements);
  layout.persistence_threshold = zero.stage3_param_persistence_threshold;
  layout.compute_type = compute_type(config_);
  layout.dense_group = &communicator_.dp_cp();
  layout.expert_group = &communicator_.edp();
  flat_ = parallel::flatten(std::move(parameters), layout);

  parallel::ReductionSettings reduction;
  reduction.overlap = zero.stage > 0 ? zero.overlap_comm : config_.communication.overlap_grad_reduce;
  reduction.microbatches = static_cast<int>(config_.gradient_accumulation_steps);
  reduction.split_backward = deferred_.has_value();
  reduction_ = std::make_unique<parallel::GradientReduction>(flat_, reduction);
  if (zero.stage > 0 && communicator_.dp_cp().size() > 1) {
    gathering_ = std::make_unique<parallel::ParameterGathering>(
        flat_, parallel::GatheringSettings{zero.overlap_comm, zero.reshard_after_forward,
                                           zero.stage3_prefetch_bucket_size, zero.stage3_max_live_parameters});
    for (const auto& chunk : chunks_) chunk->set_gathering(gathering_.get());
  }
  optimizer_ = std::make_unique<optim::AdamW>(flat_, config_.optimizer.params, zero.offload_optimizer);
}

void Trainer::build_pipeline() {
  const int stages = communicator_.size().pp, microbatches = static_cast<int>(config_.gradient_accumulation_steps);
  // Without a pipeline every schedule is plain accumulation; 1f1b keeps one microbatch in flight.
  const auto schedule = stages == 1 ? parallel::one_forward_one_backward(1, microbatches)
                                    : parallel::make_schedule(config_.parallel.pipeline_schedule, stages, microbatches,
                                                              static_cast<int>(chunks_.size()));
  parallel::validate(schedule);
  if (schedule.splits_backward) deferred_.emplace();
  pipeline_ = std::make_unique<parallel::PipelineRunner>(
      communicator_.pp(), schedule.programs[communicator_.at().pp],
      std::vector<int64_t>{config_.train_micro_batch_size_per_gpu, chunks_[0]->hidden_length(),
                           config_.model.hidden_size},
      at::TensorOptions().dtype(at::kFloat).device(device_));
}

void Trainer::print_start() const {
  if (!reports_ || json_) return;
  const comm::MeshSize& size = communicator_.size();
  std::printf(
      "%.2f M parameters on %d ranks (tp %d, pp %d, cp %d, ep %d, dp %d), ZeRO %lld, %s; peak %.0f GFLOP/s a rank "
      "(%s); "
      "MFU counts 6 FLOP a token and matrix parameter, causal attention at half\n",
      static_cast<double>(config::parameter_count(config_.model)) / 1e6, size.world(), size.tp, size.pp, size.cp,
      size.ep, size.dp, static_cast<long long>(config_.zero_optimization.stage), precision_name(config_), peak_ / 1e9,
      device_.is_cuda() ? "GPU table" : "measured");
  if (first_step_ > 0) {
    std::printf("resumed from %s/step-%lld\n", config_.checkpoint.dir.c_str(), static_cast<long long>(first_step_));
  }
  std::fflush(stdout);
}

void Trainer::run() {
  print_start();
  std::vector<double> step_ms;
  for (int64_t step = first_step_; step < config_.train_steps; ++step) {
    const StepReport report = train_step(step);
    if (!reports_) continue;
    std::printf("%s\n", (json_ ? step_json(report) : step_text(report)).c_str());
    std::fflush(stdout);
    step_ms.push_back(report.step_ms);
  }
  if (!json_ && !step_ms.empty()) std::printf("%s\n", run_text(step_ms, step_tokens_).c_str());
  if (!config_.checkpoint.dir.empty() && last_saved_ < std::max(first_step_, config_.train_steps)) {
    save(std::max(first_step_, config_.train_steps));
  }
  // Nobody leaves while others still talk to it: rank 0 serves the store.
  comm::barrier(communicator_.world());
}

annotate::Microbatch Trainer::pass_of(int64_t step, int chunk, int microbatch, char pass) const {
  return {step, communicator_.rank(), microbatch, communicator_.at().pp, chunk, pass, 0};
}

at::Tensor Trainer::forward(int64_t step, int chunk, int microbatch, const at::Tensor& input) {
  static const annotate::Name name("microbatch F");
  const annotate::Range range(name, pass_of(step, chunk, microbatch, 'F'));
  const Autocast autocast(device_.type(), compute_type(config_));
  std::optional<parallel::DeferredWeightGradients::Scope> defers;
  if (deferred_) defers.emplace(*deferred_);
  // The auxiliary losses are means over a microbatch: theirs is the mean over all microbatches.
  const double microbatches = static_cast<double>(config_.gradient_accumulation_steps * communicator_.size().dp);
  const model::MicrobatchId id{
      step, (microbatch * communicator_.size().dp + communicator_.at().dp) * config_.train_micro_batch_size_per_gpu,
      scaler_.scale() / microbatches};
  model::GptStage& stage = *chunks_[chunk];
  Tokens tokens;
  if (needs_tokens(chunk)) {
    tokens = std::move(tokens_.at(microbatch));
    tokens_.erase(microbatch);
  }
  const at::Tensor hidden = stage.forward(plans_[chunk].first ? tokens.inputs : input, id);
  if (!plans_[chunk].last) return hidden;
  const at::Tensor loss = stage.loss(hidden, tokens.labels);
  loss_.add_(at::stack({loss.detach().to(at::kDouble), (tokens.labels >= 0).sum().to(at::kDouble)}));
  return loss * loss_factor();
}

void Trainer::backward(int64_t step, int chunk, int microbatch, at::Tensor output, const at::Tensor& gradient) {
  static const annotate::Name name("microbatch B");
  const annotate::Range range(name, pass_of(step, chunk, microbatch, 'B'));
  output.backward(gradient);
  if (deferred_) deferred_->finish_backward(chunk, microbatch);
  output.reset();  // what is left of the graph goes within the pass's range
}

void Trainer::weight_gradients(int64_t step, int chunk, int microbatch) {
  static const annotate::Name name("microbatch W");
  const annotate::Range range(name, pass_of(step, chunk, microbatch, 'W'));
  deferred_->run(chunk, microbatch);
}

void Trainer::finish_gradients(int64_t step) {
  comm::Group* embedding = config_.model.tie_embeddings ? communicator_.embedding() : nullptr;
  const auto summed_later = [&](size_t bucket) {
    for (const parallel::Span& span : flat_.buckets[bucket].spans) {
      const parallel::Parameter& parameter = flat_.parameters[span.parameter];
      if (parameter.sequence_partial || (embedding && parameter.name == "embedding.weight")) return true;
    }
    return false;
  };
  reduction_->finish([&](size_t bucket) {
    if (!summed_later(bucket)) optimizer_->gradients_ready(bucket);
  });
  parallel::sum_sequence_partial_gradients(flat_, communicator_.tp());
  if (embedding) parallel::sum_tied_embedding_gradients(flat_, *embedding, step);
  for (size_t bucket = 0; bucket < flat_.buckets.size(); ++bucket) {
    if (summed_later(bucket)) optimizer_->gradients_ready(bucket);
  }
}

void Trainer::update_weights(int64_t step, double lr, double gradient_scale) {
  static const annotate::Name name("optimizer");
  const annotate::Range range(name);
  const at::NoGradGuard no_grad;
  optimizer_->begin_step();
  // What the next forward pass needs first is updated, and gathered, first.
  for (size_t i = flat_.buckets.size(); i-- > 0;) {
    optimizer_->update(i, lr, gradient_scale);
    if (gathering_) gathering_->updated(i, step);
  }
  if (gathering_) gathering_->begin_next_step();
  at::autocast::clear_cache();
}

StepReport Trainer::train_step(int64_t step) {
  static const annotate::Name step_name(annotate::Step::kName), result_name(annotate::StepResult::kName),
      clip_name("clip_grad"), memory_name(annotate::Memory::kName);
  const double start = now_seconds();
  StepReport report{step, config_.train_steps};
  const annotate::Range step_range(step_name, annotate::Step{step, communicator_.rank(), 0});
  if (status_) status_->set(communicator_.rank(), step);

  reset_memory_peak(device_);
  reduction_->begin_step(step);
  loss_ = at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(device_));
  parallel::StageWork work;
  work.prepare = [&](int chunk, int microbatch) {
    if (needs_tokens(chunk)) tokens_[microbatch] = feed_->next(step, microbatch);
  };
  work.forward = [&](int chunk, int microbatch, const at::Tensor& input) {
    return forward(step, chunk, microbatch, input);
  };
  work.backward = [&](int chunk, int microbatch, const at::Tensor&, at::Tensor output, const at::Tensor& gradient) {
    backward(step, chunk, microbatch, std::move(output), gradient);
  };
  work.weight_gradients = [&](int chunk, int microbatch) { weight_gradients(step, chunk, microbatch); };
  pipeline_->run(work);
  finish_gradients(step);

  report.lr = optim::learning_rate(config_.scheduler, config_.optimizer.params.lr, step, config_.train_steps);
  double gradient_scale = 1.0;
  {
    const annotate::Range range(clip_name);
    // One transfer for what the whole world must know: squared norm, sum of losses, unmasked tokens.
    if (communicator_.at().tp != 0) loss_.zero_();  // the same on every tp rank: counted once
    const at::Tensor sums = at::cat({optim::squared_grad_norm(flat_, communicator_.at().tp), loss_});
    comm::all_reduce(communicator_.world(), sums, comm::Reduce::sum, {.reason = comm::Reason::norm});
    const at::Tensor known = sums.cpu();
    const double* sum = known.const_data_ptr<double>();
    const double unmasked = std::max(1.0, sum[2]);
    report.loss = sum[1] / unmasked;
    gradient_scale = step_tokens_ / unmasked / scaler_.scale();
    report.grad_norm = std::sqrt(sum[0]) * gradient_scale;
    gradient_scale *= optim::clip_factor(report.grad_norm, config_.gradient_clipping);
  }
  if (scaler_.step(report.grad_norm)) update_weights(step, report.lr, gradient_scale);
  save_if_due(step + 1);

  for (const auto& chunk : chunks_) chunk->mark_routing(step);

  const int64_t replica_tokens =
      config_.train_micro_batch_size_per_gpu * config_.gradient_accumulation_steps * config_.model.seq_length;
  annotate::mark(result_name, annotate::StepResult{replica_tokens, report.loss, report.grad_norm});
  const AllocatedMemory memory = allocated_memory(device_);
  annotate::mark(memory_name, annotate::Memory{memory.peak, memory.allocated, memory.reserved, memory.resident,
                                               communicator_.rank(), device_.is_cuda() ? device_.index() : -1});
  report.memory_allocated_bytes = memory.allocated;
  report.memory_peak_bytes = memory.peak;
  const double seconds = now_seconds() - start;
  report.step_ms = seconds * 1e3;
  report.tokens_per_s = step_tokens_ / seconds;
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
  const bool writes = communicator_.at().dp == 0 && communicator_.at().cp == 0;
  const annotate::Range range(
      name, annotate::Checkpoint{steps_done, writes ? 3 * flat_.bytes() : 0, communicator_.rank(), 0});
  if (gathering_) gathering_->settle();
  checkpoint::save(config_, steps_done, {flat_, *optimizer_, scaler_}, communicator_);
  last_saved_ = steps_done;
  last_save_time_ = now_seconds();
}

}  // namespace taut::train
