// `taut compare A B`: is B faster than A, by how much, and why.
#include "analyzer/tune/compare.h"
#include "analyzer/report/comparison.h"
#include "cli/command.h"
#include "cli/output.h"

namespace taut::cli {
namespace {

struct CompareOptions {
  std::string a, b;
  Format format = Format::text;
};

int run_compare(const CompareOptions& options, const Shell&) {
  const tune::Side a = tune::read_side(options.a), b = tune::read_side(options.b);
  const tune::Comparison comparison = tune::compare(a, b);
  print(options.format == Format::json ? json_text(report::comparison_json(comparison))
                                       : report::comparison_text(comparison, wants_color()));
  return kOk;
}

}  // namespace

void add_compare(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<CompareOptions>();
  auto* command =
      add_command(app, shell, "compare", "Whether B is really faster than A, and why", options, run_compare);
  command->add_option("A", options->a, "Trace before, or a folder of traces of one configuration")->required();
  command->add_option("B", options->b, "Trace after, or a folder of them")->required();
  add_format(*command, options->format);
}

}  // namespace taut::cli
