#include "analyzer/report/units.h"

#include <gtest/gtest.h>

#include <cmath>

namespace taut::report {
namespace {

TEST(Units, FitTheSize) {
  EXPECT_EQ(format_ms(12.345), "12.3 ms");
  EXPECT_EQ(format_ms(0.95), "950.0 µs");
  EXPECT_EQ(format_ms(0.0000123), "12 ns");
  EXPECT_EQ(format_ms(101.26), "101.3 ms");
  EXPECT_EQ(format_ms(1234.4), "1234 ms");
  EXPECT_EQ(format_ms(12345), "12.3 s");
  EXPECT_EQ(format_ms(-48.2), "-48.2 ms");
  EXPECT_EQ(format_ms(0), "0.00 ms");
  EXPECT_EQ(format_ns(3.2e6), "3.20 ms");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(12), "12 B");
}

TEST(Units, GroupDigits) {
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_count(-1234), "-1,234");
  EXPECT_EQ(format_count(999), "999");
}

TEST(Units, WriteSharesAndChanges) {
  EXPECT_EQ(format_share(0.1234), "12.3 %");
  EXPECT_EQ(format_change(0.05), "+5.0 %");
  EXPECT_EQ(format_change(-0.05), "-5.0 %");
  EXPECT_EQ(format_number(-0.001, 1), "0.0") << "no minus before nothing";
}

TEST(Units, AdmitWhatIsUnknown) {
  EXPECT_EQ(format_ms(std::nan("")), "-");
  EXPECT_EQ(format_share(INFINITY), "-");
}

}  // namespace
}  // namespace taut::report
