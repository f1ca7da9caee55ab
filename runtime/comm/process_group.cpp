#include "runtime/comm/process_group.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#ifdef USE_C10D_NCCL
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
// ATen/cuda/CUDAContext.h would want the headers of every CUDA library; this is all that is needed of it.
namespace at::cuda {
TORCH_CUDA_CPP_API cudaDeviceProp* getDeviceProperties(c10::DeviceIndex device);
}
#endif

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/comm/group_impl.h"
#include "taut.h"

namespace taut::comm {
namespace {

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(std::max(1.0, seconds * 1000)));
}

int read_integer(const char* name, int fallback, int lowest, int highest) {
  const char* text = std::getenv(name);
  if (!text || !*text) return fallback;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, failure] = std::from_chars(text, end, value);
  if (failure != std::errc{} || stop != end || value < lowest || value > highest) {
    throw Error(std::string(name) + " is '" + text + "'", "it must be an integer from " + std::to_string(lowest) +
                                                              " to " + std::to_string(highest) +
                                                              "; `taut train` and torchrun set it");
  }
  return value;
}

c10::intrusive_ptr<c10d::Backend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               double timeout_s, bool loopback) {
  auto options = c10d::ProcessGroupGloo::Options::create(milliseconds(timeout_s));
  // One thread: several reductions in flight are slower than one after another, and completion order stays issue order.
  options->threads = 1;
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface && *interface) {
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
  } else if (loopback) {
    // The machine's own name may resolve to an address that nothing listens on; one node needs only the loopback.
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice());
  }
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

c10::intrusive_ptr<c10d::Backend> connect_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               double timeout_s) {
#ifdef USE_C10D_NCCL
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = milliseconds(timeout_s);
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
#else
  (void)store, (void)rank, (void)size, (void)timeout_s;
  throw Error("this build has no NCCL", "configure it where the NCCL headers are (the torch wheel brings them)");
#endif
}

/// Only these groups send messages: stages to their neighbours, the last to the first among them; context-parallel
/// ranks each to all others.
bool sends_messages(Axis axis) {
  return axis == Axis::pp || axis == Axis::cp;
}

/// NCCL connects a group at its first operation, two ranks at their first message, and blocks until all of them are
/// there. Messages are issued in orders that differ from rank to rank; so everybody connects here, in one order.
void greet(Group& group, Axis axis, at::Device device) {
  std::vector<at::Tensor> word{at::zeros({1}, at::TensorOptions().device(device))};
  group.impl().backend->allreduce(word)->wait();
  if (!sends_messages(axis)) return;
  for (int lower = 0; lower < group.size(); ++lower) {
    for (int upper = lower + 1; upper < group.size(); ++upper) {
      if (group.rank() != lower && group.rank() != upper) continue;
      const bool neighbours = upper - lower == 1 || upper - lower == group.size() - 1;
      if (axis == Axis::pp && !neighbours) continue;
      for (const auto& [from, to] : {std::pair(lower, upper), std::pair(upper, lower)}) {
        c10d::Backend& backend = group.impl().backend_for_message(from, to);
        (group.rank() == from ? backend.send(word, to, 0) : backend.recv(word, from, 0))->wait();
      }
    }
  }
}

/// The GPU's number in the world; ordinals are a process's own (CUDA_VISIBLE_DEVICES).
std::string device_name(at::Device device) {
#ifdef USE_C10D_NCCL
  const auto& uuid = at::cuda::getDeviceProperties(device.index())->uuid.bytes;
  std::string name;
  for (const char byte : uuid) name += std::to_string(static_cast<unsigned char>(byte)) + ".";
  return name;
#else
  return device.str();
#endif
}

}  // namespace

struct Rendezvous::Impl {
  explicit Impl(c10::intrusive_ptr<c10d::Store> connected) : store(std::move(connected)) {}

  /// One for all groups of a rank: several ranks share this object only where they are threads of one process.
  std::shared_ptr<RollCall> roll_call_of(int rank, double timeout_s) {
    std::lock_guard lock(mutex);
    std::weak_ptr<RollCall>& slot = roll_calls[rank];
    auto roll_call = slot.lock();
    if (!roll_call) slot = roll_call = std::make_shared<RollCall>(store, rank, timeout_s);
    return roll_call;
  }

  const c10::intrusive_ptr<c10d::Store> store;
  std::mutex mutex;
  std::map<int, std::weak_ptr<RollCall>> roll_calls;
};

LaunchEnvironment read_launch_environment() {
  constexpr int kMostRanks = 1 << 20;
  LaunchEnvironment e;
  e.world_size = read_integer("WORLD_SIZE", 1, 1, kMostRanks);
  e.rank = read_integer("RANK", 0, 0, e.world_size - 1);
  e.local_world_size = read_integer("LOCAL_WORLD_SIZE", e.world_size, 1, e.world_size);
  e.local_rank = read_integer("LOCAL_RANK", e.rank % e.local_world_size, 0, e.local_world_size - 1);
  e.master_port = read_integer("MASTER_PORT", e.master_port, 1, 65535);
  e.restart_count = read_integer("TORCHELASTIC_RESTART_COUNT", 0, 0, kMostRanks);
  if (const char* address = std::getenv("MASTER_ADDR"); address && *address) e.master_addr = address;
  if (const char* agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE")) e.agent_store = std::string(agent) == "True";
  return e;
}

namespace {

/// c10d's flight recorder keeps a stack for every operation, and nothing here reads them. It also inserts into a map
/// before it takes its lock, which crashes a process whose threads are ranks. It reads its variable once, at the first
/// operation; a user's own setting stays.
void turn_off_flight_recorder() {
  setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0);
}

}  // namespace

Rendezvous Rendezvous::tcp(const LaunchEnvironment& e, double timeout_s) {
  turn_off_flight_recorder();
  c10d::TCPStoreOptions options;
  options.port = static_cast<std::uint16_t>(e.master_port);
  options.isServer = e.rank == 0 && !e.agent_store;
  options.numWorkers = e.world_size;
  options.waitWorkers = false;
  options.timeout = milliseconds(timeout_s);
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(e.master_addr, options);
    auto prefixed = c10::make_intrusive<c10d::PrefixStore>("taut/" + std::to_string(e.restart_count), store);
    return Rendezvous(std::make_shared<Impl>(prefixed));
  } catch (const std::exception& failure) {
    const std::string where = e.master_addr + ":" + std::to_string(e.master_port);
    const std::string why = failure.what();
    throw Error("rank " + std::to_string(e.rank) + " cannot " + (options.isServer ? "serve" : "reach") +
                    " the rendezvous at " + where + ": " + why.substr(0, std::min<size_t>(why.find('\n'), 300)),
                options.isServer ? "is MASTER_PORT taken? choose a free one"
                                 : "is rank 0 running, and can this machine reach MASTER_ADDR?");
  }
}

Rendezvous Rendezvous::in_process() {
  turn_off_flight_recorder();
  return Rendezvous(std::make_shared<Impl>(c10::make_intrusive<c10d::HashStore>()));
}

int count_devices(const Rendezvous& store, int ranks, const std::string& device) {
  c10d::Store& keys = *store.impl()->store;
  if (keys.add("devices/" + device, 1) > 1) keys.add("devices/shared", 1);  // somebody was here before
  if (keys.add("devices/ranks", 1) == ranks) keys.set("devices/counted", std::vector<uint8_t>{1});
  try {
    keys.wait({"devices/counted"});
  } catch (const std::exception&) {
    throw Error(std::to_string(keys.add("devices/ranks", 0)) + " of " + std::to_string(ranks) + " ranks have come",
                "another rank failed to start, or WORLD_SIZE is not the same everywhere");
  }
  return ranks - static_cast<int>(keys.add("devices/shared", 0));
}

Group::Group(const GroupSpec& spec, int global_rank) : spec_(spec), impl_(std::make_unique<GroupImpl>()) {
  const auto self = std::find(spec_.ranks.begin(), spec_.ranks.end(), global_rank);
  if (self == spec_.ranks.end()) {
    throw Error("rank " + std::to_string(global_rank) + " is no member of group " + spec_.name);
  }
  rank_ = static_cast<int>(self - spec_.ranks.begin());
  impl_->dry = true;
}

Group::Group(const Rendezvous& store, const GroupSpec& spec, int global_rank, double timeout_s, bool loopback,
             at::Device device, EmulatedLink& link, bool check, BackendKind kind)
    : Group(spec, global_rank) {
  impl_->dry = false;
  impl_->link = &link;
  impl_->device = device;
  impl_->cuda = kind == BackendKind::nccl;
  impl_->staged = kind == BackendKind::gloo_staged;
  impl_->check_always = check;
  impl_->timeout_s = timeout_s;
  if (size() == 1) return;
  const auto own = c10::make_intrusive<c10d::PrefixStore>(spec_.name, store.impl()->store);
  const auto key_of = [](int rank) { return "member" + std::to_string(rank); };
  try {
    own->set(key_of(global_rank), std::vector<uint8_t>{1});
    connect(store, timeout_s, loopback, device, kind);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    std::string absent;
    try {
      for (const int rank : spec_.ranks) {
        if (!own->check({key_of(rank)})) absent += (absent.empty() ? "" : ", ") + std::to_string(rank);
      }
    } catch (const std::exception&) {
      absent = "0 (it serves the rendezvous)";
    }
    const std::string why = failure.what();
    throw Error("rank " + std::to_string(global_rank) + " cannot connect group " + spec_.name + ": " +
                    (absent.empty() ? "" : "rank " + absent + " has not come; ") +
                    why.substr(0, std::min<size_t>(why.find('\n'), 300)),
                "another rank failed to start, or started with another configuration");
  }
  impl_->roll_call = store.impl()->roll_call_of(global_rank, timeout_s);
  impl_->progress = &impl_->roll_call->add(spec_.name, spec_.ranks);
}

void Group::connect(const Rendezvous& store, double timeout_s, bool loopback, at::Device device, BackendKind kind) {
  const auto part = [&](const char* suffix) {
    return c10::make_intrusive<c10d::PrefixStore>(spec_.name + suffix, store.impl()->store);
  };
  impl_->check_backend = connect_gloo(part("/check"), rank_, size(), timeout_s, loopback);
  if (kind != BackendKind::nccl) {
    impl_->backend = connect_gloo(part(""), rank_, size(), timeout_s, loopback);
    return;
  }
  impl_->backend = connect_nccl(part(""), rank_, size(), timeout_s);
  if (sends_messages(spec_.axis)) {
    impl_->backward_backend = connect_nccl(part("/backward"), rank_, size(), timeout_s);
  }
  greet(*this, spec_.axis, device);
}

Group::~Group() = default;

Communicator::Communicator(const LaunchEnvironment& e, const MeshSize& size, const config::Communication& settings,
                           at::Device device)
    : size_(size),
      at_(coordinates_of(size, e.rank)),
      rank_(e.rank),
      link_(std::make_unique<EmulatedLink>(settings.emulated_link)) {
  static const annotate::Name rank_name(annotate::Rank::kName);
  annotate::mark(rank_name, annotate::Rank{e.rank, e.world_size, e.node(), at_.dp, at_.tp, at_.pp, at_.cp, at_.ep,
                                           device.is_cuda() ? static_cast<int32_t>(device.index()) : -1, 0});
  const auto store = size.world() > 1 ? Rendezvous::tcp(e, settings.timeout_s) : Rendezvous::in_process();
  BackendKind kind = BackendKind::gloo;
  std::string how = "communication by Gloo";
  if (device.is_cuda()) {
    const int devices = count_devices(store, size.world(), device_name(device));
    kind = devices == size.world() ? BackendKind::nccl : BackendKind::gloo_staged;
    how = kind == BackendKind::nccl ? "communication by NCCL"
                                    : std::to_string(size.world()) + " ranks share " + std::to_string(devices) +
                                          (devices == 1 ? " GPU" : " GPUs") +
                                          ": communication is staged through the host by Gloo; not a setting for speed";
    if (kind == BackendKind::gloo_staged && e.rank == 0) std::fprintf(stderr, "note: %s\n", how.c_str());
  }
  const annotate::Name how_name(how.c_str());
  const annotate::Range connecting(how_name);
  for (const GroupSpec& spec : groups_of(size, e.rank)) {
    auto group = std::make_unique<Group>(store, spec, e.rank, settings.timeout_s, e.single_node(), device, *link_,
                                         settings.check, kind);
    if (group->size() > 1 || spec.axis == Axis::world) {
      const annotate::Name name(spec.name.c_str());
      annotate::mark(name, annotate::Group{group->id(), group->size(), group->rank()});
    }
    groups_[spec.axis] = std::move(group);
  }
}

Communicator::Communicator(const MeshSize& size, int rank) : size_(size), at_(coordinates_of(size, rank)), rank_(rank) {
  for (const GroupSpec& spec : groups_of(size, rank)) groups_[spec.axis] = std::make_unique<Group>(spec, rank);
}

Communicator Communicator::dry(const MeshSize& size, int rank) {
  return Communicator(size, rank);
}

Communicator::~Communicator() {
  // The checks may still submit to the link, and the link may still issue operations on the groups.
  for (auto& [axis, group] : groups_) group->impl().check_backend.reset();
  link_.reset();
}

Group* Communicator::embedding() {
  const auto found = groups_.find(Axis::embedding);
  return found == groups_.end() ? nullptr : found->second.get();
}

}  // namespace taut::comm
