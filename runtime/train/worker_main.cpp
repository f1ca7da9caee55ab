// taut-worker: one training rank. `taut train`, torchrun and srun start it with torchrun's environment variables.
#include <ATen/Parallel.h>
#include <malloc.h>
#include <torch/types.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/process_group.h"
#include "runtime/config/load.h"
#include "runtime/launch/placement.h"
#include "runtime/train/allocated_memory.h"
#include "runtime/train/dry_run.h"
#include "runtime/train/trainer.h"
#include "taut.h"
#include "tracer/collect/torch_observer.h"

namespace {

int fail(const std::string& what, const std::string& hint, int exit_code) {
  std::string text = "error: " + what + "\n";
  if (!hint.empty()) text += "hint: " + hint + "\n";
  std::fputs(text.c_str(), stderr);
  return exit_code;
}

/// Activations come and go every microbatch: keep their memory instead of returning it to the kernel, which would hand
/// it back page by page, cleared.
void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

/// Ends the process at once: with other ranks gone, orderly destruction of process groups could wait for their timeout.
[[noreturn]] void leave(int exit_code) {
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(exit_code);
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  taut::train::count_cpu_memory();
  CLI::App app{"One training rank of Taut; `taut train` starts these."};
  std::string config_file, format = "text";
  std::vector<std::string> overrides;
  std::optional<int64_t> steps;
  app.add_option("CONFIG", config_file, "training config (JSON)")->required();
  app.add_option("--set", overrides, "key.path=value in place of the file's")->take_all();
  app.add_option("--steps", steps, "train this many steps instead of train_steps; 0 = only save the initial weights");
  app.add_option("--format", format, "of the per-step lines")->check(CLI::IsMember({"text", "json"}));
  bool dry_run = false;
  app.add_flag("--dry-run", dry_run,
               "build the parts of ranks of every kind without memory and check them; no training");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& failure) {
    return app.exit(failure) == 0 ? 0 : 2;
  }

  try {
    if (dry_run) {
      const taut::train::DryRun run = taut::train::dry_run(taut::config::load_file(config_file, overrides));
      std::printf("%s\n", (format == "json" ? taut::train::dry_run_json(run) : taut::train::dry_run_text(run)).c_str());
      leave(0);
    }
    const taut::comm::LaunchEnvironment environment = taut::comm::read_launch_environment();
    const bool no_training = steps == 0;
    if (no_training) steps.reset();
    taut::config::Config config = taut::config::load_file(config_file, overrides, environment.world_size, steps);
    if (no_training) config.train_steps = 0;
    const int threads = taut::launch::bind_rank(environment.local_rank, environment.local_world_size);
    // An explicit OMP_NUM_THREADS is the user's word (LibTorch reads it); otherwise the ranks of this machine share it.
    if (const char* asked = std::getenv("OMP_NUM_THREADS"); !asked || !*asked) at::set_num_threads(threads);
    at::set_num_interop_threads(1);
    if (const char* ops = std::getenv("TAUT_TORCH_OPS"); ops && std::string(ops) == "1") {
      taut::collect::install_torch_observer();
    }
    // Not destroyed when it fails: its process groups would wait for the other ranks before the error is printed.
    auto* const trainer = new taut::train::Trainer(config, environment, format == "json");
    trainer->run();
    delete trainer;
  } catch (const taut::Error& failure) {
    leave(fail(failure.what(), failure.hint(), failure.exit_code()));
  } catch (const std::exception& failure) {
    // LibTorch's own errors: the first line says what happened, the rest is a C++ stack.
    const std::string what = failure.what();
    leave(fail(what.substr(0, what.find('\n')), "", 1));
  }
  leave(0);
}
