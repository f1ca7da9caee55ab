// What keys mean together. Each rule is one function that throws one clear error; validate() lists them.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/config/load.h"
#include "runtime/config/not_yet.h"
#include "taut.h"

namespace taut::config {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

// "6 = 2 × 3" style sides for arithmetic errors.
std::string product(std::initializer_list<int64_t> factors) {
  std::string out;
  for (const int64_t factor : factors) out += (out.empty() ? "" : " × ") + text(factor);
  return out;
}

// The divisor of `value` nearest to `wanted`: what to set instead of a size that does not divide.
int64_t nearest_divisor(int64_t value, int64_t wanted) {
  for (int64_t candidate = std::min(value, wanted); candidate > 1; --candidate) {
    if (value % candidate == 0) return candidate;
  }
  return 1;
}

void require_divides(const char* divisor_key, int64_t divisor, const char* key, int64_t value) {
  if (value % divisor == 0) return;
  const std::string multiple = text((value / divisor + 1) * divisor);
  throw Error(
      std::string(divisor_key) + " is " + text(divisor) + ", which does not divide " + key + " = " + text(value),
      std::string("set ") + divisor_key + " to a divisor such as " + text(nearest_divisor(value, divisor)) + ", or " +
          key + " to a multiple such as " + multiple);
}

void check_mesh(Config& c) {
  const int64_t model_parallel = c.model_parallel_size();
  if (c.world_size == 0) c.world_size = model_parallel;
  if (c.world_size % model_parallel == 0) return;
  throw Error(
      "world_size is " + text(c.world_size) +
          ", which is not a multiple of tensor × pipeline × context parallel size = " +
          product(
              {c.parallel.tensor_parallel_size, c.parallel.pipeline_parallel_size, c.parallel.context_parallel_size}) +
          " = " + text(model_parallel),
      "start " + text((c.world_size / model_parallel + 1) * model_parallel) +
          " ranks (--nproc or world_size), or lower parallel.tensor_parallel_size or parallel.pipeline_parallel_size");
}

void check_not_supported_yet(const Config& c) {
  for (const NotYet& feature : not_yet()) {
    if (!feature.used(c)) continue;
    throw Error(std::string(feature.key) + " " + feature.value(c) + " is not supported yet", feature.instead);
  }
}

void check_model(Config& c) {
  Model& m = c.model;
  if (m.num_query_groups == 0) m.num_query_groups = m.num_attention_heads;
  if (m.ffn_hidden_size == 0) m.ffn_hidden_size = 4 * m.hidden_size;
  require_divides("model.num_attention_heads", m.num_attention_heads, "model.hidden_size", m.hidden_size);
  require_divides("model.num_query_groups", m.num_query_groups, "model.num_attention_heads", m.num_attention_heads);
  const int64_t head_size = m.hidden_size / m.num_attention_heads;
  if (m.position_embedding == PositionEmbedding::rope && head_size % 2 != 0) {
    throw Error("model.hidden_size / model.num_attention_heads is " + text(head_size) +
                    ", but model.position_embedding \"rope\" rotates pairs and needs an even head size",
                "set model.hidden_size to a multiple of " + text(2 * m.num_attention_heads) +
                    ", or model.position_embedding to \"learned\"");
  }
}

void check_tensor_parallel(const Config& c) {
  const int64_t tp = c.parallel.tensor_parallel_size;
  const auto require_split = [tp](const char* key, int64_t value) {
    require_divides("parallel.tensor_parallel_size", tp, key, value);
  };
  require_split("model.num_attention_heads", c.model.num_attention_heads);
  require_split("model.num_query_groups", c.model.num_query_groups);
  require_split("model.ffn_hidden_size", c.model.ffn_hidden_size);
  require_split("model.vocab_size", c.model.vocab_size);
}

void check_pipeline(const Config& c) {
  const int64_t stages = c.parallel.pipeline_parallel_size, layers = c.model.num_layers;
  if (stages > layers) {
    throw Error(
        "parallel.pipeline_parallel_size is " + text(stages) + ", more stages than model.num_layers = " + text(layers),
        "set parallel.pipeline_parallel_size to " + text(layers) + " or less");
  }
  if (!c.parallel.pipeline_layers) return;
  const auto& split = *c.parallel.pipeline_layers;
  if (static_cast<int64_t>(split.size()) != stages) {
    throw Error("parallel.pipeline_layers has " + text(static_cast<int64_t>(split.size())) +
                    " entries for parallel.pipeline_parallel_size = " + text(stages),
                "give one number of layers per stage, or null for an even split");
  }
  double sum = 0;
  for (const int64_t entry : split) sum += static_cast<double>(entry);
  if (sum != static_cast<double>(layers)) {
    std::string list;
    for (const int64_t entry : split) list += (list.empty() ? "" : " + ") + text(entry);
    throw Error("parallel.pipeline_layers gives " + list + " layers, but model.num_layers is " + text(layers),
                "make the entries sum to " + text(layers) + ", or use null for an even split");
  }
}

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

void check_schedule(Config& c) {
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

void check_data_path(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (!fs::exists(path, ec)) {
    if (fs::exists(path + ".bin", ec) && fs::exists(path + ".idx", ec)) return;  // NAME of token files
    throw Error(
        "data.path " + path + " does not exist",
        "set data.path to a text file, a folder of them, or NAME of token files NAME.bin and NAME.idx; relative "
        "paths are relative to the config's folder");
  }
  const bool folder = fs::is_directory(path, ec);
  if (!folder && !fs::is_regular_file(path, ec))
    throw Error("data.path " + path + " is neither a file nor a folder",
                "set data.path to a text file or a folder of them");
  if (access(path.c_str(), folder ? R_OK | X_OK : R_OK) != 0) {
    throw Error("data.path " + path + " cannot be read: " + std::strerror(errno), "check its permissions");
  }
}

void check_checkpoint_folder(const Config& config) {
  namespace fs = std::filesystem;
  std::error_code ec;
  if (!config.checkpoint.dir.empty() && fs::exists(config.checkpoint.dir, ec) &&
      !fs::is_directory(config.checkpoint.dir, ec)) {
    throw Error("checkpoint.dir " + config.checkpoint.dir + " is not a folder", "set checkpoint.dir to a folder");
  }
}

}  // namespace

void validate(Config& config) {
  check_precision(config);
  check_not_supported_yet(config);
  check_mesh(config);
  check_model(config);
  check_tensor_parallel(config);
  check_pipeline(config);
  check_batch(config);
  check_schedule(config);
  check_data(config);
  check_run(config);
}

void check_files(const Config& config) {
  if (!config.data.mock) check_data_path(config.data.path);
  check_checkpoint_folder(config);
}

}  // namespace taut::config
