#include <cmath>
#include <sstream>

#include "runtime/config/load.h"
#include "runtime/config/rules.h"
#include "taut.h"

namespace taut::config {

// DeepSpeed's inference of missing batch numbers, in its order; integer division first, then the check of the product.
void check_batch(Config& c) {
  int64_t &train = c.train_batch_size, &micro = c.train_micro_batch_size_per_gpu,
          &steps = c.gradient_accumulation_steps;
  const int64_t ranks = c.data_parallel_size();
  if (train == 0 && micro == 0) {
    throw Error("neither train_batch_size nor train_micro_batch_size_per_gpu is set",
                "set one of them, for example train_batch_size");
  }
  const int64_t given_train = train, given_micro = micro, given_steps = steps;
  if (train > 0 && micro > 0 && steps == 0) {
    steps = train / micro / ranks;
  } else if (train > 0 && steps > 0 && micro == 0) {
    micro = train / ranks / steps;
  } else if (train == 0) {
    if (steps == 0) steps = 1;
    train = micro * steps * ranks;
  } else if (micro == 0) {
    steps = 1;
    micro = train / ranks;
  }
  if (micro > 0 && steps > 0 && train == micro * steps * ranks) return;
  const auto factor = [](int64_t given) { return given > 0 ? text(given) : std::string("?"); };
  const int64_t unit = std::max<int64_t>(given_micro, 1) * std::max<int64_t>(given_steps, 1) * ranks;
  const int64_t next = given_micro > 0 && given_steps > 0 ? unit : (given_train + unit - 1) / unit * unit;
  throw Error(
      "train_batch_size is " + text(given_train) +
          ", which is not train_micro_batch_size_per_gpu × gradient_accumulation_steps × data-parallel size = " +
          factor(given_micro) + " × " + factor(given_steps) + " × " + text(ranks),
      "set train_batch_size to " + text(next) + ", or leave one of the three out");
}

void check_precision(const Config& c) {
  if (c.bf16.enabled && c.fp16.enabled) {
    throw Error("bf16.enabled and fp16.enabled are both true", "set fp16.enabled to false");
  }
}

void check_loss_scale(const Config& c) {
  const Fp16& fp16 = c.fp16;
  if (!fp16.enabled || fp16.loss_scale > 0) return;
  const double initial = std::pow(2.0, static_cast<double>(fp16.initial_scale_power));
  if (fp16.min_loss_scale <= initial) return;
  const auto power = static_cast<int64_t>(std::ceil(std::log2(fp16.min_loss_scale)));
  std::ostringstream least;
  least << fp16.min_loss_scale;
  throw Error("fp16.min_loss_scale is " + least.str() + ", above the scale that training starts with, 2^" +
                  text(fp16.initial_scale_power) + " (fp16.initial_scale_power)",
              power <= 126 ? "set fp16.initial_scale_power to " + text(power) + ", or fp16.min_loss_scale to 1"
                           : "set fp16.min_loss_scale to 1");
}

void check_learning_rate(Config& c) {
  SchedulerParams& params = c.scheduler.params;
  if (c.scheduler.type == SchedulerType::constant) return;
  if (params.total_num_steps == 0) params.total_num_steps = c.train_steps;
  if (c.scheduler.type == SchedulerType::WarmupCosineLR && params.warmup_num_steps > params.total_num_steps) {
    throw Error("scheduler.params.warmup_num_steps is " + text(params.warmup_num_steps) +
                    ", more than scheduler.params.total_num_steps = " + text(params.total_num_steps),
                "lower scheduler.params.warmup_num_steps, or raise train_steps");
  }
}

void check_data(const Config& c) {
  if (!c.data.mock && c.data.path.empty()) {
    throw Error("data.path is not set", "set data.path to a text file or a folder of them, or data.mock to true");
  }
  const std::string& tokenizer = c.data.tokenizer;
  const bool sentencepiece = !tokenizer_file(c).empty();
  if (tokenizer != "byte" && !sentencepiece) {
    throw Error("data.tokenizer is \"" + tokenizer + "\"", "give \"byte\" or \"sentencepiece:FILE\"");
  }
  constexpr int64_t kByteVocabulary = 257;  // 256 bytes and the end-of-document token
  if (tokenizer == "byte" && !c.data.mock && c.model.vocab_size < kByteVocabulary) {
    throw Error("model.vocab_size is " + text(c.model.vocab_size) + ", but data.tokenizer \"byte\" needs 257 ids",
                "set model.vocab_size to 257 or more, or use data.tokenizer \"sentencepiece:FILE\"");
  }
}

void check_run(const Config& c) {
  if (c.trace.steps && c.trace.steps->first >= c.trace.steps->second) {
    throw Error(
        "trace.steps is [" + text(c.trace.steps->first) + ", " + text(c.trace.steps->second) + "], which holds no step",
        "give [first, last) with first < last; steps count from 0");
  }
  if (c.checkpoint.dir.empty() && (c.checkpoint.interval_steps > 0 || c.checkpoint.interval_minutes > 0)) {
    throw Error("checkpoint." + std::string(c.checkpoint.interval_steps > 0 ? "interval_steps" : "interval_minutes") +
                    " is set, but checkpoint.dir is not",
                "set checkpoint.dir to a folder, or the interval to 0");
  }
  if (c.elastic.min_ranks > c.world_size) {
    throw Error("elastic.min_ranks is " + text(c.elastic.min_ranks) + ", more than world_size = " + text(c.world_size),
                "set elastic.min_ranks to " + text(c.world_size) + " or less");
  }
}

}  // namespace taut::config
