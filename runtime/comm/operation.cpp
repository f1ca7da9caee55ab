#include "runtime/comm/operation.h"

#include <c10/core/DeviceGuard.h>

#include <array>
#include <chrono>
#include <cstdio>

#include "taut.h"

namespace taut::comm {

using annotate::CollectiveOp;

namespace {

const annotate::Name& range_name(CollectiveOp op) {
  const auto name = [](CollectiveOp which) { return annotate::Name(op_name(which)); };
  static const std::array<annotate::Name, 8> names = {
      name(CollectiveOp::all_reduce), name(CollectiveOp::all_gather), name(CollectiveOp::reduce_scatter),
      name(CollectiveOp::broadcast),  name(CollectiveOp::all_to_all), name(CollectiveOp::send),
      name(CollectiveOp::recv),       name(CollectiveOp::barrier)};
  return names[static_cast<size_t>(op)];
}

bool point_to_point(CollectiveOp op) {
  return op == CollectiveOp::send || op == CollectiveOp::recv;
}

}  // namespace

void Operation::set_issued() {
  {
    std::lock_guard lock(mutex);
    issued = true;
  }
  changed.notify_all();
}

void Operation::finish(std::string Operation::*field, const std::string& what) {
  annotate::end_range(range);
  {
    std::lock_guard lock(mutex);
    if (!what.empty()) this->*field = what;
    issued = done = true;
    tensors.clear();
    before_work = nullptr;
    if (!cuda) work.reset();  // Gloo's work keeps its tensor for as long as the handle lives
  }
  changed.notify_all();
}

void Operation::complete(const std::string& what) {
  finish(&Operation::failure, what);
}

void Operation::complete_mismatch(const std::string& what) {
  finish(&Operation::mismatch, what);
}

void Operation::wait() {
  static const annotate::Name name("wait");
  const annotate::Range range(name,
                              annotate::CollectiveWait{info.group_id, info.seq, info.rank, info.peer, info.op, 0});
  std::unique_lock lock(mutex);
  // On CUDA the host only has to know that the operation is in the stream; the device waits by itself.
  const auto ready = [&] { return cuda ? issued : done; };
  if (!ready()) {
    if (roll_call) roll_call->begin_wait(group_name, {info.op, info.seq});
    changed.wait(lock, ready);
    // One that failed stays known until it has said why: others may ask just now.
    if (roll_call && failure.empty() && mismatch.empty()) roll_call->end_wait();
  }
  if (!failure.empty() || !mismatch.empty()) {
    lock.unlock();
    raise();
  }
  if (cuda && work) {
    lock.unlock();
    work->wait();
  } else if (!copied) {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, host] : results) tensor.copy_(host);
    copied = true;
  }
}

void Operation::raise() {
  if (!mismatch.empty()) {
    if (roll_call) roll_call->give_up(mismatch);
    throw Error(mismatch, "these ranks run different programs, or configs that differ: compare what each of them does");
  }
  const bool late = failure.find("imed out") != std::string::npos || failure.find("imeout") != std::string::npos;
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", timeout_s);
  std::string what = std::string(op_name(info.op)) +
                     (late ? " timed out after " + std::string(seconds) + " s" : " failed") + " on group " +
                     group_name + " (operation " + std::to_string(info.seq) + ", rank " + std::to_string(info.rank);
  if (info.peer >= 0) what += ", peer rank " + std::to_string(info.peer);
  what += ")";
  std::string others;
  if (roll_call) others = roll_call->missing_at(*progress, {info.op, info.seq}, info.peer);
  what += ": " + (others.empty() ? "" : others + "; ") + failure.substr(0, failure.find('\n'));
  if (roll_call) roll_call->give_up(what);
  throw Error(what, late ? "look at the ranks that have not arrived: a rank may be stuck or only slow; "
                           "communication.timeout_s sets how long to wait"
                         : "another rank ended or no longer answers: look at the first rank that failed; "
                           "communication.timeout_s sets how long to wait");
}

CompletionQueue::CompletionQueue(at::Device device) : device_(device), thread_([this] { run(); }) {}

CompletionQueue::~CompletionQueue() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  arrived_.notify_one();
  thread_.join();
}

void CompletionQueue::add(std::shared_ptr<Operation> operation) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(std::move(operation));
  }
  arrived_.notify_one();
}

void CompletionQueue::run() {
  // A thread's first look at an event would otherwise cost this rank memory on GPU 0.
  const c10::DeviceGuard current_device(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    arrived_.wait(lock, [this] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const auto operation = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      if (operation->before_work) operation->before_work();
      if (operation->cuda) {
        while (!operation->work->isCompleted()) std::this_thread::sleep_for(std::chrono::microseconds(20));
        if (const auto failure = operation->work->exception()) std::rethrow_exception(failure);
      } else {
        operation->work->wait();
      }
      operation->complete();
    } catch (const Error& mismatch) {
      operation->complete_mismatch(mismatch.what());
    } catch (const std::exception& failure) {
      operation->complete(failure.what());
    }
    lock.lock();
  }
}

void IssueLine::pass(std::function<void()> issue) {
  std::lock_guard lock(mutex_);
  if (waiting_.empty()) return issue();
  waiting_.push_back(std::make_shared<Place>(Place{std::move(issue), true}));
}

std::shared_ptr<IssueLine::Place> IssueLine::hold(std::function<void()> issue) {
  std::lock_guard lock(mutex_);
  return waiting_.emplace_back(std::make_shared<Place>(Place{std::move(issue), false}));
}

void IssueLine::decide(const std::shared_ptr<Place>& place, bool passed) {
  std::lock_guard lock(mutex_);
  if (!passed) place->issue = nullptr;
  place->decided = true;
  while (!waiting_.empty() && waiting_.front()->decided) {
    if (waiting_.front()->issue) waiting_.front()->issue();
    waiting_.pop_front();
  }
}

GroupImpl::~GroupImpl() {
  // Checks first: their completion issues operations. Then those who wait for operations, then the backends.
  check_backend.reset();
  queues.clear();
}

namespace {

bool is_checked(const GroupImpl& impl, const Operation& operation) {
  return impl.check_backend && (impl.check_always || operation.info.seq < kAlwaysChecked);
}

/// Hands the operation to the backend and arranges for its completion.
void hand_over(GroupImpl& impl, const std::shared_ptr<Operation>& operation, int peer, const Issue& issue) {
  const CollectiveOp op = operation->info.op;
  try {
    operation->work = issue(*impl.backend);
    // Gloo's send, recv and reduce_scatter have no future to hang a callback on.
    if (impl.cuda || point_to_point(op) || op == CollectiveOp::reduce_scatter) {
      operation->set_issued();
      const int kind = !point_to_point(op) ? 0 : op == CollectiveOp::send ? 1 : 2;
      impl.queue(kind, peer).add(operation);
    } else {
      operation->work->getFuture()->addCallback(
          [operation](c10::ivalue::Future& future) {
            operation->complete(future.hasError() ? future.tryRetrieveErrorMessage() : std::string());
          },
          /*uses_future=*/false);
    }
  } catch (const std::exception& failure) {
    operation->complete(failure.what());
  }
}

/// Exchanges fingerprints without blocking; `issue` follows when they agree.
void check_collective(Group& group, const std::shared_ptr<Operation>& operation, const Fingerprint& fingerprint,
                      std::function<void()> issue) {
  GroupImpl& impl = group.impl();
  const int members = group.size();
  std::vector<int64_t> words = pack(fingerprint, members);
  at::Tensor mine = at::tensor(words, at::kLong);
  at::Tensor all = at::empty({static_cast<int64_t>(words.size()) * members}, at::kLong);
  std::vector<int> ranks;
  for (int member = 0; member < members; ++member) ranks.push_back(group.global_rank_of(member));
  const auto place = impl.line.hold(std::move(issue));
  try {
    impl.check_backend->_allgather_base(all, mine)->getFuture()->addCallback(
        [&impl, operation, place, all, members, ranks](c10::ivalue::Future& future) {
          std::string mismatch;
          if (future.hasError()) {
            operation->complete(future.tryRetrieveErrorMessage());
          } else {
            mismatch = disagreement(unpack(all.const_data_ptr<int64_t>(), members), ranks, operation->group_name);
            if (!mismatch.empty()) operation->complete_mismatch(mismatch);
          }
          impl.line.decide(place, !future.hasError() && mismatch.empty());
        },
        /*uses_future=*/false);
  } catch (const std::exception& failure) {
    operation->complete(failure.what());
    impl.line.decide(place, false);
  }
}

// A message's header, ahead of it on the check backend: what the sender sends.
constexpr int kHeaderWords = 2;

void send_header(GroupImpl& impl, const std::shared_ptr<Operation>& operation, int peer, int number) {
  std::vector<at::Tensor> header{
      at::tensor({operation->info.bytes, static_cast<int64_t>(operation->info.dtype)}, at::kLong)};
  const auto work = impl.check_backend->send(header, peer, number);
  operation->before_work = [work, header] { work->wait(); };
}

/// Waits for the header on the completing thread and posts the receive only when it fits.
void receive_header_first(GroupImpl& impl, const std::shared_ptr<Operation>& operation, int peer, int number,
                          Issue issue) {
  std::vector<at::Tensor> header{at::empty({kHeaderWords}, at::kLong)};
  const auto work = impl.check_backend->recv(header, peer, number);
  Operation* const own = operation.get();  // held by the queue while it calls this
  operation->before_work = [&impl, own, work, header, issue = std::move(issue)] {
    work->wait();
    const int64_t* const words = header[0].const_data_ptr<int64_t>();
    Fingerprint sent, expected;
    sent.bytes = words[0];
    sent.dtype = static_cast<annotate::DType>(words[1]);
    expected.seq = own->info.seq;
    expected.bytes = own->info.bytes;
    expected.dtype = own->info.dtype;
    const std::string mismatch = disagreement(sent, own->info.peer, expected, own->info.rank, own->group_name);
    if (!mismatch.empty()) throw Error(mismatch);
    own->work = issue(*impl.backend);
  };
  operation->set_issued();
  impl.queue(2, peer).add(operation);
}

}  // namespace

Handle start(Group& group, Call call) {
  static const annotate::Name issue_name("issue");
  GroupImpl& impl = group.impl();
  if (impl.dry) return Handle();
  const annotate::Range issuing(issue_name);
  auto operation = std::make_shared<Operation>();
  const CollectiveOp op = call.op;
  const bool message = point_to_point(op);
  annotate::Collective& info = operation->info;
  info.group_id = group.id();
  info.seq = message ? impl.next_message[{op == CollectiveOp::send, call.peer}]++ : impl.next_seq++;
  info.bytes = call.bytes;
  info.tensor_id = call.tag.id;
  info.tensor_version = call.tag.version;
  info.reason = call.tag.reason;
  info.first_element = call.tag.first_element;
  info.elements = call.tag.elements;
  info.rank = group.global_rank();
  info.group_size = group.size();
  info.peer = call.peer >= 0 ? group.global_rank_of(call.peer) : -1;
  info.op = op;
  info.dtype = call.dtype;
  info.is_async = call.is_async;
  operation->group_name = group.name();
  operation->timeout_s = impl.timeout_s;
  operation->roll_call = impl.roll_call;
  operation->progress = impl.progress;
  operation->cuda = impl.cuda;
  operation->tensors = std::move(call.tensors);
  operation->results = std::move(call.results);
  if (impl.progress) {
    const Place here{op, info.seq};
    message ? impl.progress->set_message(here) : impl.progress->set_collective(here);
  }
  operation->range = annotate::start_range(range_name(op), info);

  const int peer = call.peer;
  const bool checked = is_checked(impl, *operation);
  const int number = static_cast<int>(info.seq % (1 << 20));
  // A receive is not delayed by the link: its sender's delay makes it late.
  if (op == CollectiveOp::recv) {
    try {
      if (checked && !impl.cuda) {
        receive_header_first(impl, operation, peer, number, std::move(call.issue));
      } else {
        hand_over(impl, operation, peer, call.issue);
      }
    } catch (const std::exception& failure) {
      operation->complete(failure.what());
    }
    return Handle(std::move(operation));
  }
  auto issue = [&impl, operation, op, peer, checked, number, size = group.size(), hand = std::move(call.issue)] {
    impl.link->submit(wire_bytes(op, size, operation->info.bytes), [&impl, operation, op, peer, checked, number, hand] {
      try {
        if (op == CollectiveOp::send && checked && !impl.cuda) send_header(impl, operation, peer, number);
      } catch (const std::exception& failure) {
        return operation->complete(failure.what());
      }
      hand_over(impl, operation, peer, hand);
    });
  };
  if (message) {
    issue();
  } else if (checked) {
    Fingerprint& fingerprint = call.fingerprint;
    fingerprint.op = op;
    fingerprint.seq = info.seq;
    fingerprint.dtype = info.dtype;
    if (fingerprint.bytes == 0) fingerprint.bytes = info.bytes;
    check_collective(group, operation, fingerprint, std::move(issue));
  } else {
    impl.line.pass(std::move(issue));
  }
  return Handle(std::move(operation));
}

}  // namespace taut::comm
