#include "analyzer/report/table.h"

#include <gtest/gtest.h>

namespace taut::report {
namespace {

const Table kTable{{{"name", Align::left}, {"µs", Align::right}}, {{"a|b", "1"}, {"<c>", "1000"}, {"short row"}}};

TEST(TextTable, AlignsColumnsAndLeavesNoTrailingBlanks) {
  EXPECT_EQ(table_text(kTable, {.indent = "> "}),
            "> name         µs\n"
            "> ─────────  ────\n"
            "> a|b           1\n"
            "> <c>        1000\n"
            "> short row\n");
}

TEST(TextTable, CutsLongCells) {
  EXPECT_NE(table_text({{{"x"}}, {{"0123456789"}}}, {.indent = "", .max_cell_width = 5}).find("0123…\n"),
            std::string::npos);
}

TEST(MarkdownTable, EscapesCells) {
  EXPECT_EQ(table_markdown(kTable),
            "| name | µs |\n| --- | ---: |\n| a\\|b | 1 |\n| &lt;c\\> | 1000 |\n| short row |  |\n");
}

TEST(HtmlTable, EscapesCells) {
  const std::string html = table_html(kTable);
  EXPECT_NE(html.find("<th scope=\"row\">&lt;c&gt;</th><td class=\"n\">1000</td>"), std::string::npos) << html;
}

TEST(CsvTable, QuotesWhatNeedsQuoting) {
  EXPECT_EQ(table_csv({{{"a"}, {"b"}}, {{"1,2", "say \"hi\""}, {"line\nbreak", ""}}}),
            "a,b\n\"1,2\",\"say \"\"hi\"\"\"\n\"line\nbreak\",\n");
}

}  // namespace
}  // namespace taut::report
