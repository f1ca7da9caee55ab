// Connecting ranks: rendezvous through a key-value store, then one c10d backend per group: Gloo on CPU, NCCL where
// every rank has a GPU of its own. Where ranks share a GPU, NCCL refuses: then the groups are Gloo's and every tensor
// is staged through a copy on the host, which is for trying a layout, not for speed. Above this folder nobody knows
// which backend it is; operations are in collectives.h.
//
// Each group is an NCCL communicator of its own, and c10d gives each communicator a stream of its own; the pairs of a
// group that sends messages (pp, cp) have one for each direction. Groups of different roles (tp, cp, dp_cp, ep, pp,
// embedding) are never one, even with the same members, so that a gradient reduction does not hold up a pipeline
// message behind it. Gloo, likewise: one thread per group.
//
// Each group has a second, small Gloo backend, over which members compare what they are about to call (fingerprint.h).
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/emulated_link.h"
#include "runtime/comm/mesh.h"

namespace taut::comm {

struct GroupImpl;

/// torchrun's variables. Defaults describe a run of one process.
struct LaunchEnvironment {
  int rank = 0, local_rank = 0, world_size = 1, local_world_size = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 29500;
  bool agent_store = false;  // torchrun's agent already serves the store (TORCHELASTIC_USE_AGENT_STORE)
  int restart_count = 0;     // TORCHELASTIC_RESTART_COUNT: keeps a restarted job's keys apart from the dead one's

  int node() const { return rank / local_world_size; }
  bool single_node() const { return local_world_size == world_size; }
};

/// Reads RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Throws taut::Error on a value
/// that is no number or out of range.
LaunchEnvironment read_launch_environment();

/// The store through which ranks find each other.
class Rendezvous {
 public:
  /// Connects to the store at MASTER_ADDR:MASTER_PORT; rank 0 serves it. Blocks until rank 0 is up.
  static Rendezvous tcp(const LaunchEnvironment& environment, double timeout_s);
  /// For ranks that are threads of one process (tests).
  static Rendezvous in_process();

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Rendezvous(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

/// How many different devices the `ranks` of a job have. `device` names this rank's, unlike any other in the world.
/// Collective: every rank must call it, once a job, and gets the same answer. Throws taut::Error when one does not come
/// in time.
int count_devices(const Rendezvous& store, int ranks, const std::string& device);

/// What runs a group's operations. gloo_staged: Gloo, on host copies of the tensors, wherever those are.
enum class BackendKind { gloo, nccl, gloo_staged };

/// One process group as seen from one member. Issue operations from one thread at a time; completion is asynchronous.
class Group {
 public:
  /// Connects the members of `spec`; every member must call it, groups in the same order everywhere. A group of one
  /// connects nothing. `link` must outlive the group. `check`: compare every operation with the other members before it
  /// runs, not only the first ones. Throws taut::Error that names the members that have not come within `timeout_s`.
  Group(const Rendezvous& store, const GroupSpec& spec, int global_rank, double timeout_s, bool loopback,
        at::Device device, EmulatedLink& link, bool check = false, BackendKind kind = BackendKind::gloo);
  /// A group whose operations do nothing and that connects nobody: to look at layouts of any size in one process.
  Group(const GroupSpec& spec, int global_rank);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& name() const { return spec_.name; }
  int64_t id() const { return spec_.id; }
  int size() const { return static_cast<int>(spec_.ranks.size()); }
  int rank() const { return rank_; }  // within the group
  int global_rank() const { return spec_.ranks[rank_]; }
  int global_rank_of(int member) const { return spec_.ranks[member]; }
  GroupImpl& impl() { return *impl_; }

 private:
  void connect(const Rendezvous& store, double timeout_s, bool loopback, at::Device device, BackendKind kind);
  GroupSpec spec_;
  int rank_ = 0;
  std::unique_ptr<GroupImpl> impl_;
};

/// All groups of this rank. Marks rank and groups in the trace when it is made.
class Communicator {
 public:
  Communicator(const LaunchEnvironment& environment, const MeshSize& size, const config::Communication& settings,
               at::Device device);
  ~Communicator();
  /// All groups of `rank` in a mesh of any size, in one process and without sockets: operations do nothing. For dry
  /// runs. O(world) memory, for the world group's list of ranks.
  static Communicator dry(const MeshSize& size, int rank);

  Group& world() { return group(Axis::world); }
  Group& tp() { return group(Axis::tp); }
  Group& cp() { return group(Axis::cp); }
  Group& dp() { return group(Axis::dp); }
  /// Where gradients of dense parameters are reduced and ZeRO shards them; the dp group when cp = 1.
  Group& dp_cp() { return group(Axis::dp_cp); }
  Group& ep() { return group(Axis::ep); }
  /// Where gradients of experts are reduced; the dp_cp group when ep = 1.
  Group& edp() { return group(Axis::edp); }
  Group& pp() { return group(Axis::pp); }
  /// First and last stage of this pipeline; null on the stages between and without a pipeline.
  Group* embedding();

  const MeshSize& size() const { return size_; }
  const Coordinates& at() const { return at_; }
  int rank() const { return rank_; }

 private:
  Communicator(const MeshSize& size, int rank);
  Group& group(Axis axis) { return *groups_.at(served_by(size_, axis)); }

  MeshSize size_;
  Coordinates at_;
  int rank_;
  std::unique_ptr<EmulatedLink> link_;
  std::map<Axis, std::unique_ptr<Group>> groups_;
};

}  // namespace taut::comm
