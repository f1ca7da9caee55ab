// The report on a terminal.
#include <sstream>

#include "analyzer/report/escape.h"
#include "analyzer/report/report.h"
#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"

namespace taut::report {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kEvidenceShown = 5;

/// Colours as SGR codes; "" when the text goes to a file.
struct Paint {
  bool on = false;
  std::string operator()(const char* code, const std::string& text) const {
    return on ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
  }
};

const char* severity_color(detect::Severity severity) {
  switch (severity) {
    case detect::Severity::high:
      return "1;31";
    case detect::Severity::medium:
      return "1;33";
    case detect::Severity::low:
      break;
  }
  return "1";
}

/// Words of `text` in lines of kWidth, each begun with `indent`, the first with `first`.
std::string wrapped(const std::string& text, const std::string& first, const std::string& indent) {
  std::istringstream words(printable(text));
  std::string out, line = first, word;
  bool empty_line = true;
  while (words >> word) {
    if (!empty_line && display_width(line) + 1 + display_width(word) > kWidth) {
      out += line + "\n";
      line = indent;
      empty_line = true;
    }
    line += (empty_line ? "" : " ") + word;
    empty_line = false;
  }
  return out + line + "\n";
}

std::string suggestion_text(const analyzer::Analysis& analysis, const Context& context, const Paint& paint,
                            const detect::Suggestion& suggestion, bool first) {
  const std::string indent = "     ";
  const auto diff = config_diff(context.config, suggestion.patch);
  std::string out = wrapped(std::string(first ? "Do: " : "Or: ") + suggestion.why, "   ", indent);
  for (const auto& line : diff) {
    out += indent + paint(line.sign == '+' ? "32" : "31", std::string(1, line.sign) + " " + line.text) + "\n";
  }
  if (suggestion.predicted.step_ms > 0) out += wrapped(prediction_sentence(suggestion.predicted), indent, indent);
  if (!suggestion.risk.empty()) out += wrapped("risk: " + suggestion.risk, indent, indent + "  ");
  if (!diff.empty()) out += indent + apply_command(analysis.trace.path, suggestion) + "\n";
  return out;
}

std::string finding_text(const analyzer::Analysis& analysis, const Context& context, const Paint& paint,
                         const detect::Finding& finding, size_t number) {
  std::string out = std::to_string(number) + ". " +
                    paint(severity_color(finding.severity), std::string("[") + detect::severity_name(finding.severity) +
                                                                "] " + printable(finding.title)) +
                    "  " + printable(finding.id) + "\n";
  out += wrapped(cost_sentence(finding), "   ", "   ");
  if (!finding.explanation.empty()) out += wrapped(finding.explanation, "   ", "   ");
  if (!finding.evidence.empty()) out += "   Evidence:\n";
  for (size_t i = 0; i < finding.evidence.size() && i < kEvidenceShown; ++i) {
    out += wrapped(evidence_sentence(finding.evidence[i]), "     ", "       ");
  }
  if (finding.evidence.size() > kEvidenceShown) {
    out +=
        "     and " + std::to_string(finding.evidence.size() - kEvidenceShown) + " more (--format json lists them)\n";
  }
  for (size_t i = 0; i < finding.suggestions.size(); ++i) {
    out += suggestion_text(analysis, context, paint, finding.suggestions[i], i == 0);
  }
  return out;
}

}  // namespace

std::string text(const analyzer::Analysis& analysis, const Context& context) {
  const Paint paint{context.color};
  std::string out = paint("1", printable(analysis.trace.path)) + ": " + scope_sentence(analysis, context) + "\n\n";
  if (has_breakdown(analysis)) {
    for (const auto& row : summary_table(analysis.summary).rows) {
      const size_t width = display_width(row[0]);
      out += "  " + row[0] + std::string(width < 38 ? 38 - width : 1, ' ') + row[1] + "\n";
    }
    out += "\n" + paint("1", breakdown_title(analysis)) + " (shares that add up to 100 % on each rank)\n";
    out += table_text(breakdown_table(analysis.ranks), {.indent = "  ", .max_cell_width = 40});
    const std::string path = critical_path_sentence(analysis.critical_path);
    if (!path.empty()) out += "\n" + wrapped("Critical path: " + path, "", "  ");
    out += "\n";
  }
  if (analysis.findings.empty()) {
    out += analysis.trace.steps > 0 ? "No findings: nothing here is worth changing.\n" : "No findings.\n";
  } else {
    out += paint("1", "Findings") + " (most costly first)\n";
    for (size_t i = 0; i < analysis.findings.size(); ++i) {
      out += "\n" + finding_text(analysis, context, paint, analysis.findings[i], i + 1);
    }
  }
  const auto notes = caveats(analysis);
  if (!notes.empty()) out += "\n" + paint("1", "How far to trust this") + "\n";
  for (const auto& note : notes) out += wrapped(note, "  - ", "    ");
  return out;
}

}  // namespace taut::report
