#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/comm/collectives.h"
#include "runtime/config/load.h"
#include "runtime/config/model_math.h"
#include "taut.h"

namespace taut::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;

std::string step_name(int64_t steps_done) {
  return "step-" + std::to_string(steps_done);
}

std::string shard_name(const char* what, const comm::Coordinates& at) {
  return std::string(what) + "-tp" + std::to_string(at.tp) + "-pp" + std::to_string(at.pp) + ".safetensors";
}

/// Steps done of every whole checkpoint in `dir`, ascending.
std::vector<int64_t> list(const fs::path& dir) {
  std::vector<int64_t> found;
  std::error_code ignored;  // a folder that is not there yet holds no checkpoints
  for (const auto& entry : fs::directory_iterator(dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("step-", 0) != 0 || !fs::exists(entry.path() / "meta.json", ignored)) continue;
    int64_t step = 0;
    const auto [stop, failure] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
    if (failure == std::errc{} && stop == name.data() + name.size() && step >= 0) found.push_back(step);
  }
  std::sort(found.begin(), found.end());
  return found;
}

nlohmann::json meta_of(const config::Config& config, int64_t steps_done, int64_t optimizer_steps) {
  return {{"format", kFormat},
          {"taut", kVersion},
          {"steps", steps_done},
          {"optimizer_steps", optimizer_steps},
          {"layout",
           {{"tensor_parallel_size", config.parallel.tensor_parallel_size},
            {"pipeline_parallel_size", config.parallel.pipeline_parallel_size},
            {"layers_per_stage", config::layers_per_stage(config)}}},
          {"data",
           {{"seed", config.data.seed},
            {"samples_read", steps_done * config.train_batch_size},
            {"train_batch_size", config.train_batch_size}}},
          {"model", nlohmann::json::parse(config::to_json(config).at("model").dump())}};
}

TensorView view_of(const std::string& name, const at::Tensor& tensor) {
  return {name, "F32", tensor.sizes().vec(), static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

void write_meta(const fs::path& path, const nlohmann::json& meta) {
  std::ofstream file(path);
  file << meta.dump(2) << "\n";
  file.close();
  if (!file) throw Error("cannot write " + path.string(), "is the disk full?");
}

nlohmann::json read_meta(const fs::path& path) {
  std::ifstream file(path);
  if (!file) throw Error("cannot read " + path.string(), "the checkpoint is incomplete; take another one");
  auto meta = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!meta.is_object() || meta.value("/format"_json_pointer, nlohmann::json()) != kFormat) {
    throw Error(path.string() + " does not describe a checkpoint of format " + std::to_string(kFormat),
                "take another checkpoint, or remove the folder to start anew");
  }
  return meta;
}

void refuse_if_different(const fs::path& folder, const nlohmann::json& meta, const nlohmann::json& expected) {
  const auto compare = [&](const char* section, const char* hint) {
    const nlohmann::json& now = expected.at(section);
    const nlohmann::json then = meta.contains(section) ? meta.at(section) : nlohmann::json();
    for (const auto& [key, value] : now.items()) {
      if (std::string(key) == "samples_read") continue;
      const nlohmann::json was = then.is_object() && then.contains(key) ? then.at(key) : nlohmann::json();
      if (was == value) continue;
      throw Error("checkpoint " + folder.string() + " was made with " + section + "." + key + " " + was.dump() +
                      ", this run has " + value.dump(),
                  hint);
    }
  };
  compare("model", "train the same model, or choose another checkpoint.dir");
  compare("layout", "resume with the layout in which it was saved, or choose another checkpoint.dir");
  compare("data", "the position in the data cannot be restored: keep these values, or choose another checkpoint.dir");
}

}  // namespace

std::optional<int64_t> newest(const std::filesystem::path& dir) {
  const auto steps = list(dir);
  return steps.empty() ? std::nullopt : std::optional<int64_t>(steps.back());
}

int64_t save(const config::Config& config, int64_t steps_done, const State& state, comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const fs::path dir = config.checkpoint.dir, finished = dir / step_name(steps_done);
  const fs::path temporary = dir / std::string(".").append(step_name(steps_done)).append(".tmp");
  const comm::Coordinates& at = communicator.at();
  int64_t bytes = 0;
  std::error_code failure;
  if (communicator.rank() == 0) {
    fs::remove_all(temporary, failure);  // of a run that died here
    fs::create_directories(temporary, failure);
    if (failure) {
      throw Error("cannot create " + temporary.string() + ": " + failure.message(), "checkpoint.dir must be writable");
    }
  }
  comm::barrier(communicator.world());
  if (at.dp == 0) {
    // On CUDA these are copies; on the CPU they are the live buffers.
    const at::Tensor values = state.flat.values.cpu(), moment1 = state.optimizer.moment1.cpu(),
                     moment2 = state.optimizer.moment2.cpu();
    std::vector<TensorView> weights, moments;
    for (const parallel::Span& span : state.flat.spans) {
      const parallel::Parameter& parameter = state.flat.parameters[span.parameter];
      const auto part = [&](const at::Tensor& flat) {
        return flat.narrow(0, span.offset, span.count).view(parameter.value.sizes());
      };
      weights.push_back(view_of(parameter.name, part(values)));
      moments.push_back(view_of(parameter.name + ".moment1", part(moment1)));
      moments.push_back(view_of(parameter.name + ".moment2", part(moment2)));
    }
    write_safetensors(temporary / shard_name("weights", at), weights, {{"format", "pt"}});
    write_safetensors(temporary / shard_name("optimizer", at), moments);
    for (const auto& view : weights) bytes += static_cast<int64_t>(view.bytes);
    for (const auto& view : moments) bytes += static_cast<int64_t>(view.bytes);
  }
  comm::barrier(communicator.world());
  if (communicator.rank() == 0) {
    write_meta(temporary / "meta.json", meta_of(config, steps_done, state.optimizer.steps));
    fs::remove_all(finished, failure);
    fs::rename(temporary, finished, failure);
    if (failure) {
      throw Error("cannot rename " + temporary.string() + " to " + finished.string() + ": " + failure.message());
    }
    auto steps = list(dir);
    const auto keep = static_cast<size_t>(std::max<int64_t>(0, config.checkpoint.keep));
    for (size_t i = 0; keep > 0 && i + keep < steps.size(); ++i) fs::remove_all(dir / step_name(steps[i]), failure);
  }
  comm::barrier(communicator.world());
  return bytes;
}

void load(const config::Config& config, int64_t steps_done, const State& state,
          const comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const fs::path folder = fs::path(config.checkpoint.dir) / step_name(steps_done);
  const nlohmann::json meta = read_meta(folder / "meta.json");
  refuse_if_different(folder, meta, meta_of(config, steps_done, 0));
  const auto optimizer_steps = meta.find("optimizer_steps");
  if (optimizer_steps == meta.end() || !optimizer_steps->is_number_unsigned()) {
    throw Error((folder / "meta.json").string() + " does not say how often the optimizer has stepped");
  }
  const SafetensorsFile weights(folder / shard_name("weights", communicator.at()));
  const SafetensorsFile moments(folder / shard_name("optimizer", communicator.at()));
  for (const parallel::Span& span : state.flat.spans) {
    const parallel::Parameter& parameter = state.flat.parameters[span.parameter];
    const auto shape = parameter.value.sizes().vec();
    const auto fill = [&](at::Tensor& flat, const TensorView& view) {
      // from_blob wants a mutable pointer; the tensor is only read.
      void* data = const_cast<std::byte*>(view.data);
      flat.narrow(0, span.offset, span.count).copy_(at::from_blob(data, {span.count}, at::kFloat));
    };
    fill(state.flat.values, weights.expect(parameter.name, "F32", shape));
    fill(state.optimizer.moment1, moments.expect(parameter.name + ".moment1", "F32", shape));
    fill(state.optimizer.moment2, moments.expect(parameter.name + ".moment2", "F32", shape));
  }
  state.optimizer.steps = optimizer_steps->get<int64_t>();
}

}  // namespace taut::checkpoint
