#include "runtime/comm/roll_call.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <sstream>

namespace taut::comm {
namespace {

constexpr const char* kQuestions = "roll_call/questions";

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

std::string place_text(Place at) {
  return std::string(op_name(at.op)) + " " + std::to_string(at.seq);
}

bool is_message(annotate::CollectiveOp op) {
  return op == annotate::CollectiveOp::send || op == annotate::CollectiveOp::recv;
}

/// A rank's answer: the number of the question, then lines "at <group>|<operation or none>|<message or none>", then
/// "waits <operation> on <group>" while it blocks. Or "gone <last words>".
struct Answer {
  int64_t question = 0;
  std::optional<std::string> last_words;
  std::map<std::string, std::pair<std::string, std::string>> at;  // group -> collective, message
  std::string waits_in;
};

Answer parse(const std::string& text) {
  Answer answer;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line.rfind("gone", 0) == 0) {
    answer.last_words = line.size() > 5 ? line.substr(5) : "";
    return answer;
  }
  answer.question = std::atoll(line.c_str());
  while (std::getline(lines, line)) {
    if (line.rfind("waits ", 0) == 0) {
      answer.waits_in = line.substr(6);
      continue;
    }
    const size_t first = line.find('|'), second = line.rfind('|');
    if (line.rfind("at ", 0) != 0 || first == second) continue;
    answer.at[line.substr(3, first - 3)] = {line.substr(first + 1, second - first - 1), line.substr(second + 1)};
  }
  return answer;
}

/// "all_reduce 17" -> 17, "none" -> -1.
int64_t sequence_of(const std::string& place) {
  const size_t space = place.rfind(' ');
  return space == std::string::npos ? -1 : std::atoll(place.c_str() + space + 1);
}

/// How a member's answer reads to someone whose operation `at` of `group` waits for it; empty when it has arrived.
std::string report(const Answer& answer, const std::string& group, Place at) {
  if (answer.last_words) return answer.last_words->empty() ? "has ended" : "gave up: " + *answer.last_words;
  const auto found = answer.at.find(group);
  const bool message = is_message(at.op);
  const std::string place = found == answer.at.end() ? "none" : message ? found->second.second : found->second.first;
  if (!message && sequence_of(place) == at.seq && place == place_text(at)) return "";
  if (!message && sequence_of(place) > at.seq) return "";
  std::string text = sequence_of(place) < 0
                         ? "has not called group " + group + (message ? " for a message" : "") + " yet"
                         : "is at " + place + " on " + group;
  if (!answer.waits_in.empty()) text += ", waits in " + answer.waits_in;
  return text;
}

}  // namespace

RollCall::RollCall(c10::intrusive_ptr<c10d::Store> store, int rank, double timeout_s)
    : store_(std::move(store)), rank_(rank), period_s_(std::clamp(timeout_s / 20, 0.01, 1.0)) {
  thread_ = std::thread([this] { run(); });
}

RollCall::~RollCall() {
  std::string last_words;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    last_words = last_words_;
  }
  changed_.notify_all();
  thread_.join();
  publish("gone " + last_words);
}

Progress& RollCall::add(std::string group, std::vector<int> ranks) {
  std::lock_guard lock(mutex_);
  return groups_.emplace_back(std::move(group), std::move(ranks));
}

void RollCall::begin_wait(const std::string& group, Place at) {
  std::lock_guard lock(mutex_);
  waits_in_ = place_text(at) + " on " + group;
}

void RollCall::end_wait() {
  std::lock_guard lock(mutex_);
  waits_in_.clear();
}

void RollCall::give_up(const std::string& error) {
  {
    std::lock_guard lock(mutex_);
    if (!last_words_.empty()) return;  // the first error is the cause of the others
    last_words_ = error.substr(0, error.find('\n'));
  }
  publish("gone " + last_words_);
}

std::string RollCall::key_of(int rank) const {
  return "roll_call/" + std::to_string(rank);
}

void RollCall::publish(const std::string& text) {
  try {
    store_->set(key_of(rank_), bytes_of(text));
  } catch (const std::exception&) {
    // The rank that serves the store is gone; whoever asks finds out, too.
  }
}

std::string RollCall::answer() const {
  std::lock_guard lock(mutex_);
  if (!last_words_.empty()) return "";
  std::string text;
  for (const Progress& group : groups_) {
    const auto said = [](Place at) { return at.seq < 0 ? std::string("none") : place_text(at); };
    text += "at " + group.group() + "|" + said(group.collective()) + "|" + said(group.message()) + "\n";
  }
  if (!waits_in_.empty()) text += "waits " + waits_in_ + "\n";
  return text;
}

void RollCall::run() {
  int64_t answered = 0;
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, std::chrono::duration<double>(period_s_), [this] { return closing_; })) {
    lock.unlock();
    try {
      const int64_t asked = store_->add(kQuestions, 0);
      if (asked > answered) {
        const std::string text = answer();
        if (!text.empty()) publish(std::to_string(asked) + "\n" + text);
        answered = asked;
      }
    } catch (const std::exception&) {
      return;  // no store, no questions
    }
    lock.lock();
  }
}

std::string RollCall::missing_at(const Progress& progress, Place at, int peer) {
  try {
    return ask(progress, at, peer);
  } catch (const std::exception&) {
    return rank_ == 0 ? "" : "rank 0, which serves the rendezvous, has ended or does not answer";
  }
}

std::string RollCall::ask(const Progress& progress, Place at, int peer) {
  const int64_t question = store_->add(kQuestions, 1);
  std::vector<int> silent;
  for (const int member : progress.ranks()) {
    if (member != rank_ && (peer < 0 || member == peer)) silent.push_back(member);
  }
  std::map<int, std::string> reports;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(3 * period_s_ + 1);
  while (true) {
    std::erase_if(silent, [&](int member) {
      if (!store_->check({key_of(member)})) return false;
      const auto raw = store_->get(key_of(member));
      const Answer answer = parse({raw.begin(), raw.end()});
      if (!answer.last_words && answer.question < question) return false;
      reports[member] = report(answer, progress.group(), at);
      return true;
    });
    if (silent.empty() || std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (const int member : silent) reports[member] = "has ended or does not answer";
  std::string text;
  for (const auto& [member, said] : reports) {
    if (!said.empty()) text += (text.empty() ? "rank " : "; rank ") + std::to_string(member) + " " + said;
  }
  return text.empty() ? "all others have arrived" : text;
}

}  // namespace taut::comm
