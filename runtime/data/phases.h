// The loader's phases as NVTX ranges: one per phase and batch.
#pragma once

#include <cstdint>

#include "tracer/annotate/annotate.h"

namespace taut::data {

/// The ranges of the work on one batch. Each function opens its phase until the result goes out of scope.
struct PhaseMarks {
  int64_t batch = 0, rank = 0;
  int32_t worker = -1;  // -1 = inline
  int64_t samples = 0;

  annotate::Range read() const { return range<annotate::LoaderPhase::read>("read"); }
  annotate::Range tokenize() const { return range<annotate::LoaderPhase::tokenize>("tokenize"); }
  annotate::Range pack() const { return range<annotate::LoaderPhase::pack>("pack"); }
  annotate::Range hand_over() const { return range<annotate::LoaderPhase::hand_over>("hand_over"); }
  annotate::Range blocked() const { return range<annotate::LoaderPhase::blocked>("blocked"); }

 private:
  template <annotate::LoaderPhase kPhase>
  annotate::Range range(const char* text) const {
    static const annotate::Name name(text);
    return {name,
            annotate::LoaderWork{batch, static_cast<int32_t>(rank), worker, static_cast<int32_t>(samples), kPhase}};
  }
};

}  // namespace taut::data
