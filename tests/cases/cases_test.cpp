// Analysis tested as data: each JSON file in this folder is a trace, a command, and what the command must answer.
//
//   {"about":   "one sentence",
//    "tables":  [{"table":"TAUT_STEP", "columns":"rank step start end", "rows":[[0, 1, 0, 1000]]}, …],
//    "command": ["stats", "TRACE", "--by", "device", "--format", "json"],
//    "exit":    0,
//    "expect":  {"devices":[{"idle_ns":20}]}}
//
// Columns left out are NULL, or 0 or "" where NULL is not allowed. A cell {"string":"gemm"} is the id of that string.
// `expect` names what must be there: more keys may be, but lists have the same length. Numbers agree to 1e-9 of their
// size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"
#include "tracer/store/writer.h"

namespace taut::tests {
namespace {

using nlohmann::json;

std::vector<std::filesystem::path> case_files() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(TAUT_SOURCE_DIR "/tests/cases")) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// What a column that is left out holds, by its SQL definition.
store::Value default_value(const store::Table& table, const std::string& column) {
  const std::string definitions = std::string(", ") + table.columns + ",";
  const size_t at = definitions.find(", " + column + " ");
  const std::string definition = definitions.substr(at + 2, definitions.find(',', at + 2) - at - 2);
  if (definition.find("NOT NULL") == std::string::npos) return {};
  return definition.find("TEXT") == std::string::npos ? store::Value(0) : store::Value("");
}

store::Value value_of(const json& cell, store::Writer& writer, std::deque<std::string>& texts) {
  if (cell.is_null()) return {};
  if (cell.is_object()) return writer.string_id(cell.at("string").get<std::string>());
  if (cell.is_string()) return std::string_view(texts.emplace_back(cell.get<std::string>()));
  if (cell.is_number_integer()) return cell.get<int64_t>();
  return cell.get<double>();
}

void write_table(store::Writer& writer, const json& description) {
  const auto id = store::find_table(description.at("table").get<std::string>());
  ASSERT_TRUE(id.has_value()) << description.at("table");
  const store::Table& table = store::table(*id);
  const auto columns = store::column_names(table);
  std::vector<std::string> given;
  std::istringstream words(description.at("columns").get<std::string>());
  for (std::string word; words >> word;) given.push_back(word);
  for (const auto& row : description.at("rows")) {
    ASSERT_EQ(row.size(), given.size()) << row;
    std::deque<std::string> texts;  // keeps the strings of this row in place until it is written
    std::vector<store::Value> values;
    for (const auto& column : columns) {
      const auto at = std::find(given.begin(), given.end(), column);
      values.push_back(at == given.end() ? default_value(table, column)
                                         : value_of(row[static_cast<size_t>(at - given.begin())], writer, texts));
    }
    writer.insert(*id, values);
  }
}

void expect_subset(const json& expected, const json& actual, const std::string& where) {
  if (expected.is_object()) {
    ASSERT_TRUE(actual.is_object()) << where << " is " << actual;
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(actual.contains(key)) << where << "." << key << " is missing";
      expect_subset(value, actual[key], where + "." + key);
    }
  } else if (expected.is_array()) {
    ASSERT_TRUE(actual.is_array()) << where << " is " << actual;
    ASSERT_EQ(actual.size(), expected.size()) << where << " is " << actual;
    for (size_t i = 0; i < expected.size(); ++i)
      expect_subset(expected[i], actual[i], where + "[" + std::to_string(i) + "]");
  } else if (expected.is_number() && actual.is_number()) {
    EXPECT_NEAR(actual.get<double>(), expected.get<double>(), 1e-9 * std::max(1.0, std::abs(expected.get<double>())))
        << where;
  } else {
    EXPECT_EQ(actual, expected) << where;
  }
}

class Case : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Case, AnswersAsWritten) {
  const json description = json::parse(read_text(GetParam()));
  SCOPED_TRACE(description.at("about").get<std::string>());
  const TemporaryFolder folder("case-" + GetParam().stem().string());
  const std::string trace = folder / "trace.db";
  {
    store::Writer writer(trace);
    writer.begin();
    for (const auto& table : description.at("tables")) write_table(writer, table);
    writer.commit();
    writer.finish();
  }
  std::vector<std::string> command;
  for (const auto& word : description.at("command"))
    command.push_back(word == "TRACE" ? trace : word.get<std::string>());
  const Outcome outcome = run_taut(command);
  ASSERT_EQ(outcome.exit_code, description.value("exit", 0)) << outcome.out << outcome.err;
  if (description.contains("expect")) expect_subset(description["expect"], json::parse(outcome.out), "answer");
}

INSTANTIATE_TEST_SUITE_P(Cases, Case, testing::ValuesIn(case_files()),
                         [](const auto& info) { return info.param.stem().string(); });

}  // namespace
}  // namespace taut::tests
