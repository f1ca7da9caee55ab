// Runs the speaker under a collector and reads the trace it leaves.
#pragma once

#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/tracer/scratch.h"
#include "tracer/collect/collector.h"
#include "tracer/store/reader.h"

extern char** environ;

namespace taut::test {

inline pid_t start_speaker(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                           const std::string& name = "tracer_speaker") {
  std::vector<std::string> all;
  for (char** variable = environ; *variable; ++variable) all.emplace_back(*variable);
  all.insert(all.end(), environment.begin(), environment.end());
  std::vector<char*> variables, words;
  for (std::string& text : all) variables.push_back(text.data());
  variables.push_back(nullptr);
  std::string program = TAUT_BIN_DIR "/" + name;
  words.push_back(program.data());
  std::vector<std::string> copies = arguments;
  for (std::string& text : copies) words.push_back(text.data());
  words.push_back(nullptr);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, program.c_str(), nullptr, nullptr, words.data(), variables.data());
  if (failed != 0) throw std::runtime_error("cannot start " + program);
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

struct TracedRun {
  Scratch scratch;
  std::string path = scratch / "run.db";
  std::vector<pid_t> pids;
  int status = 0;
  collect::Collector::Stats stats;
};

/// Runs the speaker once for each argument list, all at the same time. `drain` = false leaves everything to finish().
inline std::unique_ptr<TracedRun> trace(const std::vector<std::vector<std::string>>& runs,
                                        collect::Collector::Options options = {}, bool drain = true,
                                        const std::string& program = "tracer_speaker") {
  auto run = std::make_unique<TracedRun>();
  options.path = run->path;
  options.inject_library = TAUT_BIN_DIR "/libtaut_inject.so";
  collect::Collector collector(options);
  if (drain) collector.start();
  for (const auto& arguments : runs) run->pids.push_back(start_speaker(arguments, collector.environment(), program));
  for (const pid_t pid : run->pids) run->status = wait_for(pid);
  run->stats = collector.finish();
  return run;
}

/// A row of NVTX_EVENTS with its name and domain looked up.
struct NvtxRow {
  int64_t rowid, start, end, type, tid, end_tid, domain_id;
  bool has_end;
  std::string name, domain;
};

inline std::vector<NvtxRow> nvtx_rows(const store::Reader& reader) {
  const store::Strings strings = reader.strings();
  std::map<int64_t, std::string> domains;
  std::vector<NvtxRow> out;
  store::Rows rows = reader.rows(
      "NVTX_EVENTS", {"start", "end", "eventType", "globalTid", "endGlobalTid", "domainId", "textId", "text"});
  while (rows.next()) {
    NvtxRow row{rows.rowid(),
                rows.integer(0),
                rows.integer(1),
                rows.integer(2),
                rows.integer(3),
                rows.integer(4),
                rows.integer(5),
                !rows.is_null(1),
                "",
                ""};
    row.name =
        rows.is_null(7) ? std::string(rows.is_null(6) ? "" : strings[rows.integer(6)]) : std::string(rows.text(7));
    if (row.type == 75) domains[row.domain_id] = row.name;
    out.push_back(row);
  }
  for (NvtxRow& row : out) row.domain = domains[row.domain_id];
  return out;
}

inline std::vector<NvtxRow> named(const std::vector<NvtxRow>& rows, const std::string& name) {
  std::vector<NvtxRow> found;
  for (const NvtxRow& row : rows)
    if (row.name == name) found.push_back(row);
  return found;
}

/// The first cell of a query, as an integer.
inline int64_t number(const store::Reader& reader, const std::string& sql) {
  const store::QueryResult result = reader.query(sql);
  if (result.rows.empty()) throw std::runtime_error("no row: " + sql);
  return result.rows[0][0].integer;
}

}  // namespace taut::test
