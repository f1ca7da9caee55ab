#include "runtime/data/text.h"

#include <gtest/gtest.h>

namespace taut::data {
namespace {

TEST(Text, AcceptsUtf8) {
  EXPECT_FALSE(why_not_text("plain\nlines\t\x1b", true));
  EXPECT_FALSE(why_not_text("naïve €5 \U0001F600", true));
}

TEST(Text, RejectsWhatRfc3629Forbids) {
  const char* const kBad[] = {
      "\x80",              // continuation without a lead
      "\xc0\xaf",          // overlong '/'
      "\xe0\x80\xaf",      // overlong
      "\xf0\x80\x80\xaf",  // overlong
      "\xed\xa0\x80",      // surrogate
      "\xf4\x90\x80\x80",  // beyond U+10FFFF
      "\xf5\x80\x80\x80",  // no such lead
      "\xe2\x28\xa1",      // broken sequence
      "caf\xe9 au lait",   // Latin-1
  };
  for (const char* text : kBad) EXPECT_TRUE(why_not_text(text, true)) << text;
}

TEST(Text, SaysWhere) {
  EXPECT_EQ(why_not_text(std::string("ab\0c", 4), true).value(), "is not text: NUL at byte 2");
  EXPECT_EQ(why_not_text("caf\xe9!", true).value(), "is not text: invalid UTF-8 at byte 3");
}

TEST(Text, ForgivesACutCharacterOnlyWhereMoreFollows) {
  EXPECT_FALSE(why_not_text("price \xe2\x82", false));
  EXPECT_TRUE(why_not_text("price \xe2\x82", true));
}

TEST(Text, TrimsTornCharacters) {
  EXPECT_EQ(without_torn_begin("\x82\xac 5"), " 5");
  EXPECT_EQ(without_torn_begin("€ 5"), "€ 5");
  EXPECT_EQ(without_torn_end("5 \xe2\x82"), "5 ");
  EXPECT_EQ(without_torn_end("5 \xf0\x9f\x98"), "5 ");
  EXPECT_EQ(without_torn_end("5 €"), "5 €");
  EXPECT_EQ(without_torn_end("ab"), "ab");
  EXPECT_EQ(without_torn_end(""), "");
}

}  // namespace
}  // namespace taut::data
