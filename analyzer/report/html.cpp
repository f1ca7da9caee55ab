// The report as one page that a browser opens from disk: inline style and SVG, no script, nothing fetched.
#include <cstdio>

#include "analyzer/report/escape.h"
#include "analyzer/report/report.h"
#include "analyzer/report/units.h"
#include "analyzer/report/wording.h"
#include "taut.h"

namespace taut::report {
namespace {

constexpr size_t kEvidenceShown = 20;

const char* const kStyle = R"(
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#f3f5f7;--line:#d5dae0;--mute:#5b6672;--add:#12723a;--del:#b3261e}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--paper:#15181c;--soft:#1f242a;--line:#38414a;--mute:#9aa6b2;--add:#5fd08a;--del:#ff8a80}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem;overflow-wrap:anywhere}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid var(--line)}
h3{font-size:1rem;margin:0}.mute{color:var(--mute)}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:left}
th.n,td.n{text-align:right}tbody th{font-weight:600}.wide{overflow-x:auto}
section{background:var(--soft);border-left:4px solid var(--line);padding:.8rem 1rem;margin:1rem 0;overflow-wrap:anywhere}
section.high{border-color:#d9362b}section.medium{border-color:#d98a00}section.low{border-color:#5b8def}
pre{background:var(--paper);padding:.5rem .8rem;overflow-x:auto}.add{color:var(--add)}.del{color:var(--del)}
.legend span{display:inline-block;margin-right:1rem;white-space:nowrap}.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em}
svg{width:100%;height:auto;display:block}svg text{font:12px system-ui,sans-serif;fill:var(--ink)}
)";

const char* category_color(metrics::Category category) {
  switch (category) {
    case metrics::Category::compute:
      return "#2f9e62";
    case metrics::Category::exposed_communication:
      return "#e8743b";
    case metrics::Category::loader_stall:
      return "#d9362b";
    case metrics::Category::pipeline_bubble:
      return "#9a5bd0";
    case metrics::Category::copy:
      return "#e0b000";
    case metrics::Category::checkpoint:
      return "#2b7fc4";
    case metrics::Category::host:
      return "#7d8a97";
    case metrics::Category::idle:
      break;
  }
  return "#c3cad1";
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

/// One stacked bar a rank, as wide as the page, with a title per part.
std::string breakdown_bars(const std::vector<metrics::RankMetrics>& ranks) {
  constexpr double kLabel = 70, kBar = 900, kRow = 26;
  std::string out = "<svg viewBox=\"0 0 980 " + number(kRow * double(ranks.size()) + 4) +
                    "\" role=\"img\" aria-label=\"Breakdown of the step time of every rank\">\n";
  double y = 2;
  for (const auto& rank : ranks) {
    out += "<text x=\"0\" y=\"" + number(y + 15) + "\">rank " + std::to_string(rank.rank) + "</text>\n";
    double x = kLabel;
    for (const auto category : metrics::kAllCategories) {
      const double width = kBar * rank.breakdown[category];
      if (!(width > 0)) continue;
      out += "<rect x=\"" + number(x) + "\" y=\"" + number(y) + "\" width=\"" + number(width) +
             "\" height=\"20\" fill=\"" + category_color(category) + "\"><title>" +
             escape_html(category_title(category)) + " " + format_share(rank.breakdown[category]) + "</title></rect>\n";
      x += width;
    }
    y += kRow;
  }
  out += "</svg>\n<p class=\"legend\">";
  for (const auto category : metrics::kAllCategories) {
    out += std::string("<span><i style=\"background:") + category_color(category) + "\"></i>" +
           escape_html(category_title(category)) + "</span>";
  }
  return out + "</p>\n";
}

std::string paragraph(const std::string& text) {
  return text.empty() ? "" : "<p>" + escape_html(text) + "</p>\n";
}

std::string finding_html(const analyzer::Analysis& analysis, const Context& context, const detect::Finding& finding) {
  const char* const severity = detect::severity_name(finding.severity);
  std::string out = std::string("<section class=\"") + severity + "\">\n<h3>" + escape_html(finding.title) +
                    " <span class=\"mute\">" + severity + ", " + escape_html(finding.id) + "</span></h3>\n";
  out += paragraph(cost_sentence(finding)) + paragraph(finding.explanation);
  for (size_t i = 0; i < finding.suggestions.size(); ++i) {
    const auto& suggestion = finding.suggestions[i];
    const auto diff = config_diff(context.config, suggestion.patch);
    out +=
        std::string("<p><strong>") + (i == 0 ? "Do:" : "Or:") + "</strong> " + escape_html(suggestion.why) + "</p>\n";
    if (!diff.empty()) {
      out += "<pre>";
      for (const auto& line : diff) {
        out += std::string("<span class=\"") + (line.sign == '+' ? "add" : "del") + "\">" + line.sign + " " +
               escape_html(line.text) + "</span>\n";
      }
      out += "</pre>\n";
    }
    if (suggestion.predicted.step_ms > 0) out += paragraph(prediction_sentence(suggestion.predicted));
    if (!suggestion.risk.empty()) out += paragraph("Risk: " + suggestion.risk);
    if (!diff.empty()) out += "<pre>" + escape_html(apply_command(analysis.trace.path, suggestion)) + "</pre>\n";
  }
  if (!finding.evidence.empty()) out += "<details><summary>Evidence</summary>\n<ul>\n";
  for (size_t i = 0; i < finding.evidence.size() && i < kEvidenceShown; ++i) {
    out += "<li>" + escape_html(evidence_sentence(finding.evidence[i])) + "</li>\n";
  }
  if (finding.evidence.size() > kEvidenceShown) {
    out += "<li>and " + std::to_string(finding.evidence.size() - kEvidenceShown) + " more</li>\n";
  }
  if (!finding.evidence.empty()) out += "</ul>\n</details>\n";
  return out + "</section>\n";
}

}  // namespace

std::string html(const analyzer::Analysis& analysis, const Context& context) {
  const std::string title = escape_html(analysis.trace.path);
  // The policy lets a browser refuse whatever a hostile trace might have smuggled past the escaping.
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>" +
      title + " - Taut</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n<h1>" + title + "</h1>\n" +
      paragraph(scope_sentence(analysis, context));
  if (has_breakdown(analysis)) {
    out += "<h2>" + breakdown_title(analysis) + "</h2>\n" + breakdown_bars(analysis.ranks);
    out += "<div class=\"wide\">\n" + table_html(breakdown_table(analysis.ranks)) + "</div>\n";
    const std::string path = critical_path_sentence(analysis.critical_path);
    if (!path.empty()) out += paragraph("Critical path: " + path);
    out += "<h2>Summary</h2>\n" + table_html(summary_table(analysis.summary));
  }
  out += "<h2>Findings</h2>\n";
  if (analysis.findings.empty()) out += paragraph("None.");
  for (const auto& finding : analysis.findings) out += finding_html(analysis, context, finding);
  const auto notes = caveats(analysis);
  if (!notes.empty()) out += "<h2>How far to trust this</h2>\n<ul>\n";
  for (const auto& note : notes) out += "<li>" + escape_html(note) + "</li>\n";
  if (!notes.empty()) out += "</ul>\n";
  return out + "<p class=\"mute\">Taut " + kVersion + "</p>\n</body>\n</html>\n";
}

}  // namespace taut::report
