// Config text: comments, positions of errors, likely causes.
#include "tests/config/sample.h"

namespace taut::config {
namespace {

struct BadText {
  const char* name;
  const char* text;
  const char* place;  // line:column
  const char* in_hint;
};

class BadTexts : public testing::TestWithParam<BadText> {};

TEST_P(BadTexts, GiveLineColumnAndCause) {
  const Error error = error_of([&] { parse_text(GetParam().text, "run.json"); });
  EXPECT_PRED2(contains, error.what(), std::string("run.json:") + GetParam().place + ":");
  EXPECT_PRED2(contains, error.hint(), GetParam().in_hint);
}

INSTANTIATE_TEST_SUITE_P(
    JsonText, BadTexts,
    testing::Values(BadText{"TrailingCommaInObject", "{\"a\": 1,\n}", "2:1", "remove the comma"},
                    BadText{"TrailingCommaInArray", "{\"a\": [1, 2,]}", "1:13", "remove the comma"},
                    BadText{"MissingComma", "{\"a\": 1\n \"b\": 2}", "2:2", "comma missing"},
                    BadText{"MissingCommaAfterObject", "{\"a\": {}\n \"b\": 2}", "2:2", "comma missing"},
                    BadText{"SingleQuotes", "{'a': 1}", "1:2", "double quotes"},
                    BadText{"BareName", "{\n  seed: 1}", "2:3", "double quotes"},
                    BadText{"PythonTrue", "{\"a\": True}", "1:7", "lower case"},
                    BadText{"PythonNone", "{\"a\": None}", "1:7", "null"},
                    BadText{"NotANumber", "{\"a\": NaN}", "1:7", "NaN"},
                    BadText{"CommentBehindAValue", "{\"a\": 1 // one\n}", "1:9", "whole lines"},
                    BadText{"HashComment", "# config\n{}", "1:1", "whole lines"},
                    BadText{"PositionIsThatOfTheFile", "// one\n// two\n{\"a\": 1,}", "3:9", "remove the comma"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(JsonText, UnfinishedTextIsSaidToEndTooEarly) {
  EXPECT_PRED2(contains, error_of([] { parse_text("{\"a\": {\"b\": 1}", "run.json"); }).hint(), "too early");
}

TEST(JsonText, CommentLinesAreSkipped) {
  const Json json =
      parse_text("// a\n{\n  // b, with \"quotes\" and }\n\t//c\n \"a\": \"http://x\", \"b\": \"//\"\n}\n//", "x");
  EXPECT_EQ(json, (Json{{"a", "http://x"}, {"b", "//"}}));
}

TEST(JsonText, DuplicateKeysAreRefused) {
  EXPECT_PRED2(contains, error_of([] { parse_text("{\"a\": 1, \"b\": {\"a\": 2}, \"a\": 3}", "x"); }).what(),
               "\"a\" stands twice");
  EXPECT_NO_THROW(parse_text("{\"a\": 1, \"b\": {\"a\": 2}, \"c\": [{\"a\": 1}, {\"a\": 2}]}", "x"));
}

TEST(JsonText, EmptyTextIsRefused) {
  for (const char* text : {"", "  \n", "// only a comment"}) {
    EXPECT_PRED2(contains, error_of([&] { parse_text(text, "x"); }).what(), "is empty");
  }
}

TEST(JsonText, DeepNestingIsRefused) {
  EXPECT_PRED2(contains, error_of([] { parse_text(std::string(100'000, '['), "x"); }).what(), "nested too deeply");
}

TEST(JsonText, TextThatIsNotUtf8IsRefused) {
  EXPECT_THROW(parse_text("{\"a\": \"\xff\xfe\"}", "x"), Error);
}

}  // namespace
}  // namespace taut::config
