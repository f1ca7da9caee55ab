#include "tracer/collect/recorder.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "tracer/annotate/annotate.h"
#include "tracer/collect/ring_writer.h"
#include "tracer/collect/utf8.h"

namespace taut::collect::recorder {
namespace {

using annotate::SchemaId;

/// What one thread needs to record without asking anybody.
struct Thread {
  struct Nesting {
    uint32_t depth = 0;
    uint64_t recorded = 0;  // bit d: the push at depth d is in the ring, so its pop must follow
  };
  struct CachedName {
    uint64_t hash = 0;
    uint32_t id = 0;
  };
  std::unique_ptr<LaneWriter> lane;  // null: no room for one
  size_t lane_index = 0;
  Nesting nesting[kMaxDomains];
  CachedName names[256];
  uint32_t step_depth = std::numeric_limits<uint32_t>::max();  // depth of the open Step range in domain "taut"
  int64_t step = 0;
};

/// The process's state. `ring` is replaced in a forked child; its threads start afresh.
struct Process {
  std::string folder;
  bool has_window = false;
  int64_t first_step = 0, last_step = 0;
  std::atomic<bool> recording{true};
  std::atomic<uint64_t> next_range{1};
  std::atomic<RingWriter*> ring{nullptr};
  RingWriter* parent = nullptr;  // after fork, until the first event
  std::atomic<uint16_t> taut_domain{kMaxDomains};
  pthread_key_t thread_key;
  std::mutex mutex;
};

Process* process = nullptr;  // set once, never freed: events may come from destructors
__attribute__((tls_model("initial-exec"))) thread_local Thread* current = nullptr;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void end_thread(void* thread) {
  auto* ending = static_cast<Thread*>(thread);
  if (ending->lane) process->ring.load()->release_lane(ending->lane_index);
  delete ending;
  current = nullptr;
}

/// The child keeps nothing of the parent's lanes: its first event gives it a file of its own. Locks are made anew, as
/// another thread of the parent may have held them.
void in_forked_child() {
  RingWriter* ring = process->ring.exchange(nullptr);
  if (ring) {
    ring->abandon();
    process->parent = ring;
  }
  new (&process->mutex) std::mutex;
  current = nullptr;
  pthread_setspecific(process->thread_key, nullptr);
}

RingWriter* make_ring() {
  const std::lock_guard lock(process->mutex);
  if (RingWriter* ring = process->ring.load()) return ring;
  RingWriter* ring = RingWriter::create(process->folder.c_str(), process->parent).release();
  if (!ring) {
    static bool told = false;
    if (!told)
      fprintf(stderr, "taut: process %d is not traced: cannot create a ring in %s: %s\n", static_cast<int>(getpid()),
              process->folder.c_str(), strerror(errno));
    told = true;
  }
  process->ring.store(ring);
  return ring;
}

RingWriter* ring() {
  RingWriter* ring = process->ring.load(std::memory_order_acquire);
  return __builtin_expect(ring != nullptr, 1) ? ring : make_ring();
}

Thread* first_event_of_thread() {
  RingWriter* into = ring();
  if (!into) return nullptr;
  auto* thread = new (std::nothrow) Thread;
  if (!thread) return nullptr;
  thread->lane = into->claim_lane(static_cast<uint32_t>(syscall(SYS_gettid)), thread->lane_index);
  pthread_setspecific(process->thread_key, thread);
  current = thread;
  return thread;
}

Thread* this_thread() {
  return __builtin_expect(current != nullptr, 1) ? current : first_event_of_thread();
}

uint64_t hash_text(const char* text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325 ^ length;
  while (length >= 8) {
    uint64_t word;
    std::memcpy(&word, text, 8);
    hash = (hash ^ word) * 0x9fb21c651e98df25;
    hash ^= hash >> 32;
    text += 8;
    length -= 8;
  }
  uint64_t word = 0;
  std::memcpy(&word, text, length);
  hash = (hash ^ word) * 0x9fb21c651e98df25;
  return hash ^ (hash >> 29);
}

/// A name given as text: looked up in the thread's cache first.
uint32_t text_id(Thread& thread, const char* text) {
  if (!text || !*text) return 0;
  const std::string_view name(text);
  const uint64_t hash = hash_text(name.data(), name.size());
  RingWriter* into = ring();
  if (!into) return 0;
  Thread::CachedName& cached = thread.names[hash % std::size(thread.names)];
  if (cached.id != 0 && cached.hash == hash && into->name(cached.id) == name) return cached.id;
  const uint32_t id = into->intern(name);
  cached = {hash, id};
  return id;
}

uint32_t message_id(Thread& thread, const Event& event) {
  if (!event.attributes) return text_id(thread, event.text);
  const nvtxEventAttributes_t& a = *event.attributes;
  switch (a.messageType) {
    case NVTX_MESSAGE_TYPE_REGISTERED:
      return name_index(a.message.registered);
    case NVTX_MESSAGE_TYPE_ASCII:
      return text_id(thread, a.message.ascii);
    case NVTX_MESSAGE_TYPE_UNICODE:
      return text_id(thread, to_utf8(a.message.unicode).c_str());
    default:
      return 0;
  }
}

/// The first of the extended payloads; null if there is none.
const nvtxPayloadData_t* extended_payload(const nvtxEventAttributes_t* a) {
  if (!a || a->payloadType != NVTX_PAYLOAD_TYPE_EXT || a->reserved0 < 1 || a->payload.ullValue == 0) return nullptr;
  return reinterpret_cast<const nvtxPayloadData_t*>(static_cast<uintptr_t>(a->payload.ullValue));
}

const void* fill(Thread& thread, const Event& event, Record& record) {
  record.domain = event.domain;
  record.name = message_id(thread, event);
  const nvtxEventAttributes_t* a = event.attributes;
  if (!a) return nullptr;
  record.category = a->category;
  if (a->colorType == NVTX_COLOR_ARGB) {
    record.has_color = 1;
    record.color = a->color;
  }
  switch (a->payloadType) {
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT64:
      record.payload = Payload::u64;
      break;
    case NVTX_PAYLOAD_TYPE_INT64:
      record.payload = Payload::i64;
      break;
    case NVTX_PAYLOAD_TYPE_DOUBLE:
      record.payload = Payload::f64;
      break;
    case NVTX_PAYLOAD_TYPE_UNSIGNED_INT32:
      record.payload = Payload::u32;
      break;
    case NVTX_PAYLOAD_TYPE_INT32:
      record.payload = Payload::i32;
      break;
    case NVTX_PAYLOAD_TYPE_FLOAT:
      record.payload = Payload::f32;
      break;
    default:
      break;
  }
  if (record.payload != Payload::none) record.value = a->payload.ullValue;
  const nvtxPayloadData_t* data = extended_payload(a);
  if (!data) return nullptr;
  const size_t size = data->payload && data->size != std::numeric_limits<size_t>::max() ? data->size : 0;
  record.payload = Payload::extended;
  record.value = data->schemaId;
  record.payload_bytes = static_cast<uint16_t>(std::min(size, kMaxPayloadBytes));
  record.full_bytes = static_cast<uint32_t>(std::min<size_t>(size, std::numeric_limits<uint32_t>::max()));
  return data->payload;
}

bool in_window(int64_t step) {
  return step >= process->first_step && step < process->last_step;
}

/// The payload of an event in our own domain that has this schema; null otherwise.
template <class P>
const P* own_payload(const Event& event) {
  if (event.domain != process->taut_domain.load(std::memory_order_relaxed)) return nullptr;
  const nvtxPayloadData_t* data = extended_payload(event.attributes);
  if (!data || data->schemaId != static_cast<uint64_t>(P::kSchema) || data->size < sizeof(P) || !data->payload)
    return nullptr;
  return static_cast<const P*>(data->payload);
}

bool write(Thread& thread, Record& record, const void* payload, size_t reserve) {
  if (thread.lane) return thread.lane->write(record, payload, reserve);
  if (RingWriter* into = ring()) into->drop();
  return false;
}

void write_note(Record& record) {
  if (Thread* thread = this_thread()) write(*thread, record, nullptr, kPopReserve);
}

uint16_t checked(uint16_t domain) {
  return domain < kMaxDomains ? domain : uint16_t{kMaxDomains - 1};
}

}  // namespace

bool start() {
  static std::mutex once;
  const std::lock_guard lock(once);
  if (process) return true;
  const char* folder = getenv("TAUT_TRACE_DIR");
  if (!folder || !*folder) return false;
  auto starting = std::make_unique<Process>();
  starting->folder = folder;
  const char* steps = getenv("TAUT_TRACE_STEPS");
  if (steps && *steps) {
    long long first = 0, last = 0;
    if (sscanf(steps, "%lld:%lld", &first, &last) == 2) {
      starting->has_window = true;
      starting->first_step = first;
      starting->last_step = last;
    } else {
      fprintf(stderr, "taut: TAUT_TRACE_STEPS=%s is not A:B; all steps are traced\n", steps);
    }
  }
  if (pthread_key_create(&starting->thread_key, end_thread) != 0) return false;
  process = starting.release();
  if (!make_ring()) {
    delete process;
    process = nullptr;
    return false;
  }
  pthread_atfork(nullptr, nullptr, in_forked_child);
  return true;
}

uint16_t create_domain(const char* name) {
  RingWriter* into = ring();
  if (!into || !name) return 0;
  bool created = false;
  const uint16_t domain = into->domain(name, created);
  if (created && std::string_view(name) == annotate::kDomainName) process->taut_domain = domain;
  if (created) {
    Record record{};
    record.time_ns = now_ns();
    record.kind = Kind::domain;
    record.domain = domain;
    record.name = into->intern(name);
    write_note(record);
  }
  return domain;
}

uint32_t intern(const char* name) {
  RingWriter* into = ring();
  return into && name ? into->intern(name) : 0;
}

void name_category(uint16_t domain, uint32_t category, const char* name) {
  Record record{};
  record.time_ns = now_ns();
  record.kind = Kind::category;
  record.domain = checked(domain);
  record.category = category;
  record.name = intern(name);
  write_note(record);
}

void name_thread(uint32_t tid, const char* name) {
  Record record{};
  record.time_ns = now_ns();
  record.kind = Kind::thread_name;
  record.value = tid;
  record.name = intern(name);
  write_note(record);
}

int push(const Event& event) {
  Thread* thread = this_thread();
  if (!thread) return NVTX_NO_PUSH_POP_TRACKING;
  Event in = event;
  in.domain = checked(in.domain);
  Thread::Nesting& nesting = thread->nesting[in.domain];
  const uint32_t depth = nesting.depth++;
  const uint64_t bit = depth < 64 ? uint64_t{1} << depth : 0;
  nesting.recorded &= ~bit;
  if (process->has_window) {
    if (const auto* step = own_payload<annotate::Step>(in)) {
      thread->step_depth = depth;
      thread->step = step->step;
      process->recording.store(in_window(step->step), std::memory_order_relaxed);
    }
  }
  if (!process->recording.load(std::memory_order_relaxed) || bit == 0) return static_cast<int>(depth);
  Record record{};
  record.kind = Kind::push;
  record.id = depth;
  const void* payload = fill(*thread, in, record);
  record.time_ns = now_ns();
  if (write(*thread, record, payload, kPopReserve)) nesting.recorded |= bit;
  return static_cast<int>(depth);
}

int pop(uint16_t domain) {
  const int64_t time_ns = now_ns();
  Thread* thread = this_thread();
  if (!thread) return NVTX_NO_PUSH_POP_TRACKING;
  domain = checked(domain);
  Thread::Nesting& nesting = thread->nesting[domain];
  if (nesting.depth == 0) return -1;
  const uint32_t depth = --nesting.depth;
  if (depth < 64 && (nesting.recorded >> depth & 1)) {
    Record record{};
    record.time_ns = time_ns;
    record.kind = Kind::pop;
    record.domain = domain;
    record.id = depth;
    write(*thread, record, nullptr, 0);
  }
  if (depth == thread->step_depth && domain == process->taut_domain.load(std::memory_order_relaxed)) {
    // Between two steps belongs to the steps that both sides are in.
    process->recording.store(in_window(thread->step + 1), std::memory_order_relaxed);
    thread->step_depth = std::numeric_limits<uint32_t>::max();
  }
  return static_cast<int>(depth);
}

uint64_t start_range(const Event& event) {
  const uint64_t id = process->next_range.fetch_add(1, std::memory_order_relaxed) << 1;  // bit 0: it is in the ring
  Thread* thread = this_thread();
  if (!thread || !process->recording.load(std::memory_order_relaxed)) return id;
  Event in = event;
  in.domain = checked(in.domain);
  Record record{};
  record.kind = Kind::start;
  record.id = id | 1;
  const void* payload = fill(*thread, in, record);
  record.time_ns = now_ns();
  return write(*thread, record, payload, kPopReserve) ? id | 1 : id;
}

void end_range(uint64_t id) {
  if (!(id & 1)) return;
  Record record{};
  record.time_ns = now_ns();
  record.kind = Kind::end;
  record.id = id;
  if (Thread* thread = this_thread()) write(*thread, record, nullptr, 0);
}

void mark(const Event& event) {
  Thread* thread = this_thread();
  if (!thread) return;
  Event in = event;
  in.domain = checked(in.domain);
  if (!process->recording.load(std::memory_order_relaxed) && !own_payload<annotate::Rank>(in) &&
      !own_payload<annotate::Group>(in))
    return;
  Record record{};
  record.kind = Kind::mark;
  const void* payload = fill(*thread, in, record);
  record.time_ns = now_ns();
  write(*thread, record, payload, kPopReserve);
}

}  // namespace taut::collect::recorder
