// JSON text with whole-line comments: errors carry line, column and the likely cause.
#include <fstream>
#include <set>
#include <sstream>

#include "runtime/config/load.h"
#include "taut.h"

namespace taut::config {
namespace {

constexpr size_t kLargestConfig = 16 << 20;
constexpr int kDeepest = 64;  // keeps recursive walks over the value safe

// Comment lines become blank, so that positions in the text stay what the user sees.
std::string without_comments(std::string_view text) {
  std::string out(text);
  for (size_t line = 0; line < out.size();) {
    size_t end = out.find('\n', line);
    if (end == std::string::npos) end = out.size();
    const size_t first = out.find_first_not_of(" \t", line);
    if (first != std::string::npos && first + 1 < end && out[first] == '/' && out[first + 1] == '/') {
      std::fill(out.begin() + static_cast<std::ptrdiff_t>(first), out.begin() + static_cast<std::ptrdiff_t>(end), ' ');
    }
    line = end + 1;
  }
  return out;
}

std::string place(const std::string& name, std::string_view text, size_t offset) {
  offset = std::min(offset, text.size());
  size_t line = 1, column = 1;
  for (size_t i = 0; i < offset; ++i) {
    ++column;
    if (text[i] == '\n') {
      ++line;
      column = 1;
    }
  }
  return name + ":" + std::to_string(line) + ":" + std::to_string(column);
}

// What people get wrong when they write JSON by hand, from the characters around the error.
std::string cause(std::string_view text, size_t offset) {
  const char here = offset < text.size() ? text[offset] : '\0';
  const size_t before = offset == 0 ? std::string_view::npos : text.find_last_not_of(" \t\r\n", offset - 1);
  const char last = before == std::string_view::npos ? '\0' : text[before];
  if ((here == '}' || here == ']') && last == ',') return "remove the comma before " + std::string(1, here);
  if (here == '\'') return "use double quotes";
  if (here == '/' || here == '#') return "comments are whole lines that begin with //";
  if (here == '"' && (last == '"' || last == '}' || last == ']' || std::isalnum(static_cast<unsigned char>(last)))) {
    return "is a comma missing before this?";
  }
  const std::string_view rest = offset < text.size() ? text.substr(offset) : std::string_view{};
  if (rest.starts_with("True") || rest.starts_with("False")) return "JSON writes true and false in lower case";
  if (rest.starts_with("None")) return "JSON writes null for None";
  if (rest.starts_with("NaN") || rest.starts_with("Inf") || rest.starts_with("-Inf"))
    return "JSON has no NaN or Infinity";
  if (std::isalpha(static_cast<unsigned char>(here)) || here == '_') return "names and texts need double quotes";
  if (here == '\0') return "the text ends too early: is a } or ] missing?";
  return "is a comma, a colon or a quote missing just before this?";
}

}  // namespace

Json parse_text(std::string_view text, const std::string& name) {
  const std::string json_text = without_comments(text);
  if (json_text.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw Error(name + " is empty", "a config is a JSON object: {\"model\": {…}, \"data\": {…}, …}");
  }
  std::vector<std::set<std::string>> open_objects;
  const auto watch_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kDeepest) throw Error(name + " is nested too deeply", "a config has at most four levels");
    if (event == Json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == Json::parse_event_t::object_end) open_objects.pop_back();
    if (event == Json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw Error(name + ": the key \"" + parsed.get<std::string>() + "\" stands twice in one object",
                  "keep one of the two; JSON readers disagree on which would count");
    }
    return true;
  };
  try {
    return Json::parse(json_text, watch_keys);
  } catch (const nlohmann::json::parse_error& error) {
    // `byte` counts the characters read, so the offending token ends just before it; step back to the token's start.
    size_t offset = error.byte == 0 ? 0 : error.byte - 1;
    offset = std::min(offset, json_text.size());
    const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
    while (offset > 0 && offset < json_text.size() && is_word(json_text[offset]) && is_word(json_text[offset - 1]))
      --offset;
    if (offset < json_text.size() && json_text[offset] == '"' && error.byte >= 2) {
      // A string token was read whole: `offset` is its closing quote.
      const size_t opening = offset == 0 ? std::string::npos : json_text.rfind('"', offset - 1);
      if (opening != std::string::npos && json_text.find('\n', opening) > offset) offset = opening;
    }
    if (offset >= json_text.size() || json_text[offset] == '\n') {
      const size_t next = json_text.find_first_not_of(" \t\r\n", offset);
      if (next == std::string::npos) {
        throw Error(place(name, json_text, json_text.size()) + ": not valid JSON", cause(json_text, json_text.size()));
      }
    }
    throw Error(place(name, json_text, offset) + ": not valid JSON", cause(json_text, offset));
  } catch (const nlohmann::json::exception& error) {
    throw Error(name + ": not valid JSON (" + error.what() + ")", "check the numbers: one may be too large");
  }
}

Json read_json_file(const std::filesystem::path& path) {
  std::error_code ec;
  const auto status = std::filesystem::status(path, ec);
  if (!std::filesystem::exists(status)) {
    throw Error("there is no config " + path.string(), "give the path of a JSON file; samples/ has some to start from");
  }
  if (std::filesystem::is_directory(status)) {
    throw Error(path.string() + " is a folder", "give the path of a JSON file in it");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error("cannot read " + path.string(), "check the file's permissions");
  std::string text(kLargestConfig + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (text.size() > kLargestConfig) throw Error(path.string() + " is larger than any config", "is it the right file?");
  if (text.starts_with("SQLite format 3")) {
    throw Error(path.string() + " is a trace, not a config", "give the training config (JSON) here");
  }
  return parse_text(text, path.string());
}

}  // namespace taut::config
