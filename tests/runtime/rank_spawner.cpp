#include "tests/runtime/rank_spawner.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace taut::testing {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int free_port() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(descriptor, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no free port");
  }
  ::close(descriptor);
  return ntohs(address.sin_port);
}

pid_t start_rank(const Job& job, int rank, int port, const fs::path& folder) {
  const std::string worker = std::string(TAUT_BIN_DIR) + "/taut-worker";
  const std::string out = (folder / ("out" + std::to_string(rank))).string();
  const std::string err = (folder / ("err" + std::to_string(rank))).string();
  std::vector<std::string> arguments{worker, job.config.string(), "--format", "json"};
  arguments.insert(arguments.end(), job.arguments.begin(), job.arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const std::pair<const char*, std::string> variables[] = {{"RANK", std::to_string(rank)},
                                                           {"LOCAL_RANK", std::to_string(rank)},
                                                           {"WORLD_SIZE", std::to_string(job.ranks)},
                                                           {"LOCAL_WORLD_SIZE", std::to_string(job.ranks)},
                                                           {"MASTER_ADDR", "127.0.0.1"},
                                                           {"MASTER_PORT", std::to_string(port)},
                                                           {"OMP_NUM_THREADS", "1"}};
  const pid_t child = ::fork();
  if (child != 0) return child;
  for (const auto& [name, value] : variables) ::setenv(name, value.c_str(), 1);
  ::unsetenv("NVTX_INJECTION64_PATH");
  ::unsetenv("TAUT_STATUS_FILE");
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 1);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), 2);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

bool RunResult::ok() const {
  for (const int code : exit_codes) {
    if (code != 0) return false;
  }
  return true;
}

std::string RunResult::all_errors() const {
  std::string text;
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    text += "rank " + std::to_string(rank) + " (exit " + std::to_string(exit_codes[rank]) + "): " + errors[rank] + "\n";
  }
  return text;
}

RunResult run_job(const Job& job, const fs::path& folder) {
  const auto start = std::chrono::steady_clock::now();
  const int port = free_port();
  std::vector<pid_t> children;
  for (int rank = 0; rank < job.ranks; ++rank) children.push_back(start_rank(job, rank, port, folder));
  if (job.kill_rank >= 0) {
    // The step line is the event; looking for it is polling, since it comes through a file.
    const auto some_output = [&] {
      for (int rank = 0; rank < job.ranks; ++rank) {
        if (!read_file(folder / ("out" + std::to_string(rank))).empty()) return true;
      }
      return false;
    };
    const auto ended = [&] {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(children[0]), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
             info.si_pid != 0;
    };
    while (!some_output() && !ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ::kill(children[job.kill_rank], SIGKILL);
  }
  RunResult result;
  for (int rank = 0; rank < job.ranks; ++rank) {
    int status = 0;
    ::waitpid(children[rank], &status, 0);
    result.exit_codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    result.errors.push_back(read_file(folder / ("err" + std::to_string(rank))));
    std::istringstream lines(read_file(folder / ("out" + std::to_string(rank))));
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, false);
      if (!json.is_object()) continue;
      result.steps.push_back({json.at("step"), json.at("loss"), json.at("grad_norm"), json.at("lr")});
    }
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

fs::path write_config(const fs::path& folder, const nlohmann::json& changes) {
  // Text with some order to learn: words drawn by a small generator.
  const char* words[] = {"the ", "rank ", "waits ", "for ", "a ", "slow ", "loader ", "and ", "trains. ", "on\n"};
  std::string text;
  uint32_t state = 1;
  while (text.size() < 20000) {
    state = state * 1664525u + 1013904223u;
    text += words[(state >> 24) % 10];
  }
  std::ofstream(folder / "corpus.txt") << text;
  nlohmann::json config = {{"model",
                            {{"hidden_size", 32},
                             {"num_layers", 2},
                             {"num_attention_heads", 4},
                             {"num_query_groups", 2},
                             {"ffn_hidden_size", 64},
                             {"seq_length", 16},
                             {"vocab_size", 264}}},
                           {"data", {{"path", "corpus.txt"}, {"num_workers", 0}}},
                           {"train_batch_size", 8},
                           {"train_micro_batch_size_per_gpu", 2},
                           {"train_steps", 20},
                           {"seed", 3},
                           {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.003}}}}},
                           {"scheduler", {{"type", "WarmupCosineLR"}, {"params", {{"warmup_num_steps", 4}}}}},
                           {"communication", {{"timeout_s", 60}}}};
  config.merge_patch(changes);
  const fs::path path = folder / "config.json";
  std::ofstream(path) << config.dump(2);
  return path;
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (fs::temp_directory_path() / "taut-runtime-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) throw std::runtime_error("no scratch folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace taut::testing
