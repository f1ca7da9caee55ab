// Looks at a layout of any size in one process: builds the model parts of the ranks that differ, without memory (meta
// tensors) and without neighbours (groups that connect nobody), and holds every parameter against the model's closed
// forms. Nothing is computed and no other rank is started.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/comm/mesh.h"
#include "runtime/config/config.h"

namespace taut::train {

struct DryRank {
  int rank = 0;
  comm::Coordinates at;
  int64_t tensors = 0, parameters = 0;  // that it holds before ZeRO divides them
};

struct DryRun {
  std::vector<DryRank> ranks;  // of each pipeline stage the first and last tensor- and expert-parallel rank
  int64_t parameters = 0;      // of the model, added up from the stages' parts
  std::string schedule;        // a line per stage and a column per unit of time; empty without a pipeline
};

/// Of a validated config. Throws taut::Error that names rank and parameter when a shape, a name or a count is not what
/// the config says: that is a defect of Taut, found before any rank starts. Takes O(stages · layers · experts) time.
DryRun dry_run(const config::Config& config);

std::string dry_run_text(const DryRun& run);
/// {"ranks":[{"rank","pp","dp","cp","tp","ep","tensors","parameters"}],"parameters"}, one line.
std::string dry_run_json(const DryRun& run);

}  // namespace taut::train
