// A table of strings that can be written as aligned text, Markdown, HTML or CSV.
#pragma once

#include <string>
#include <vector>

namespace taut::report {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
};

/// Rows may be shorter than `columns` (missing cells are empty), never longer. Cells hold raw text: the writers escape.
struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
};

struct TextTableOptions {
  std::string indent;          // put before every line
  size_t max_cell_width = 80;  // longer cells are cut with "…"
};

/// Aligned columns, a ruled header line, no trailing blanks, each line ended by '\n'.
std::string table_text(const Table& table, const TextTableOptions& options = {});

/// A GitHub-flavoured Markdown table.
std::string table_markdown(const Table& table);

/// A <table> element; the first column's cells are row headers.
std::string table_html(const Table& table);

/// RFC 4180: comma, CRLF-free lines ended by '\n', quotes doubled. Cells are written as they are.
std::string table_csv(const Table& table);

}  // namespace taut::report
