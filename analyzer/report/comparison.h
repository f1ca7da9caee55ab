// A Comparison as text for people and as JSON for scripts.
#pragma once

#include <string>

#include "analyzer/report/report.h"
#include "analyzer/tune/compare.h"

namespace taut::report {

/// The before/after table, the verdict with its interval, where the time went, losses, config changes, and the
/// predicted against the measured step time.
std::string comparison_text(const tune::Comparison& comparison, bool color);

/// {"a":{…},"b":{…},"speedup","ci":[lo,hi],"verdict","categories":[…],"losses_equal","max_loss_diff", …}; `ci` is of
/// the speed-up, times are ms.
Json comparison_json(const tune::Comparison& comparison);

}  // namespace taut::report
