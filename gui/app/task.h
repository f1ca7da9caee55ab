// Work that would take longer than a frame: done by a thread of its own, its result collected by the window's thread.
//
//   task.start([](Progress& progress) { return load(path, progress); }, wake);
//   …each frame…  if (task.finished()) use(task.take());
//
// Thread safety: all of Task belongs to the window's thread; the work talks to it through Progress only.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "taut.h"

namespace taut::gui {

/// How far the work is, and whether anybody still wants it.
class Progress {
 public:
  /// What is being done now: "reading run.db". Throws Cancelled when the user gave up.
  void enter(std::string phase) {
    if (cancelled_) throw Cancelled{};
    const std::lock_guard lock(mutex_);
    phase_ = std::move(phase);
  }
  std::string phase() const {
    const std::lock_guard lock(mutex_);
    return phase_;
  }
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  struct Cancelled {};

 private:
  mutable std::mutex mutex_;
  std::string phase_;
  std::atomic<bool> cancelled_ = false;
};

/// What went wrong, in the two lines that the command line would print.
struct Failure {
  std::string what, hint;
};

template <class Result>
class Task {
 public:
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  /// Waits for the work to notice that nobody wants it any more.
  ~Task() {
    cancel();
    for (std::thread& thread : retired_) thread.join();
  }

  /// Starts `work` (Result(Progress&)); what ran before is cancelled. `wake` is called from the other thread at the
  /// end.
  template <class Work>
  void start(Work work, std::function<void()> wake) {
    cancel();
    shared_ = std::make_shared<Shared>();
    thread_ = std::thread([shared = shared_, work = std::move(work), wake = std::move(wake)]() mutable {
      run(*shared, work);
      shared->done = true;
      if (wake) wake();
    });
  }

  /// Forgets the work without waiting: it notices between its phases, and its result is dropped.
  void cancel() {
    if (shared_) shared_->progress.cancel();
    if (thread_.joinable()) retired_.push_back(std::move(thread_));
    shared_.reset();
  }

  /// Asks the work to stop, without waiting: finished() then becomes true, and take() empty with an empty failure.
  void request_cancel() {
    if (shared_) shared_->progress.cancel();
  }

  /// True from start() until the result has been taken.
  bool pending() const { return shared_ != nullptr; }
  bool running() const { return shared_ && !shared_->done; }
  bool finished() const { return shared_ && shared_->done; }
  std::string phase() const { return shared_ ? shared_->progress.phase() : std::string(); }
  bool cancelling() const { return shared_ && shared_->progress.cancelled(); }

  /// The result, or nothing when the work failed (then `failure` is filled in) or was cancelled. Only when finished().
  std::optional<Result> take(Failure& failure) {
    thread_.join();
    const std::shared_ptr<Shared> shared = std::exchange(shared_, nullptr);
    failure = shared->failure;
    return shared->progress.cancelled() ? std::nullopt : std::move(shared->result);
  }

 private:
  struct Shared {
    Progress progress;
    std::optional<Result> result;
    Failure failure;
    std::atomic<bool> done = false;
  };

  template <class Work>
  static void run(Shared& shared, Work& work) {
    try {
      shared.result.emplace(work(shared.progress));
    } catch (const Progress::Cancelled&) {
    } catch (const Error& error) {
      shared.failure = {error.what(), error.hint()};
    } catch (const std::bad_alloc&) {
      shared.failure = {"out of memory", "close other programs, or open a trace of fewer steps"};
    } catch (const std::exception& error) {
      shared.failure = {error.what(), ""};
    }
  }

  std::shared_ptr<Shared> shared_;
  std::thread thread_;
  std::vector<std::thread> retired_;  // cancelled, perhaps not ended yet
};

}  // namespace taut::gui
