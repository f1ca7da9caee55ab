#include "runtime/data/loader.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "runtime/data/batch_maker.h"
#include "runtime/data/buffers.h"
#include "runtime/data/job.h"
#include "runtime/data/preload.h"
#include "runtime/data/recipe.h"
#include "runtime/data/worker_pool.h"
#include "taut.h"
#include "tracer/annotate/annotate.h"

namespace taut::data {
namespace {

/// Ranks of one job on one node share the preloaded data.
std::string job_name() {
  std::string name;
  for (const char* variable : {"MASTER_ADDR", "MASTER_PORT"}) {
    const char* value = std::getenv(variable);
    name.append(value != nullptr ? value : "").push_back(':');
  }
  return name;
}

}  // namespace

int64_t batches_kept(const config::Config& config) {
  const config::Parallel& parallel = config.parallel;
  const int64_t stages = parallel.pipeline_parallel_size, microbatches = config.gradient_accumulation_steps;
  int64_t in_flight = 1;
  if (stages > 1 && parallel.pipeline_schedule == config::PipelineSchedule::gpipe) in_flight = microbatches;
  if (stages > 1 && parallel.pipeline_schedule != config::PipelineSchedule::gpipe) {
    in_flight = std::min(microbatches, std::max<int64_t>(2, parallel.virtual_pipeline_stages) * stages);
  }
  return in_flight + 1;
}

RingShape ring_shape(const config::Config& config) {
  const int64_t workers = config.data.num_workers, prefetch = config.data.prefetch_factor;
  const int64_t tokens = config.train_micro_batch_size_per_gpu * (config.model.seq_length + 1);
  const int64_t kept_of_each = workers == 0 ? 0 : (batches_kept(config) + workers - 1) / workers;
  return {workers, prefetch, tokens, config.data.shared_memory ? prefetch + kept_of_each : 0};
}

struct Loader::Impl {
  LoaderPlace place;
  int64_t microbatches = 1, end_batch = 0, next_batch = 0;
  int64_t rows = 0, columns = 0;
  std::unique_ptr<PreloadedCorpus> preloaded_text;
  std::unique_ptr<PreloadedTokens> preloaded_tokens;
  std::optional<BatchMaker> maker;  // inline
  std::optional<Buffers> buffers;   // inline
  std::optional<WorkerPool> pool;

  Source open(const config::Config& config) {
    const bool is_text = !config.data.mock && !token_file_prefix(config.data.path);
    if (is_text && config.data.preload) {
      Tokenizer tokenizer(config.data.tokenizer);
      check_vocabulary(tokenizer, config.model.vocab_size);
      preloaded_text = std::make_unique<PreloadedCorpus>(config.data.path, job_name(), config.data.read_latency_ms);
      return TextSource{preloaded_text->corpus(), std::move(tokenizer)};
    }
    Source source = open_source(config);
    const auto* file = std::get_if<TokenFile>(&source);
    if (file != nullptr && config.data.preload) {
      preloaded_tokens = std::make_unique<PreloadedTokens>(*file, job_name(), config.data.read_latency_ms);
    }
    return source;
  }
};

Loader::Loader(const config::Config& config, LoaderPlace place, int64_t first_step, std::filesystem::path program)
    : impl_(std::make_unique<Impl>()) {
  Impl& impl = *impl_;
  impl.place = place;
  impl.microbatches = config.gradient_accumulation_steps;
  impl.next_batch = first_step * impl.microbatches;
  impl.end_batch = config.train_steps * impl.microbatches;
  impl.rows = config.train_micro_batch_size_per_gpu;
  impl.columns = config.model.seq_length + 1;

  Source source = impl.open(config);
  Recipe recipe = make_recipe(config, source);
  if (config.data.preload) recipe.read_latency_ms = 0;  // it was paid while loading
  if (config.data.num_workers == 0) {
    const auto wait = [](double milliseconds) {
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
    };
    impl.buffers.emplace(static_cast<size_t>(impl.rows * impl.columns));
    impl.maker.emplace(std::move(recipe), MakerIdentity{place.dp_rank, place.rank, -1}, std::move(source), wait);
    return;
  }
  Job job;
  job.recipe = std::move(recipe);
  job.tokenizer = config.data.tokenizer;
  job.ring = ring_shape(config);
  job.dp_rank = place.dp_rank;
  job.rank = place.rank;
  job.first_batch = impl.next_batch;
  job.end_batch = impl.end_batch;
  job.trainer_pid = getpid();
  describe_source(source, job);
  impl.pool.emplace(std::move(job), std::move(source), std::move(program));
}

Loader::~Loader() = default;

Batch Loader::next() {
  static const annotate::Name kWait("batch_wait"), kResult("batch_result");
  Impl& impl = *impl_;
  const int64_t batch_number = impl.next_batch, step = batch_number / impl.microbatches;
  if (batch_number >= impl.end_batch) {
    throw Error("the loader has no batch for step " + std::to_string(step),
                "train_steps says how many steps there are");
  }
  const auto microbatch = static_cast<int32_t>(batch_number % impl.microbatches);
  const auto rank = static_cast<int32_t>(impl.place.rank);
  const auto workers = static_cast<int32_t>(impl.pool ? impl.pool->workers() : 0);
  const annotate::BatchWait waits{step, rank, microbatch, workers, static_cast<int32_t>(queue_depth())};
  const annotate::Range range(kWait, waits);

  Batch batch;
  if (impl.pool) {
    batch = impl.pool->receive(batch_number);
  } else {
    const std::shared_ptr<int64_t> tokens = impl.buffers->take();
    batch.sample_hash = impl.maker->make(batch_number, tokens.get());
    batch.tokens = tokens.get();
    batch.slot = tokens;
  }
  batch.step = step;
  batch.microbatch = microbatch;
  batch.rows = impl.rows;
  batch.columns = impl.columns;
  ++impl.next_batch;
  annotate::mark(kResult, annotate::BatchResult{batch.sample_hash, batch.bytes(), batch.worker, 0});
  return batch;
}

int64_t Loader::queue_depth() const {
  return impl_->pool ? impl_->pool->ready() : 0;
}

std::span<std::byte> Loader::ring_memory() const {
  return impl_->pool ? impl_->pool->ring_memory() : std::span<std::byte>();
}

}  // namespace taut::data
