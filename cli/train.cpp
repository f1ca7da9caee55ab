// `taut train`: checks the config, starts the ranks, traces them, says how it went.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>

#include "cli/command.h"
#include "cli/dry_run.h"
#include "runtime/config/layout.h"
#include "runtime/config/load.h"
#include "runtime/data/available_memory.h"
#include "runtime/data/check.h"
#include "runtime/data/prepare.h"
#include "runtime/data/tokenizer.h"
#include "runtime/launch/launch.h"
#include "taut.h"
#include "tracer/collect/collector.h"

namespace taut::cli {
namespace {

namespace fs = std::filesystem;

struct TrainOptions {
  std::string config;
  std::optional<int64_t> ranks, steps;
  std::string trace;
  std::vector<std::string> overrides;
  bool dry_run = false, print_config = false, prepare = false;
  Format format = Format::text;
};

fs::path worker_path() {
  return fs::path(launch::program_folder()) / "taut-worker";
}

bool has_worker() {
  return access(worker_path().c_str(), X_OK) == 0;
}

std::string worker_program() {
  const fs::path worker = worker_path();
  if (!has_worker()) {
    throw Error("taut-worker is missing beside taut (" + worker.string() + ")",
                "build with the training runtime: ./quickstart, or cmake without -DTAUT_RUNTIME=OFF");
  }
  return worker.string();
}

/// What would make every rank fail alike is said once, before any starts.
void check_memory(const config::Config& config) {
  constexpr int64_t kRankMb = 250;  // LibTorch's own, before any parameter
  const auto available = static_cast<int64_t>(std::min<uint64_t>(data::available_memory() >> 20, 1 << 30));
  if (config.world_size > available / kRankMb) {
    throw Error(std::to_string(config.world_size) + " ranks do not fit into this machine: LibTorch alone takes about " +
                    std::to_string(kRankMb) + " MB a rank, and " + std::to_string(available) + " MB are available",
                "start fewer ranks with --nproc; --dry-run checks a layout of any size without starting it");
  }
}

/// Trains the tokenizer if it is missing; says whatever is wrong with the data before any rank starts.
void check_data(const config::Config& config, const Shell& shell) {
  if (data::ensure_tokenizer(config) && !shell.quiet) {
    std::cerr << "note: trained the tokenizer " << config::tokenizer_file(config) << std::endl;
  }
  for (const std::string& remark : data::check_data(config)) {
    if (!shell.quiet) std::cerr << "note: " << remark << std::endl;
  }
}

std::vector<std::string> worker_command(const TrainOptions& options) {
  std::vector<std::string> command{worker_program(), options.config};
  for (const std::string& assignment : options.overrides) command.insert(command.end(), {"--set", assignment});
  if (options.steps) command.insert(command.end(), {"--steps", std::to_string(*options.steps)});
  if (options.format == Format::json) command.insert(command.end(), {"--format", "json"});
  return command;
}

/// A path that cannot be written fails before anything starts.
void check_trace_path(const std::string& path) {
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : fs::path(".");
  std::error_code ec;
  if (!fs::is_directory(folder, ec))
    throw Error("the folder of --trace " + path + " does not exist", "make it: mkdir -p " + folder.string());
  if (access(folder.c_str(), W_OK | X_OK) != 0)
    throw Error("cannot write into " + folder.string(), "choose another path for --trace");
  if (fs::is_directory(path, ec))
    throw Error("--trace " + path + " is a folder", "give the path of a file, such as " + path + "/run.db");
}

std::unique_ptr<collect::Collector> make_collector(const std::string& path, const config::Config& config) {
  collect::Collector::Options options;
  options.path = path;
  options.meta = {{"config", config::to_json(config).dump()},
                  {"traced.torch_ops", config.trace.torch_ops ? "true" : "false"}};
  options.steps = config.trace.steps;
  options.sample_hz = config.trace.memory ? config.trace.sample_hz : 0;
  return std::make_unique<collect::Collector>(options);
}

// The rank's own `error:` and `hint:` lines, if it wrote them before it ended, say more than its exit code.
std::string last_line_after(const launch::Failure& failure, const std::string& prefix) {
  for (auto line = failure.last_lines.rbegin(); line != failure.last_lines.rend(); ++line) {
    if (line->starts_with(prefix)) return line->substr(prefix.size());
  }
  return "";
}

std::string failure_text(const launch::Failure& failure) {
  const std::string reason = last_line_after(failure, "error: ");
  return launch::describe(failure) + (reason.empty() ? "" : ": " + reason);
}

void report_trace(const TrainOptions& options, const collect::Collector::Stats& stats, std::ostream& out) {
  if (options.format == Format::json) {
    config::Json json{
        {"trace", options.trace}, {"events", stats.events}, {"dropped_events", stats.dropped}, {"bytes", stats.bytes}};
    out << json.dump() << std::endl;
    return;
  }
  out << "trace: " << options.trace << " (" << stats.events << " events from " << stats.processes << " processes, "
      << (stats.bytes + 500'000) / 1'000'000 << " MB"
      << (stats.dropped > 0 ? ", " + std::to_string(stats.dropped) + " lost" : "") << ")\nnext:  taut analyze "
      << options.trace << std::endl;
}

launch::Plan make_plan(const TrainOptions& options, const config::Config& config) {
  launch::Plan plan;
  plan.command = worker_command(options);
  plan.ranks = static_cast<int>(config.world_size);
  plan.max_restarts = config.checkpoint.dir.empty() ? 0 : static_cast<int>(config.elastic.max_restarts);
  plan.on_restart = [most = plan.max_restarts](const launch::Failure& failure, int restart) {
    std::cerr << "note: " << failure_text(failure) << "; starting again from the newest checkpoint (" << restart
              << " of " << most << ")" << std::endl;
  };
  return plan;
}

// Ends the command by how the ranks ended.
int conclude(const launch::Result& result, const TrainOptions& options, const config::Config& config) {
  const std::string trace_hint = options.trace.empty() ? "" : "the trace up to then: taut analyze " + options.trace;
  if (result.interrupted) {
    throw Error(
        std::string("interrupted by ") + (result.signal == SIGINT ? "SIGINT" : "SIGTERM") + "; all ranks have ended",
        trace_hint);
  }
  if (!result.failure) return kOk;
  std::string hint = last_line_after(*result.failure, "hint: ");
  if (hint.empty()) hint = trace_hint;
  if (hint.empty() && config.checkpoint.dir.empty())
    hint = "with checkpoint.dir and elastic.max_restarts a run goes on after a rank dies";
  if (result.failure->signal == SIGKILL && trace_hint.empty())
    hint = "if nobody killed it, the machine may have run out of memory: see dmesg";
  throw Error(failure_text(*result.failure) + "; the other ranks were stopped", hint);
}

/// `--prepare`: writes the token files and says how to train with them.
int run_prepare(const TrainOptions& options, const config::Config& config, const Shell& shell) {
  if (data::ensure_tokenizer(config) && !shell.quiet) {
    std::cerr << "note: trained the tokenizer " << config::tokenizer_file(config) << std::endl;
  }
  const bool bar = isatty(STDERR_FILENO) && !shell.quiet;
  uint64_t shown = 0;
  const data::Prepared prepared =
      data::prepare(config, fs::absolute(options.config).parent_path(), [&](uint64_t done, uint64_t total) {
        const uint64_t percent = done * 100 / total;
        if (bar && percent != shown) std::cerr << "\rtokenizing " << (shown = percent) << " %" << std::flush;
      });
  if (bar && shown > 0) std::cerr << "\r\033[K";
  const std::string path = prepared.prefix.string();
  if (options.format == Format::json) {
    config::Json json{{"path", path},
                      {"tokens", prepared.tokens},
                      {"documents", prepared.documents},
                      {"text_bytes", prepared.text_bytes},
                      {"file_bytes", prepared.file_bytes}};
    std::cout << json.dump() << std::endl;
    return kOk;
  }
  std::cout << "wrote " << path << ".bin and .idx: " << prepared.tokens << " tokens of " << prepared.documents
            << (prepared.documents == 1 ? " document" : " documents") << " in " << prepared.file_bytes
            << " bytes, from " << prepared.text_bytes << " bytes of text\nnext:  taut train " << options.config
            << " --set data.path=" << path << std::endl;
  return kOk;
}

int run_train(const TrainOptions& options, const Shell& shell) {
  const config::Config config = config::load_file(options.config, options.overrides, options.ranks, options.steps);
  if (!shell.quiet) {
    for (const std::string& note : config::notes(config)) std::cerr << "note: " << note << "\n";
  }
  if (options.print_config) {
    std::cout << config::to_json(config).dump(2) << std::endl;
    return kOk;
  }
  if (options.dry_run) {
    return dry_run(config, has_worker() ? worker_command(options) : std::vector<std::string>{}, options.format);
  }
  if (options.prepare) return run_prepare(options, config, shell);
  check_memory(config);
  if (!options.trace.empty()) check_trace_path(options.trace);
  check_data(config, shell);
  launch::Plan plan = make_plan(options, config);
  std::unique_ptr<collect::Collector> collector;
  if (!options.trace.empty()) collector = make_collector(options.trace, config);
  const launch::SignalsHeld held;  // before the collector's thread, which must not take a Ctrl-C
  if (collector) {
    plan.environment = collector->environment();
    if (config.trace.torch_ops) plan.environment.push_back("TAUT_TORCH_OPS=1");
    plan.on_poll = [&collector] {
      if (const auto error = collector->error()) throw *error;
    };
    collector->start();
  }
  if (shell.verbose) std::cerr << config::layout_text(config) << std::flush;
  const launch::Result result = launch::launch(plan);
  if (collector) {
    const auto stats = collector->finish();
    if (!shell.quiet || options.format == Format::json) report_trace(options, stats, std::cout);
  }
  return conclude(result, options, config);
}

// A variable that the shell found unset must not silently mean "no trace".
std::string not_empty(const std::string& value) {
  return value.empty() ? "the value is empty" : "";
}

// Leaves what is no number at all to the parser.
std::string at_least_one(const std::string& value) {
  if (value.find_first_not_of("-0123456789") != std::string::npos) return "";
  const bool counts = !value.empty() && value.size() < 10 && value[0] != '-' && std::stol(value) > 0;
  return counts ? "" : "'" + value + "' is no number from 1 to 999999999";
}

}  // namespace

void add_train(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* command = add_command(app, shell, "train", "Train with a config, traced if asked for", options, run_train);
  command->add_option("CONFIG", options->config, "Training config (JSON); docs/config.md lists its keys")->required();
  command->add_option("--nproc", options->ranks, "Ranks to start; default: world_size of the config")
      ->option_text("N")
      ->check(at_least_one);
  command->add_option("--trace", options->trace, "Write a trace of the run to FILE")
      ->option_text("FILE")
      ->check(not_empty);
  command->add_option("--set", options->overrides, "Set a key of the config; may be given several times")
      ->option_text("KEY=VALUE")
      ->type_size(1)
      ->allow_extra_args(false);
  command->add_option("--steps", options->steps, "Train this many steps instead of train_steps")
      ->option_text("N")
      ->check(at_least_one);
  command->add_flag("--dry-run", options->dry_run,
                    "Check the config and show mesh, batch, parameters and memory; start nothing");
  command->add_flag("--print-config", options->print_config,
                    "Print the effective config, defaults filled in; start nothing");
  command->add_flag("--prepare", options->prepare,
                    "Tokenize the text at data.path into token files (.bin, .idx) to train with; start nothing");
  add_format(*command, options->format);
}

}  // namespace taut::cli
