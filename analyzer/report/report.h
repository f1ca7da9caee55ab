// An Analysis as something to read: plain text, JSON (the contract of docs and scripts), Markdown or one HTML file.
//
// Writers are pure functions from data to a string. Strings from the trace are untrusted; each writer escapes them for
// its medium (report/escape.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "analyzer/analyzer.h"

namespace taut::report {

/// Keys in the order in which they are documented.
using Json = nlohmann::ordered_json;

/// What a report says besides the analysis itself.
struct Context {
  Json config = nullptr;       // the run's effective config, for "before -> after"; null = unknown
  int64_t steps_in_trace = 0;  // distinct steps of the file, analysed or not
  bool color = false;          // text only
};

/// Takes the context from the trace that was analysed. A config that does not parse counts as unknown.
Context context_of(const timeline::Timeline& timeline);

/// For a person: what was wrong, what it costs, why, the evidence, what to change, the step time to expect.
std::string text(const analyzer::Analysis& analysis, const Context& context);

/// The fields of `taut analyze --format json`. Every number is finite; what is unknown is null.
Json json(const analyzer::Analysis& analysis);

/// The text report as Markdown.
std::string markdown(const analyzer::Analysis& analysis, const Context& context);

/// One self-contained page: inline style and SVG, no script, nothing loaded.
std::string html(const analyzer::Analysis& analysis, const Context& context);

/// A finite number, else null.
Json finite(double value);

}  // namespace taut::report
