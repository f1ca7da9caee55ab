#include "gui/app/rerun.h"

#include <cstring>

#include "analyzer/report/escape.h"
#include "analyzer/tune/apply.h"
#include "runtime/config/load.h"

namespace taut::gui {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLines = 500;

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// before.db -> after.db, run.db -> run-after.db; a number is added until neither file exists.
std::pair<fs::path, fs::path> free_names(const fs::path& trace) {
  std::string stem = trace.stem().string();
  const size_t at = stem.rfind("before");
  stem = at == std::string::npos ? stem + "-after" : stem.substr(0, at) + "after" + stem.substr(at + strlen("before"));
  for (int number = 1;; ++number) {
    std::string name = stem;
    if (number > 1) name.append("-").append(std::to_string(number));
    const fs::path config = folder_of(trace) / (name + ".json"), after = folder_of(trace) / (name + ".db");
    if (!fs::exists(config) && !fs::exists(after)) return {config, after};
  }
}

std::optional<int64_t> integer_at(const config::Json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer()) return {};
  return json[key].get<int64_t>();
}

}  // namespace

RerunPlan plan_rerun(const Document& document, const RerunRequest& request, const std::string& taut_program) {
  if (request.config.empty() && !document.config.is_object()) {
    throw Error(document.name + " does not hold the training config",
                "give the config it was made with in the field Config");
  }
  const config::Json written = request.config.empty() ? document.config : config::read_json_file(request.config);
  const fs::path base = request.config.empty() ? folder_of(document.path) : folder_of(request.config);
  const auto chosen = tune::choose(document.analysis().findings, {.findings = {}, .suggestions = request.suggestions});
  if (chosen.empty()) throw Error("no suggestion is chosen", "tick one under Findings");
  std::optional<int64_t> traced = integer_at(document.config, "world_size");
  if (!traced && !document.timeline.ranks.empty()) traced = static_cast<int64_t>(document.timeline.ranks.size());
  const config::Json patched = tune::patch_config(written, tune::joined_patch(chosen), base, traced);

  RerunPlan plan;
  const auto [config_path, trace_path] = free_names(document.path);
  config::write_config_file(patched, base, config_path);
  plan.config = config_path.string();
  plan.trace = trace_path.string();
  plan.ranks = integer_at(patched, "world_size").value_or(traced.value_or(1));
  config::Config checked = config::from_json(patched, base);
  plan.steps = request.steps > 0 ? request.steps : checked.train_steps;
  plan.command = {taut_program, "train",    plan.config,
                  "--trace",    plan.trace, "--format",
                  "json",       "--nproc",  std::to_string(plan.ranks)};
  if (request.steps > 0) plan.command.insert(plan.command.end(), {"--steps", std::to_string(request.steps)});
  return plan;
}

std::optional<StepLine> parse_step_line(const std::string& line) {
  if (line.empty() || line.front() != '{') return {};
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return {};
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number() ? json[key].get<double>() : 0.0;
  };
  return StepLine{json["step"].get<int64_t>(), number("loss"), number("tokens_per_s"), number("step_ms")};
}

void Rerun::start(std::shared_ptr<const Document> before, RerunRequest request, std::string taut_program,
                  std::function<void()> wake) {
  if (busy() || !before) return;
  outcome_ = Outcome::none;
  failure_ = {};
  plan_ = {};
  steps_.clear();
  log_.clear();
  wake_ = std::move(wake);
  state_ = State::preparing;
  preparing_.start(
      [before = std::move(before), request = std::move(request),
       program = std::move(taut_program)](Progress& progress) {
        progress.enter("writing the config");
        return plan_rerun(*before, request, program);
      },
      wake_);
}

void Rerun::abort() {
  if (state_ == State::preparing) preparing_.request_cancel();
  if (state_ == State::opening) opening_.request_cancel();
  if (state_ == State::running) {
    process_.stop();
    state_ = State::stopping;
  }
}

void Rerun::end(Outcome outcome, Failure failure) {
  state_ = State::idle;
  outcome_ = outcome;
  failure_ = std::move(failure);
}

void Rerun::take_output() {
  for (OutputLine& line : process_.take_lines()) {
    if (const auto step = line.is_error ? std::nullopt : parse_step_line(line.text)) {
      steps_.push_back(*step);
      continue;
    }
    line.text = report::printable(line.text);
    log_.push_back(std::move(line));
    if (log_.size() > kLogLines) log_.erase(log_.begin());
  }
}

void Rerun::run_ended(const ExitStatus& status) {
  if (state_ == State::stopping) return end(Outcome::aborted);
  if (status.code == 0 && status.signal == 0) {
    state_ = State::opening;
    opening_.start([path = plan_.trace](Progress& progress) { return load_document(path, progress); }, wake_);
    return;
  }
  // `taut` ends with the two lines that it has for people.
  Failure failure{status.signal ? "taut train was ended by signal " + std::to_string(status.signal)
                                : "taut train ended with exit code " + std::to_string(status.code),
                  ""};
  for (const OutputLine& line : log_) {
    if (line.is_error && line.text.starts_with("error: ")) failure.what = line.text.substr(strlen("error: "));
    if (line.is_error && line.text.starts_with("hint: ")) failure.hint = line.text.substr(strlen("hint: "));
  }
  end(Outcome::failed, failure);
}

std::shared_ptr<const Document> Rerun::advance() {
  if (state_ == State::preparing && preparing_.finished()) {
    Failure failure;
    auto plan = preparing_.take(failure);
    if (!plan) {
      end(failure.what.empty() ? Outcome::aborted : Outcome::failed, failure);
    } else {
      plan_ = std::move(*plan);
      try {
        process_.start(plan_.command, wake_);
        state_ = State::running;
      } catch (const Error& error) {
        end(Outcome::failed, {error.what(), error.hint()});
      }
    }
  }
  if (state_ == State::running || state_ == State::stopping) {
    const auto status = process_.exit_status();  // before the lines, so that none is left when it has ended
    take_output();
    if (status) run_ended(*status);
  }
  if (state_ == State::opening && opening_.finished()) {
    Failure failure;
    auto document = opening_.take(failure);
    if (document) {
      end(Outcome::done);
      return *document;
    }
    end(failure.what.empty() ? Outcome::aborted : Outcome::failed, failure);
  }
  return nullptr;
}

double Rerun::progress() const {
  if (outcome_ == Outcome::done || state_ == State::opening) return 1;
  if (plan_.steps <= 0) return 0;
  return std::min(1.0, static_cast<double>(steps_.size()) / static_cast<double>(plan_.steps));
}

}  // namespace taut::gui
