// `taut stats FILE`: what took the time, by name, kind, lane or device.
#include "analyzer/report/operations.h"
#include "cli/command.h"
#include "cli/output.h"

namespace taut::cli {
namespace {

constexpr int64_t kRowsOnAScreen = 30;

struct StatsOptions {
  std::string file;
  std::string by = "name";
  report::SortBy sort = report::SortBy::self;
  std::optional<int64_t> limit;
  Format format = Format::text;
};

int run_stats(const StatsOptions& options, const Shell&) {
  const timeline::Timeline timeline = timeline::load(options.file);
  const bool as_json = options.format == Format::json;
  if (options.by == "device") {
    const auto devices = metrics::device_totals(timeline);
    print(as_json ? json_text(report::devices_json(devices)) : report::devices_text(devices));
    return kOk;
  }
  const auto by = options.by == "kind"   ? metrics::GroupBy::kind
                  : options.by == "lane" ? metrics::GroupBy::lane
                                         : metrics::GroupBy::name;
  const int64_t limit = options.limit.value_or(as_json ? 0 : kRowsOnAScreen);
  const auto operations = report::operations(timeline, by, options.sort, limit);
  print(as_json ? json_text(report::operations_json(operations, options.by))
                : report::operations_text(operations, options.by));
  return kOk;
}

}  // namespace

void add_stats(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<StatsOptions>();
  auto* command =
      add_command(app, shell, "stats", "What took the time, by name, kind, lane or device", options, run_stats);
  command->add_option("FILE", options->file, "Trace")->required();
  command->add_option("--by", options->by, "One row for each")
      ->check(CLI::IsMember({"name", "kind", "lane", "device"}))
      ->option_text("name|kind|lane|device [name]");
  const std::map<std::string, report::SortBy> orders{{"total", report::SortBy::total},
                                                     {"self", report::SortBy::self},
                                                     {"count", report::SortBy::count},
                                                     {"mean", report::SortBy::mean}};
  command->add_option("--sort", options->sort, "Largest first (devices are listed by number)")
      ->transform(CLI::CheckedTransformer(orders))
      ->option_text("total|self|count|mean [self]");
  command->add_option("--limit", options->limit, "Rows to show; 0 = all, the default with --format json")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N [30]");
  add_format(*command, options->format);
}

}  // namespace taut::cli
