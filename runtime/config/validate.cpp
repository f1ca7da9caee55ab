// Whether a config can be run: every rule in the order in which they build on each other.
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/config/load.h"
#include "runtime/config/not_yet.h"
#include "runtime/config/rules.h"
#include "taut.h"

namespace taut::config {
namespace {

void check_not_supported_yet(const Config& c) {
  for (const NotYet& feature : not_yet()) {
    if (!feature.used(c)) continue;
    throw Error(std::string(feature.key) + " " + feature.value(c) + " is not supported yet", feature.instead);
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
  check_loss_scale(config);
  check_mesh(config);
  check_model(config);
  check_experts(config);
  check_expert_placement(config);
  check_tensor_parallel(config);
  check_context_parallel(config);
  check_sequence_parallel(config);
  check_expert_parallel(config);
  check_stages(config);
  check_virtual_stages(config);
  check_zero_bubble(config);
  check_batch(config);
  check_interleaved_microbatches(config);
  check_learning_rate(config);
  check_data(config);
  check_run(config);
  check_not_supported_yet(config);
}

void check_files(const Config& config) {
  if (!config.data.mock) check_data_path(config.data.path);
  check_checkpoint_folder(config);
}

}  // namespace taut::config
