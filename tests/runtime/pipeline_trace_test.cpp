// What a traced run says it did is what its schedule says it does.
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "runtime/config/names.h"
#include "runtime/parallel/schedule.h"
#include "tests/runtime/rank_spawner.h"

namespace taut::testing {
namespace {

namespace fs = std::filesystem;
using config::PipelineSchedule;
using nlohmann::json;
using parallel::ActionKind;

constexpr int kSteps = 2, kMicrobatches = 4;

std::string pass_text(char pass, int64_t microbatch, int64_t chunk) {
  return std::string(1, pass) + std::to_string(microbatch) + "." + std::to_string(chunk) + " ";
}

/// The passes of each rank and step in the order in which they started.
std::map<std::pair<int64_t, int64_t>, std::string> measured_passes(const fs::path& trace) {
  sqlite3* opened = nullptr;
  EXPECT_EQ(sqlite3_open_v2(trace.c_str(), &opened, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  const std::unique_ptr<sqlite3, int (*)(sqlite3*)> database(opened, sqlite3_close);
  sqlite3_stmt* prepared = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(opened,
                               "SELECT m.rank, m.step, m.microbatch, m.chunk, m.pass, m.stage FROM TAUT_MICROBATCH m "
                               "JOIN NVTX_EVENTS e ON e.rowid = m.eventId ORDER BY e.start",
                               -1, &prepared, nullptr),
            SQLITE_OK)
      << sqlite3_errmsg(opened);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, sqlite3_finalize);
  std::map<std::pair<int64_t, int64_t>, std::string> passes;
  while (prepared && sqlite3_step(prepared) == SQLITE_ROW) {
    const auto number = [&](int column) { return sqlite3_column_int64(prepared, column); };
    const char* pass = reinterpret_cast<const char*>(sqlite3_column_text(prepared, 4));
    EXPECT_EQ(number(5), number(0)) << "with pp alone a rank is its stage";
    passes[{number(0), number(1)}] += pass_text(pass ? *pass : '?', number(2), number(3));
  }
  return passes;
}

std::string planned_passes(const std::vector<parallel::Action>& program) {
  std::string passes;
  for (const parallel::Action& action : program) {
    if (!is_pass(action.kind)) continue;
    const char letter = action.kind == ActionKind::forward ? 'F' : action.kind == ActionKind::backward ? 'B' : 'W';
    passes += pass_text(letter, action.microbatch, action.chunk);
  }
  return passes;
}

TEST(PipelineTrace, ShowsThePassesInTheOrderOfTheSchedule) {
  for (const auto& [kind, chunks] : {std::pair(PipelineSchedule::gpipe, 1),
                                     {PipelineSchedule::one_f_one_b, 1},
                                     {PipelineSchedule::interleaved_1f1b, 2},
                                     {PipelineSchedule::zero_bubble, 1}}) {
    const ScratchFolder folder;
    const fs::path config = write_config(folder.path(), {{"model", {{"num_layers", 4}}},
                                                         {"train_steps", kSteps},
                                                         {"scheduler", nullptr},
                                                         {"parallel",
                                                          {{"pipeline_parallel_size", 2},
                                                           {"pipeline_schedule", config::name(kind)},
                                                           {"virtual_pipeline_stages", chunks}}}});
    const fs::path trace = folder.path() / "run.db", log = folder.path() / "log";
    const std::string command = "'" TAUT_BIN_DIR "/taut' train '" + config.string() + "' --nproc 2 --trace '" +
                                trace.string() + "' >'" + log.string() + "' 2>&1 </dev/null";
    const int status = std::system(command.c_str());
    std::ifstream said(log);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << std::string(std::istreambuf_iterator<char>(said), {});
    const auto passes = measured_passes(trace);
    const parallel::Schedule schedule = parallel::make_schedule(kind, 2, kMicrobatches, chunks);
    ASSERT_EQ(passes.size(), 2u * kSteps) << config::name(kind);
    for (const auto& [rank_and_step, order] : passes) {
      EXPECT_EQ(order, planned_passes(schedule.programs[static_cast<size_t>(rank_and_step.first)]))
          << config::name(kind) << ", rank " << rank_and_step.first << ", step " << rank_and_step.second;
    }
  }
}

}  // namespace
}  // namespace taut::testing
