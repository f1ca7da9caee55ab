#include "tracer/collect/assembler.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tracer/collect/payloads.h"
#include "tracer/store/ids.h"

namespace taut::collect {
namespace {

using annotate::SchemaId;
using store::TableId;
using store::Value;

/// Collectives and waits that never find each other (fire-and-forget sends, lost events) must not pile up.
constexpr size_t kMaxUnmatched = 100'000;

std::span<const unsigned char> bytes_of(const Record& record, const unsigned char* payload) {
  return {payload, record.payload == Payload::extended ? record.payload_bytes : size_t{0}};
}

void set_scalar(store::NvtxEvent& event, const Record& record) {
  using To = store::NvtxEvent::Payload;
  switch (record.payload) {
    case Payload::none:
    case Payload::extended:
      break;
    case Payload::u64:
      event.payload_type = To::u64;
      event.payload = Value(record.value);
      break;
    case Payload::i64:
      event.payload_type = To::i64;
      event.payload = Value(static_cast<int64_t>(record.value));
      break;
    case Payload::f64:
      event.payload_type = To::f64;
      event.payload = Value(std::bit_cast<double>(record.value));
      break;
    case Payload::u32:
      event.payload_type = To::u32;
      event.payload = Value(static_cast<uint32_t>(record.value));
      break;
    case Payload::i32:
      event.payload_type = To::i32;
      event.payload = Value(static_cast<int32_t>(record.value));
      break;
    case Payload::f32:
      event.payload_type = To::f32;
      event.payload = Value(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(record.value))));
      break;
  }
}

template <class Key, class T, class Hash>
void bound(std::unordered_map<Key, T, Hash>& map) {
  if (map.size() >= kMaxUnmatched) map.clear();
}

}  // namespace

ProcessTrace::ProcessTrace(TraceState& trace, const RingReader& ring)
    : trace_(trace), ring_(ring), global_pid_(store::global_pid(trace.node, ring.pid())) {
  domain_ids_.fill(-1);
  domain_ids_[0] = 0;
  trace_.writer.insert(TableId::PROCESSES, {global_pid_, ring.pid(), ring.program()});
}

int64_t ProcessTrace::global_tid(uint32_t tid) const {
  return global_pid_ + tid % store::kPidUnit;
}

int64_t ProcessTrace::string_id(uint32_t name) {
  if (name == 0) return -1;
  if (name >= string_ids_.size()) {
    if (name >= kStringsBytes / 8) return trace_.writer.string_id("?");
    string_ids_.resize(std::max<size_t>(name + 1, string_ids_.size() * 2), -1);
  }
  int64_t& id = string_ids_[name];
  if (id < 0) id = trace_.writer.string_id(ring_.name(name));
  return id;
}

int64_t ProcessTrace::domain_id(uint16_t domain) {
  if (domain >= kMaxDomains) return 0;
  int64_t& id = domain_ids_[domain];
  if (id < 0) {
    const std::string name(ring_.domain_name(domain));
    id = trace_.domains.try_emplace(name, static_cast<int64_t>(trace_.domains.size()) + 1).first->second;
    if (name == annotate::kDomainName) taut_domain_ = domain;
  }
  return id;
}

bool ProcessTrace::is_taut(uint16_t domain) {
  domain_id(domain);
  return domain == taut_domain_;
}

ProcessTrace::Lane& ProcessTrace::lane(size_t index) {
  if (index >= lanes_.size()) lanes_.resize(index + 1);
  return lanes_[index];
}

std::vector<ProcessTrace::Range>& ProcessTrace::stack(Lane& lane, uint16_t domain) {
  if (domain >= lane.open.size()) lane.open.resize(size_t{domain} + 1);
  return lane.open[domain];
}

void ProcessTrace::take(size_t lane_index, const Record& record, const unsigned char* payload) {
  Lane& lane = this->lane(lane_index);
  switch (record.kind) {
    case Kind::thread_start: {
      // The lane's last thread has ended; what it left open stays open.
      for (std::vector<Range>& open : lane.open) {
        for (const Range& range : open) close(range, store::kNvtxPushPop, std::nullopt);
        open.clear();
      }
      lane.tid = static_cast<uint32_t>(record.value);
      const auto* text = reinterpret_cast<const char*>(payload);
      thread_names_.try_emplace(lane.tid, text, strnlen(text, record.payload_bytes));
      break;
    }
    case Kind::push:
      push(lane, record, payload);
      break;
    case Kind::pop:
      pop(lane, record);
      break;
    case Kind::start:
      start_range(lane.tid, record, payload);
      break;
    case Kind::end:
      end_range(record, lane.tid);
      break;
    case Kind::mark:
      mark(lane, record, payload);
      break;
    case Kind::thread_name:
      thread_names_[static_cast<uint32_t>(record.value)] = ring_.name(record.name);
      break;
    case Kind::domain:
    case Kind::category: {
      store::NvtxEvent event;
      event.start = since_start(record.time_ns);
      event.event_type = record.kind == Kind::domain ? store::kNvtxDomain : store::kNvtxCategory;
      event.category = record.category;
      event.global_tid = global_tid(lane.tid);
      event.domain_id = domain_id(record.domain);
      event.text = ring_.name(record.name);
      trace_.writer.insert_nvtx(event);
      ++trace_.nvtx_rows;
      break;
    }
  }
}

void ProcessTrace::push(Lane& lane, const Record& record, const unsigned char* payload) {
  std::vector<Range>& open = stack(lane, record.domain % kMaxDomains);
  // A push at a depth that is taken means that the end of the older range was lost.
  while (!open.empty() && open.back().record.id >= record.id) {
    close(open.back(), store::kNvtxPushPop, std::nullopt);
    open.pop_back();
  }
  Range& range = open.emplace_back();
  range.record = record;
  range.tid = lane.tid;
  if (record.payload_bytes > 0) std::memcpy(range.bytes.data(), payload, record.payload_bytes);
}

void ProcessTrace::pop(Lane& lane, const Record& record) {
  std::vector<Range>& open = stack(lane, record.domain % kMaxDomains);
  while (!open.empty() && open.back().record.id > record.id) {
    close(open.back(), store::kNvtxPushPop, std::nullopt);
    open.pop_back();
  }
  if (open.empty() || open.back().record.id != record.id) return;  // its push was lost
  close(open.back(), store::kNvtxPushPop, End{record.time_ns, lane.tid});
  open.pop_back();
}

void ProcessTrace::start_range(uint32_t tid, const Record& record, const unsigned char* payload) {
  Range range;
  range.record = record;
  range.tid = tid;
  if (record.payload_bytes > 0) std::memcpy(range.bytes.data(), payload, record.payload_bytes);
  const auto end = ended_early_.find(record.id);
  if (end == ended_early_.end()) {
    started_.emplace(record.id, range);
    return;
  }
  close(range, store::kNvtxStartEnd, end->second);
  ended_early_.erase(end);
}

void ProcessTrace::end_range(const Record& record, uint32_t tid) {
  const auto started = started_.find(record.id);
  if (started == started_.end()) {  // it started in a lane that is read after this one
    bound(ended_early_);
    ended_early_.emplace(record.id, End{record.time_ns, tid});
    return;
  }
  close(started->second, store::kNvtxStartEnd, End{record.time_ns, tid});
  started_.erase(started);
}

int64_t ProcessTrace::write_event(const Record& record, const unsigned char* payload, int event_type, uint32_t tid,
                                  std::optional<End> end) {
  store::NvtxEvent event;
  event.start = since_start(record.time_ns);
  if (end) event.end = since_start(end->time_ns);
  event.event_type = event_type;
  event.category = record.category;
  if (record.has_color) event.color = record.color;
  event.global_tid = global_tid(tid);
  event.text_id = string_id(record.name);
  event.domain_id = domain_id(record.domain);
  set_scalar(event, record);
  if (event_type == store::kNvtxStartEnd) {
    event.range_id = static_cast<int64_t>(record.id);
    if (end) event.end_global_tid = global_tid(end->tid);
  }
  // Payloads of our own vocabulary have tables; those of unfinished ranges and of other domains stay bytes.
  std::array<unsigned char, sizeof(BinaryHeader) + kMaxPayloadBytes> binary;
  const bool decoded = is_taut(record.domain) && (end || event_type == store::kNvtxMark);
  if (record.payload == Payload::extended && !decoded) {
    const BinaryHeader header = binary_header(event.domain_id, record.value, record.full_bytes);
    std::memcpy(binary.data(), header.data(), header.size());
    std::memcpy(binary.data() + header.size(), payload, record.payload_bytes);
    event.binary = {reinterpret_cast<const char*>(binary.data()), header.size() + record.payload_bytes};
  }
  ++trace_.nvtx_rows;
  return trace_.writer.insert_nvtx(event);
}

void ProcessTrace::close(const Range& range, int event_type, std::optional<End> end) {
  const int64_t event = write_event(range.record, range.bytes.data(), event_type, range.tid, end);
  if (end && range.record.payload == Payload::extended && is_taut(range.record.domain))
    store_range(range, event, since_start(range.record.time_ns), since_start(end->time_ns));
}

void ProcessTrace::store_range(const Range& range, int64_t event, int64_t start, int64_t end) {
  const uint64_t schema = range.record.value;
  const auto bytes = bytes_of(range.record, range.bytes.data());
  store::Writer& writer = trace_.writer;
  switch (static_cast<SchemaId>(schema)) {
    case SchemaId::step:
      if (const auto step = decode<annotate::Step>(schema, bytes))
        store_step(writer, start, end, *step, range.step_result);
      break;
    case SchemaId::microbatch:
      if (const auto microbatch = decode<annotate::Microbatch>(schema, bytes))
        store_microbatch(writer, event, *microbatch);
      break;
    case SchemaId::collective:
      if (const auto c = decode<annotate::Collective>(schema, bytes)) {
        const int64_t row = store_collective(writer, event, *c);
        const CollectiveKey key{c->group_id, c->seq, static_cast<int32_t>(c->op), c->peer};
        if (const auto wait = early_waits_.find(key); wait != early_waits_.end()) {
          writer.set_collective_wait(row, wait->second.start, wait->second.end);
          early_waits_.erase(wait);
        } else {
          bound(unwaited_);
          unwaited_[key] = row;
        }
      }
      break;
    case SchemaId::collective_wait:
      if (const auto wait = decode<annotate::CollectiveWait>(schema, bytes)) store_wait(*wait, start, end);
      break;
    case SchemaId::batch_wait:
      if (const auto wait = decode<annotate::BatchWait>(schema, bytes))
        store_batch(writer, event, start, end, *wait, range.batch_result);
      break;
    case SchemaId::loader_work:
      if (const auto work = decode<annotate::LoaderWork>(schema, bytes)) store_loader_work(writer, event, *work);
      break;
    default:
      break;  // a checkpoint has its NVTX row alone
  }
}

void ProcessTrace::store_wait(const annotate::CollectiveWait& wait, int64_t start, int64_t end) {
  const CollectiveKey key{wait.group_id, wait.seq, static_cast<int32_t>(wait.op), wait.peer};
  if (const auto row = unwaited_.find(key); row != unwaited_.end()) {
    trace_.writer.set_collective_wait(row->second, start, end);
    unwaited_.erase(row);
    return;
  }
  bound(early_waits_);
  const auto [at, added] = early_waits_.try_emplace(key, Wait{start, end});
  if (!added) at->second.end = std::max(at->second.end, end);  // waited for twice
}

void ProcessTrace::attach_result(Lane& lane, const Record& record, const unsigned char* payload) {
  const auto bytes = bytes_of(record, payload);
  const bool is_step = static_cast<SchemaId>(record.value) == SchemaId::step_result;
  const auto wanted = static_cast<uint64_t>(is_step ? SchemaId::step : SchemaId::batch_wait);
  std::vector<Range>& open = stack(lane, record.domain % kMaxDomains);
  for (auto range = open.rbegin(); range != open.rend(); ++range) {
    if (range->record.payload != Payload::extended || range->record.value != wanted) continue;
    if (is_step)
      range->step_result = decode<annotate::StepResult>(record.value, bytes);
    else
      range->batch_result = decode<annotate::BatchResult>(record.value, bytes);
    return;
  }
}

void ProcessTrace::mark(Lane& lane, const Record& record, const unsigned char* payload) {
  const int64_t event = write_event(record, payload, store::kNvtxMark, lane.tid, std::nullopt);
  if (record.payload != Payload::extended || !is_taut(record.domain)) return;
  const auto bytes = bytes_of(record, payload);
  switch (static_cast<SchemaId>(record.value)) {
    case SchemaId::rank:
      if (const auto rank = decode<annotate::Rank>(record.value, bytes)) store_rank(trace_.writer, global_pid_, *rank);
      break;
    case SchemaId::group:
      if (const auto group = decode<annotate::Group>(record.value, bytes);
          group && trace_.groups.insert(group->group_id).second)
        trace_.writer.insert(TableId::TAUT_GROUP, {group->group_id, ring_.name(record.name), group->size});
      break;
    case SchemaId::step_result:
    case SchemaId::batch_result:
      attach_result(lane, record, payload);
      break;
    case SchemaId::tensor_use:
      if (const auto use = decode<annotate::TensorUse>(record.value, bytes))
        store_tensor_use(trace_.writer, event, *use);
      break;
    case SchemaId::expert_load:
      if (const auto load = decode<annotate::ExpertLoad>(record.value, bytes))
        store_expert(trace_.writer, event, *load);
      break;
    case SchemaId::memory:
      if (const auto memory = decode<annotate::Memory>(record.value, bytes))
        store_memory(trace_.writer, global_pid_, since_start(record.time_ns), *memory);
      break;
    default:
      break;
  }
}

int64_t ProcessTrace::finish() {
  for (Lane& lane : lanes_)
    for (std::vector<Range>& open : lane.open) {
      for (const Range& range : open) close(range, store::kNvtxPushPop, std::nullopt);
      open.clear();
    }
  for (const auto& [id, range] : started_) close(range, store::kNvtxStartEnd, std::nullopt);
  started_.clear();
  for (const auto& [tid, name] : thread_names_)
    trace_.writer.insert(TableId::ThreadNames, {trace_.writer.string_id(name), nullptr, global_tid(tid)});
  int64_t lost = 0;
  const auto loss = [&](const std::string& what, uint64_t dropped) {
    if (dropped == 0) return;
    lost += static_cast<int64_t>(dropped);
    trace_.writer.insert(TableId::TAUT_LOSS, {global_pid_, what, dropped});
  };
  for (size_t i = 0; i < ring_.lane_count(); ++i) loss("thread " + std::to_string(lane(i).tid), ring_.dropped(i));
  loss("threads without a ring", ring_.dropped_without_lane());
  loss("names", ring_.lost_names());
  return lost;
}

}  // namespace taut::collect
