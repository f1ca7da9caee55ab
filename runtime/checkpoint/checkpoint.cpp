#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <memory>
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

std::string shard_name(const char* what, const comm::Communicator& communicator, int ep) {
  const comm::Coordinates& at = communicator.at();
  std::string name = std::string(what) + "-tp" + std::to_string(at.tp) + "-pp" + std::to_string(at.pp);
  if (communicator.size().ep > 1) name += "-ep" + std::to_string(ep);
  return name + ".safetensors";
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

nlohmann::json meta_of(const config::Config& config, int64_t steps_done, int64_t optimizer_steps,
                       const optim::LossScaler::State& scaler) {
  return {{"format", kFormat},
          {"taut", kVersion},
          {"steps", steps_done},
          {"optimizer_steps", optimizer_steps},
          {"loss_scaler",
           {{"scale", scaler.scale},
            {"steps_without_overflow", scaler.steps_without_overflow},
            {"overflows_left", scaler.overflows_left}}},
          {"layout",
           {{"tensor_parallel_size", config.parallel.tensor_parallel_size},
            {"pipeline_parallel_size", config.parallel.pipeline_parallel_size},
            {"expert_parallel_size", config.parallel.expert_parallel_size},
            {"virtual_pipeline_stages", config.parallel.virtual_pipeline_stages},
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

/// The files of one shard.
struct ShardFiles {
  ShardFiles(const fs::path& folder, const comm::Communicator& communicator, int ep)
      : weights(folder / shard_name("weights", communicator, ep)),
        moments(folder / shard_name("optimizer", communicator, ep)) {}
  SafetensorsFile weights, moments;
};

/// What this rank writes: views, and the buffers that they look into.
struct Parts {
  std::vector<TensorView> weights, moments;
  std::vector<at::Tensor> buffers;
};

/// Gathers bucket `index` where ZeRO has divided it; adds its parameters to `parts` on the rank that writes them.
/// Collective over the bucket's group.
void collect(const State& state, size_t index, Parts& parts) {
  const parallel::Bucket& bucket = state.flat.buckets[index];
  const optim::AdamW::Moments& moments = state.optimizer.moments[index];
  const auto whole = [&](const at::Tensor& own) {
    if (bucket.slices == 1) return own.cpu();
    const at::Tensor source = own.to(bucket.own_values.device());
    const at::Tensor all = at::empty({bucket.count}, source.options());
    comm::all_gather_into_tensor(*bucket.group, all, source, {.reason = comm::Reason::checkpoint});
    return all.cpu();
  };
  const at::Tensor values = whole(bucket.own_values), first = whole(moments.first), second = whole(moments.second);
  if (bucket.group && bucket.group->rank() != 0) return;
  parts.buffers.insert(parts.buffers.end(), {values, first, second});
  for (const parallel::Span& span : bucket.spans) {
    const parallel::Parameter& parameter = state.flat.parameters[span.parameter];
    const auto part = [&](const at::Tensor& flat) {
      return flat.narrow(0, span.offset, span.count).view(parameter.value.sizes());
    };
    parts.weights.push_back(view_of(parameter.name, part(values)));
    parts.moments.push_back(view_of(parameter.name + ".moment1", part(first)));
    parts.moments.push_back(view_of(parameter.name + ".moment2", part(second)));
  }
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
  Parts parts;
  for (size_t i = 0; i < state.flat.buckets.size(); ++i) collect(state, i, parts);
  if (!parts.weights.empty()) {
    write_safetensors(temporary / shard_name("weights", communicator, at.ep), parts.weights, {{"format", "pt"}});
    write_safetensors(temporary / shard_name("optimizer", communicator, at.ep), parts.moments);
    for (const auto& view : parts.weights) bytes += static_cast<int64_t>(view.bytes);
    for (const auto& view : parts.moments) bytes += static_cast<int64_t>(view.bytes);
  }
  comm::barrier(communicator.world());
  if (communicator.rank() == 0) {
    write_meta(temporary / "meta.json", meta_of(config, steps_done, state.optimizer.steps, state.scaler.state));
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

void load(const config::Config& config, int64_t steps_done, const State& state, comm::Communicator& communicator) {
  const at::NoGradGuard no_grad;
  const fs::path folder = fs::path(config.checkpoint.dir) / step_name(steps_done);
  const nlohmann::json meta = read_meta(folder / "meta.json");
  refuse_if_different(folder, meta, meta_of(config, steps_done, 0, state.scaler.state));
  const auto optimizer_steps = meta.find("optimizer_steps");
  if (optimizer_steps == meta.end() || !optimizer_steps->is_number_unsigned()) {
    throw Error((folder / "meta.json").string() + " does not say how often the optimizer has stepped");
  }
  const int own_ep = communicator.at().ep;
  std::map<int, std::unique_ptr<ShardFiles>> opened;  // by ep
  const auto files_of = [&](int ep) -> const ShardFiles& {
    auto& files = opened[ep];
    if (!files) files = std::make_unique<ShardFiles>(folder, communicator, ep);
    return *files;
  };
  for (size_t i = 0; i < state.flat.buckets.size(); ++i) {
    parallel::Bucket& bucket = state.flat.buckets[i];
    const bool expert = state.flat.parameters[bucket.spans.front().parameter].expert;
    const ShardFiles& files = files_of(expert ? own_ep : 0);
    const auto read = [&](const SafetensorsFile& file, const char* suffix) {
      const at::Tensor whole = at::zeros({bucket.count}, at::kFloat);
      for (const parallel::Span& span : bucket.spans) {
        const parallel::Parameter& parameter = state.flat.parameters[span.parameter];
        const TensorView& view = file.expect(parameter.name + suffix, "F32", parameter.value.sizes().vec());
        // from_blob wants a mutable pointer; the tensor is only read.
        void* data = const_cast<std::byte*>(view.data);
        whole.narrow(0, span.offset, span.count).copy_(at::from_blob(data, {span.count}, at::kFloat));
      }
      return whole;
    };
    const auto own = [&](const at::Tensor& whole) { return whole.narrow(0, bucket.own_offset(), bucket.own_count()); };
    const at::Tensor values = read(files.weights, "");
    bucket.own_values.copy_(own(values));
    if (!bucket.values_sharded) bucket.values.copy_(values);
    state.optimizer.moments[i].first.copy_(own(read(files.moments, ".moment1")));
    state.optimizer.moments[i].second.copy_(own(read(files.moments, ".moment2")));
  }
  state.optimizer.steps = optimizer_steps->get<int64_t>();
  state.optimizer.reload_weights();
  const nlohmann::json scaler = meta.value("loss_scaler", nlohmann::json::object());
  state.scaler.state.scale = scaler.value("scale", state.scaler.state.scale);
  state.scaler.state.steps_without_overflow = scaler.value("steps_without_overflow", int64_t{0});
  state.scaler.state.overflows_left = scaler.value("overflows_left", state.scaler.state.overflows_left);
}

}  // namespace taut::checkpoint
