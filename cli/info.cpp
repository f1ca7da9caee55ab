// `taut info FILE`: what is in a trace.
#include <chrono>
#include <thread>

#include "analyzer/report/inventory.h"
#include "analyzer/report/units.h"
#include "cli/command.h"
#include "cli/output.h"
#include "tracer/store/reader.h"

namespace taut::cli {
namespace {

struct InfoOptions {
  std::string file;
  bool follow = false;
  Format format = Format::text;
};

std::string progress_line(const report::Inventory& inventory, Format format) {
  if (format == Format::json) return report::inventory_json(inventory).dump() + "\n";
  return "steps " + report::format_count(inventory.steps) + ", events " + report::format_count(inventory.events) +
         ", lost " + report::format_count(inventory.dropped_events) + ", " +
         report::format_ms(inventory.duration_s * 1e3) + " traced\n";
}

/// Prints a line whenever the trace has grown, until its run has ended.
void follow(store::Reader& reader, Format format) {
  int64_t seen = -1;
  for (;;) {
    const report::Inventory inventory = report::inventory_of(reader);
    if (inventory.events != seen || !inventory.is_live) print(progress_line(inventory, format));
    seen = inventory.events;
    if (!inventory.is_live) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    reader.refresh();
  }
}

int run_info(const InfoOptions& options, const Shell&) {
  store::Reader reader(options.file);
  if (options.follow) {
    follow(reader, options.format);
    return kOk;
  }
  const report::Inventory inventory = report::inventory_of(reader);
  print(options.format == Format::json ? json_text(report::inventory_json(inventory))
                                       : report::inventory_text(inventory));
  return kOk;
}

}  // namespace

void add_info(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<InfoOptions>();
  auto* command =
      add_command(app, shell, "info", "What is in a trace: ranks, steps, events, losses, versions", options, run_info);
  command->add_option("FILE", options->file, "Trace: ours or an Nsight Systems SQLite export")->required();
  command->add_flag("--follow", options->follow, "Watch a trace that is being written, until its run ends");
  add_format(*command, options->format);
}

}  // namespace taut::cli
