// One collector per node: finds the rings that traced processes write (tracer/collect/ring.h), drains them every few
// tens of milliseconds and writes the trace file (tracer/store). It is a thread of `taut train` / `taut trace`.
//
//   Collector collector({.path = "run.db", .meta = {{"config", effective_config}}});
//   collector.start();
//   spawn(children with every string of collector.environment() in their environment);
//   … wait for them; from time to time look at collector.error() …
//   Collector::Stats stats = collector.finish();
//
// Thread safety: start(), finish() and discard() are called by one thread; error() by any.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "taut.h"

namespace taut::collect {

class Collector {
 public:
  struct Options {
    std::string path;                                       // the trace file
    std::vector<std::pair<std::string, std::string>> meta;  // further TAUT_META rows: "config", "command", …
    std::optional<std::pair<int64_t, int64_t>> steps;       // record only steps [first, second); none = all
    int node = 0;                                           // this machine's number in the job
    double sample_hz = 0;                                   // memory and CPU samples per second and process; 0 = none
    std::chrono::milliseconds drain_every{50};
    std::string ring_folder;     // where rings live; "" = /dev/shm if it has room, else TMPDIR
    std::string inject_library;  // "" = libtaut_inject.so beside this program
  };
  struct Stats {
    int64_t events = 0;   // records taken from the rings
    int64_t rows = 0;     // NVTX_EVENTS rows
    int64_t dropped = 0;  // events lost because a ring was full; also in TAUT_LOSS
    int64_t processes = 0;
    int64_t bytes = 0;  // size of the trace file
  };

  /// Creates the trace file and the folder for the rings; throws taut::Error when it cannot.
  explicit Collector(Options options);
  /// Without finish(), the trace is discarded.
  ~Collector();

  /// "NAME=VALUE" strings that switch tracing on in a child process.
  std::vector<std::string> environment() const;

  void start();
  /// Set once writing failed (disk full, …). Collecting has stopped and the incomplete file was removed.
  std::optional<Error> error() const;
  /// Takes what is left in the rings (of dead processes too), closes the trace and removes the rings. Throws the error
  /// that stopped collecting, if any.
  Stats finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace taut::collect
