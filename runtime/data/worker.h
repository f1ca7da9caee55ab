// The life of a `taut-loader` process.
#pragma once

#include <cstdint>

namespace taut::data {

/// Makes worker `number`'s batches from the inherited descriptors (job.h) until the last one is made and the trainer
/// hangs up. Returns the exit code; errors go to the trainer as last words. Throws taut::Error when the process was
/// not started by a trainer.
int run_worker(int64_t number);

}  // namespace taut::data
