// taut-loader: one data-loading worker. Started by a training rank with `--worker N` and the descriptors of job.h.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/data/worker.h"
#include "taut.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3 || std::string(argv[1]) != "--worker") {
      throw taut::Error("usage: taut-loader --worker N", "`taut train` starts it; it is of no use alone", 2);
    }
    return taut::data::run_worker(std::atoll(argv[2]));
  } catch (const taut::Error& error) {
    std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    return error.exit_code();
  }
}
