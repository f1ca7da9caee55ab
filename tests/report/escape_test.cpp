#include "analyzer/report/escape.h"

#include <gtest/gtest.h>

namespace taut::report {
namespace {

TEST(Printable, TakesTerminalEscapesOut) {
  EXPECT_EQ(printable("a\x1b[31mred\x07"), "a?[31mred?");
  EXPECT_EQ(printable("line\nbreak\ttab\rback"), "line break tab back");
  EXPECT_EQ(printable(std::string("nul\0byte", 8)), "nul?byte");
  EXPECT_EQ(printable("c1 \xC2\x9B"
                      "31m"),
            "c1 ?31m");
  EXPECT_EQ(printable("turned \xE2\x80\xAE round"), "turned ? round");
}

TEST(Printable, KeepsUnicodeAndRepairsWhatIsNone) {
  EXPECT_EQ(printable("µs ✓ 😀 für"), "µs ✓ 😀 für");
  EXPECT_EQ(printable("\xFF\xC3"), "??");
  EXPECT_EQ(printable("\xC0\xAF"), "??") << "an overlong slash";
  EXPECT_EQ(printable("\xED\xA0\x80"), "???") << "a surrogate";
  EXPECT_EQ(printable("\xF4\x90\x80\x80"), "????") << "above U+10FFFF";
}

TEST(EscapeHtml, LeavesNoMarkup) {
  EXPECT_EQ(escape_html("<script>alert('x&y')</script>\""),
            "&lt;script&gt;alert(&#39;x&amp;y&#39;)&lt;/script&gt;&quot;");
}

TEST(EscapeMarkdown, KeepsTablesAndMarkupWhole) {
  EXPECT_EQ(escape_markdown("a|b`c`<img>[x](y)*"), "a\\|b\\`c\\`&lt;img\\>\\[x\\](y)\\*");
}

TEST(Shorten, CountsColumnsNotBytes) {
  EXPECT_EQ(display_width("µ✓😀"), 3u);
  EXPECT_EQ(shorten("µµµµµ", 5), "µµµµµ");
  EXPECT_EQ(shorten("µµµµµ", 3), "µµ…");
}

}  // namespace
}  // namespace taut::report
