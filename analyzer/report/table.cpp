#include "analyzer/report/table.h"

#include <algorithm>

#include "analyzer/report/escape.h"

namespace taut::report {
namespace {

const std::string& cell(const std::vector<std::string>& row, size_t column) {
  static const std::string empty;
  return column < row.size() ? row[column] : empty;
}

void append_padded(std::string& out, const std::string& text, size_t width, Align align) {
  const size_t used = display_width(text);
  const std::string blanks(width > used ? width - used : 0, ' ');
  out += align == Align::right ? blanks + text : text + blanks;
}

void end_line(std::string& out) {
  while (!out.empty() && out.back() == ' ') out.pop_back();
  out += '\n';
}

}  // namespace

std::string table_text(const Table& table, const TextTableOptions& options) {
  const size_t n = table.columns.size();
  std::vector<size_t> widths(n);
  std::vector<std::vector<std::string>> cells;
  for (size_t c = 0; c < n; ++c) widths[c] = display_width(table.columns[c].title);
  for (const auto& row : table.rows) {
    auto& line = cells.emplace_back();
    for (size_t c = 0; c < n; ++c) {
      line.push_back(shorten(printable(cell(row, c)), options.max_cell_width));
      widths[c] = std::max(widths[c], display_width(line.back()));
    }
  }
  std::string out = options.indent;
  for (size_t c = 0; c < n; ++c) {
    if (c > 0) out += "  ";
    append_padded(out, table.columns[c].title, widths[c], table.columns[c].align);
  }
  end_line(out);
  out += options.indent;
  for (size_t c = 0; c < n; ++c) {
    if (c > 0) out += "  ";
    for (size_t i = 0; i < widths[c]; ++i) out += "─";
  }
  end_line(out);
  for (const auto& line : cells) {
    out += options.indent;
    for (size_t c = 0; c < n; ++c) {
      if (c > 0) out += "  ";
      append_padded(out, line[c], widths[c], table.columns[c].align);
    }
    end_line(out);
  }
  return out;
}

std::string table_markdown(const Table& table) {
  std::string out = "|";
  for (const auto& column : table.columns) out += " " + escape_markdown(column.title) + " |";
  out += "\n|";
  for (const auto& column : table.columns) out += column.align == Align::right ? " ---: |" : " --- |";
  out += "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (size_t c = 0; c < table.columns.size(); ++c) out += " " + escape_markdown(cell(row, c)) + " |";
    out += "\n";
  }
  return out;
}

std::string table_html(const Table& table) {
  const auto alignment = [&](size_t c) { return table.columns[c].align == Align::right ? " class=\"n\"" : ""; };
  std::string out = "<table>\n<thead><tr>";
  for (size_t c = 0; c < table.columns.size(); ++c) {
    out += std::string("<th scope=\"col\"") + alignment(c) + ">" + escape_html(table.columns[c].title) + "</th>";
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    out += "<tr>";
    for (size_t c = 0; c < table.columns.size(); ++c) {
      const char* const tag = c == 0 ? "th" : "td";
      out += std::string("<") + tag + (c == 0 ? " scope=\"row\"" : "") + alignment(c) + ">" +
             escape_html(cell(row, c)) + "</" + tag + ">";
    }
    out += "</tr>\n";
  }
  return out + "</tbody>\n</table>\n";
}

std::string table_csv(const Table& table) {
  std::string out;
  const auto append = [&](const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) {
      out += text;
      return;
    }
    out += '"';
    for (const char c : text) {
      if (c == '"') out += '"';
      out += c;
    }
    out += '"';
  };
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (c > 0) out += ',';
    append(table.columns[c].title);
  }
  out += '\n';
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      if (c > 0) out += ',';
      append(cell(row, c));
    }
    out += '\n';
  }
  return out;
}

}  // namespace taut::report
