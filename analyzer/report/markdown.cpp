// The report as GitHub-flavoured Markdown, for pull requests and wikis.
#include "analyzer/report/escape.h"
#include "analyzer/report/report.h"
#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"

namespace taut::report {
namespace {

constexpr size_t kEvidenceShown = 10;

std::string finding_markdown(const analyzer::Analysis& analysis, const Context& context,
                             const detect::Finding& finding) {
  std::string out = "### " + escape_markdown(finding.title) + " (" + detect::severity_name(finding.severity) + ")\n\n";
  out += "`" + printable(finding.id) + "` " + escape_markdown(cost_sentence(finding)) + ".\n\n";
  if (!finding.explanation.empty()) out += escape_markdown(finding.explanation) + "\n\n";
  if (!finding.evidence.empty()) out += "Evidence:\n\n";
  for (size_t i = 0; i < finding.evidence.size() && i < kEvidenceShown; ++i) {
    out += "- " + escape_markdown(evidence_sentence(finding.evidence[i])) + "\n";
  }
  if (finding.evidence.size() > kEvidenceShown) {
    out += "- and " + std::to_string(finding.evidence.size() - kEvidenceShown) + " more\n";
  }
  if (!finding.evidence.empty()) out += "\n";
  for (size_t i = 0; i < finding.suggestions.size(); ++i) {
    const auto& suggestion = finding.suggestions[i];
    const auto diff = config_diff(context.config, suggestion.patch);
    out += std::string(i == 0 ? "**Do:** " : "**Or:** ") + escape_markdown(suggestion.why) + "\n\n";
    if (!diff.empty()) {
      out += "```diff\n";
      for (const auto& line : diff) out += std::string(1, line.sign) + " " + line.text + "\n";
      out += "```\n\n";
    }
    if (suggestion.predicted.step_ms > 0) out += escape_markdown(prediction_sentence(suggestion.predicted)) + ".\n\n";
    if (!suggestion.risk.empty()) out += "Risk: " + escape_markdown(suggestion.risk) + "\n\n";
    if (!diff.empty()) out += "    " + apply_command(analysis.trace.path, suggestion) + "\n\n";
  }
  return out;
}

}  // namespace

std::string markdown(const analyzer::Analysis& analysis, const Context& context) {
  std::string out = "# " + escape_markdown(analysis.trace.path) + "\n\n" + scope_sentence(analysis, context) + ".\n\n";
  if (has_breakdown(analysis)) {
    out += "## Summary\n\n" + table_markdown(summary_table(analysis.summary));
    out += "\n## " + breakdown_title(analysis) + "\n\n" + table_markdown(breakdown_table(analysis.ranks)) + "\n";
    const std::string path = critical_path_sentence(analysis.critical_path);
    if (!path.empty()) out += "Critical path: " + path + ".\n\n";
  }
  out += "## Findings\n\n";
  if (analysis.findings.empty()) out += "None.\n\n";
  for (const auto& finding : analysis.findings) out += finding_markdown(analysis, context, finding);
  const auto notes = caveats(analysis);
  if (!notes.empty()) out += "## How far to trust this\n\n";
  for (const auto& note : notes) out += "- " + escape_markdown(note) + "\n";
  return out;
}

}  // namespace taut::report
