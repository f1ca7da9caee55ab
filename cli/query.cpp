// `taut query FILE "SQL"`: read-only SQL on a trace.
#include "analyzer/report/table.h"
#include "analyzer/report/units.h"
#include "cli/command.h"
#include "cli/output.h"
#include "tracer/store/reader.h"

namespace taut::cli {
namespace {

using store::Cell;

struct QueryOptions {
  std::string file, sql;
  std::string format = "text";
};

std::string hex(const std::string& bytes) {
  static const char* const digits = "0123456789ABCDEF";
  std::string out;
  for (const unsigned char byte : bytes) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string cell_text(const Cell& cell, const char* null_text) {
  switch (cell.type) {
    case Cell::Type::integer:
      return std::to_string(cell.integer);
    case Cell::Type::real:
      return nlohmann::json(cell.real).dump();  // shortest text that reads back the same
    case Cell::Type::text:
      return cell.text;
    case Cell::Type::blob:
      return "x'" + hex(cell.text) + "'";
    case Cell::Type::null:
      break;
  }
  return null_text;
}

nlohmann::ordered_json cell_json(const Cell& cell) {
  switch (cell.type) {
    case Cell::Type::integer:
      return cell.integer;
    case Cell::Type::real:
      return cell.real;
    case Cell::Type::text:
      return cell.text;
    case Cell::Type::blob:
      return "x'" + hex(cell.text) + "'";
    case Cell::Type::null:
      break;
  }
  return nullptr;
}

report::Table as_table(const store::QueryResult& result, const char* null_text) {
  report::Table table;
  for (size_t c = 0; c < result.columns.size(); ++c) {
    bool numeric = !result.rows.empty();
    for (const auto& row : result.rows)
      numeric = numeric && row[c].type != Cell::Type::text && row[c].type != Cell::Type::blob;
    table.columns.push_back({result.columns[c], numeric ? report::Align::right : report::Align::left});
  }
  for (const auto& row : result.rows) {
    auto& cells = table.rows.emplace_back();
    for (const Cell& cell : row) cells.push_back(cell_text(cell, null_text));
  }
  return table;
}

int run_query(const QueryOptions& options, const Shell& shell) {
  const store::Reader reader(options.file);
  const store::QueryResult result = reader.query(options.sql);
  if (options.format == "json") {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& row : result.rows) {
      nlohmann::ordered_json cells = nlohmann::ordered_json::array();
      for (const Cell& cell : row) cells.push_back(cell_json(cell));
      rows.push_back(std::move(cells));
    }
    print(json_text({{"columns", result.columns}, {"rows", rows}, {"cut", result.cut}}));
  } else if (options.format == "csv") {
    print(report::table_csv(as_table(result, "")));
  } else {
    std::string text = report::table_text(as_table(result, "NULL"), {.indent = "", .max_cell_width = 120});
    const auto rows = static_cast<int64_t>(result.rows.size());
    if (!shell.quiet)
      text += report::format_count(rows) + (rows == 1 ? " row" : " rows") + (result.cut ? ", cut here" : "") + "\n";
    print(text);
  }
  return kOk;
}

}  // namespace

void add_query(CLI::App& app, Shell& shell) {
  auto options = std::make_shared<QueryOptions>();
  auto* command = add_command(app, shell, "query", "Read-only SQL on a trace", options, run_query);
  command->add_option("FILE", options->file, "Trace")->required();
  command->add_option("SQL", options->sql, "One SELECT; taut info lists the tables")->required();
  command->add_option("--format", options->format, "text, json or csv")
      ->check(CLI::IsMember({"text", "json", "csv"}))
      ->option_text("text|json|csv");
}

}  // namespace taut::cli
