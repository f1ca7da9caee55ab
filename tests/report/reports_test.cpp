// The readable reports, fed with an analysis made by hand.
#include <gtest/gtest.h>

#include <sstream>

#include "analyzer/report/report.h"
#include "analyzer/report/wording.h"

namespace taut::report {
namespace {

const char* const kHostile = "<img src=x onerror=alert(1)>\x1b[2J|`'\"&";

/// Two ranks, half of each step lost to the loader, one finding with two alternatives.
analyzer::Analysis some_analysis(const std::string& strings) {
  analyzer::Analysis out;
  out.trace = {strings + "run.db", 2, 11, 1.2, 1234};
  out.quality.dropped_events = 7;
  out.quality.warnings = {strings + "a warning"};
  for (int32_t rank = 0; rank < 2; ++rank) {
    metrics::RankMetrics metrics;
    metrics.rank = metrics.dp = rank;
    metrics.steps = 11;
    metrics.step_ms_median = metrics.step_ms_p95 = 100;
    metrics.breakdown[metrics::Category::compute] = 0.45;
    metrics.breakdown[metrics::Category::loader_stall] = 0.55;
    out.ranks.push_back(metrics);
  }
  out.summary.step_ms = 100;
  out.summary.tokens_per_s = 81920;
  out.summary.loader_stall_share = 0.55;
  out.critical_path = {{metrics::Category::loader_stall, 0.55}, {metrics::Category::compute, 0.45}};
  detect::Finding finding;
  finding.id = "loader-stall#1";
  finding.rule = "loader-stall";
  finding.severity = detect::Severity::high;
  finding.title = strings + "ranks wait for data";
  finding.explanation = strings + "one process reads everything";
  finding.cost_ms_per_step = 51.2;
  finding.cost_share = 0.512;
  finding.ranks = {0, 1};
  finding.evidence = {{"TAUT_BATCH", 12, 1, 1'500'000'000, 1'550'000'000, strings + "waited"}};
  for (const int64_t workers : {4, 8}) {
    detect::Suggestion suggestion;
    suggestion.id = "loader-stall#1." + std::string(1, workers == 4 ? 'a' : 'b');
    suggestion.patch = {{"data", {{"num_workers", workers}, {"path", strings + "corpus"}}}};
    suggestion.why = strings + "more workers";
    suggestion.predicted = {52, 48, 60, 1.92};
    suggestion.risk = strings + "more memory";
    finding.suggestions.push_back(suggestion);
  }
  out.findings = {finding};
  return out;
}

Context some_context() {
  Context context;
  context.config = Json::parse(R"({"data":{"num_workers":0,"path":"corpus"}})");
  context.steps_in_trace = 12;
  return context;
}

TEST(TextReport, SaysWhatItCostsWhyAndWhatToDo) {
  const std::string out = text(some_analysis(""), some_context());
  for (const char* const words :
       {"11 of 12 steps analysed", "step time", "81,920", "[high] ranks wait for data",
        "costs 51.2 ms of every step (51.2 %)", "on ranks 0, 1", "one process reads everything",
        "rank 1 at 1.500000 s for 50.0 ms: waited (TAUT_BATCH row 12)", "- data.num_workers: 0",
        "+ data.num_workers: 4", "predicted step time 52.0 ms (48.0 ms to 60.0 ms), 1.92 times as fast",
        "risk: more memory", "Or: more workers", "+ data.num_workers: 8",
        "taut apply run.db --suggestion 'loader-stall#1.a'", "a warning", "Critical path: loader stall 55.0 %"}) {
    EXPECT_NE(out.find(words), std::string::npos) << words << " in:\n" << out;
  }
  EXPECT_EQ(out.find('\x1b'), std::string::npos) << "no colour unless asked for";
}

TEST(TextReport, UsesColourOnlyWhenAsked) {
  Context context = some_context();
  context.color = true;
  EXPECT_NE(text(some_analysis(""), context).find("\x1b[1;31m"), std::string::npos);
}

TEST(TextReport, KeepsTheTerminalSafeFromTheTrace) {
  EXPECT_EQ(text(some_analysis(kHostile), some_context()).find('\x1b'), std::string::npos);
}

TEST(TextReport, SaysSoWhenNothingIsWrong) {
  analyzer::Analysis analysis = some_analysis("");
  analysis.findings.clear();
  EXPECT_NE(text(analysis, some_context()).find("nothing here is worth changing"), std::string::npos);
}

TEST(TextReport, ShowsThePatchAloneWhenTheConfigIsUnknown) {
  Context context = some_context();
  context.config = nullptr;
  const std::string out = text(some_analysis(""), context);
  EXPECT_NE(out.find("+ data.num_workers: 4"), std::string::npos) << out;
  EXPECT_EQ(out.find("- data.num_workers"), std::string::npos);
}

/// The lines that Markdown interprets: all but fenced and indented code.
std::string outside_code(const std::string& markdown) {
  std::istringstream lines(markdown);
  std::string out, line;
  for (bool fenced = false; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0) fenced = !fenced;
    if (!fenced && line.rfind("    ", 0) != 0) out += line + "\n";
  }
  return out;
}

TEST(MarkdownReport, KeepsMarkupOfTheTraceOut) {
  const std::string out = outside_code(markdown(some_analysis(kHostile), some_context()));
  EXPECT_EQ(out.find("<img"), std::string::npos) << out;
  EXPECT_NE(out.find("How far to trust this"), std::string::npos) << "the fences are closed";
}

TEST(MarkdownReport, ShowsTheChangeAsADiff) {
  const std::string out = markdown(some_analysis(""), some_context());
  EXPECT_NE(out.find("```diff\n- data.num_workers: 0\n+ data.num_workers: 4\n"), std::string::npos) << out;
}

TEST(HtmlReport, EscapesEverythingFromTheTrace) {
  const std::string out = html(some_analysis(kHostile), some_context());
  EXPECT_EQ(out.find("<img"), std::string::npos);
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_NE(out.find("&lt;img src=x onerror=alert(1)&gt;"), std::string::npos);
}

TEST(HtmlReport, IsOnePageThatLoadsAndRunsNothing) {
  const std::string out = html(some_analysis(""), some_context());
  for (const char* const forbidden : {"<script", "http://", "https://", "<link", "url(", "@import"}) {
    EXPECT_EQ(out.find(forbidden), std::string::npos) << forbidden;
  }
  EXPECT_NE(out.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(out.find("<svg"), std::string::npos);
  EXPECT_NE(out.find("width=\"405.00\""), std::string::npos) << "45 % of a bar that is 900 wide";
}

TEST(ApplyCommand, QuotesAwkwardFileNames) {
  detect::Suggestion suggestion;
  suggestion.id = "x#1.a";
  EXPECT_EQ(apply_command("it's a run.db", suggestion),
            "taut apply 'it'\\''s a run.db' --suggestion 'x#1.a' --config IN.json -o OUT.json");
}

}  // namespace
}  // namespace taut::report
