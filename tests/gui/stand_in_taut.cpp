// Stands in for `taut train` where the training runtime is not built: reads the config, prints step lines, writes the
// trace of such a run. `data.seed` chooses a mishap: 13 = fails half-way as taut does, 14 = goes on until it is
// stopped.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/gui/traced_run.h"

int main(int argc, char** argv) {
  std::map<std::string, std::string> options;
  if (argc < 3 || std::string(argv[1]) != "train") return 2;
  for (int i = 3; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  std::ifstream file(argv[2]);
  const auto config = nlohmann::json::parse(file, nullptr, true, /*ignore_comments=*/true);
  taut::test::TracedRun run;
  run.ranks = std::stoi(options["--nproc"]);
  run.workers = config["data"]["num_workers"];
  run.read_ms = config["data"]["read_latency_ms"];
  run.steps = options.contains("--steps") ? std::stoll(options["--steps"]) : config["train_steps"].get<int64_t>();
  const int64_t seed = config["data"].value("seed", 1234);
  const auto print_step = [](int64_t step) {
    std::printf(
        "{\"step\":%lld,\"loss\":%.4f,\"grad_norm\":1.0,\"lr\":0.001,\"tokens_per_s\":20000,\"step_ms\":51.5,\"mfu\":0."
        "1}\n",
        static_cast<long long>(step), 5.0 - 0.01 * static_cast<double>(step));
    std::fflush(stdout);
  };
  if (seed == 13) {
    print_step(0);
    std::fprintf(stderr, "error: rank 1 exited with code 1 at step 1\nhint: look at its output\n");
    return 1;
  }
  if (seed == 14) {
    print_step(0);
    while (true) pause();
  }
  for (int64_t step = 0; step < run.steps; ++step) print_step(step);
  taut::test::write_traced_run(run, config, options["--trace"]);
  std::printf("{\"trace\":\"%s\",\"events\":1}\n", options["--trace"].c_str());
  return 0;
}
