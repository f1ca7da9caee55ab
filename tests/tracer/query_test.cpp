// Read-only SQL over a trace.
#include <gtest/gtest.h>

#include <filesystem>

#include "taut.h"
#include "tests/tracer/scratch.h"
#include "tracer/store/reader.h"
#include "tracer/store/writer.h"

namespace taut::store {
namespace {

class Query : public testing::Test {
 protected:
  void SetUp() override {
    Writer writer(scratch_ / "run.db");
    for (int step = 0; step < 5; ++step)
      writer.insert(TableId::TAUT_STEP, {0, step, step * 10, step * 10 + 8, 64, 0.5});
    writer.finish();
  }
  int exit_code(const std::string& sql) const {
    try {
      Reader(scratch_ / "run.db").query(sql);
    } catch (const Error& error) {
      EXPECT_FALSE(error.hint().empty());
      return error.exit_code();
    }
    return 0;
  }
  test::Scratch scratch_;
};

TEST_F(Query, GivesColumnsAndTypedCells) {
  const Reader reader(scratch_ / "run.db");
  const QueryResult result =
      reader.query("WITH t AS (SELECT * FROM TAUT_STEP) SELECT count(*) AS n, avg(loss), NULL, 'x', x'01' FROM t;  ");
  EXPECT_EQ(result.columns[0], "n");
  ASSERT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.rows[0][0].integer, 5);
  EXPECT_EQ(result.rows[0][1].real, 0.5);
  EXPECT_EQ(result.rows[0][2].type, Cell::Type::null);
  EXPECT_EQ(result.rows[0][3].text, "x");
  EXPECT_EQ(result.rows[0][4].type, Cell::Type::blob);
  EXPECT_FALSE(result.cut);
}

TEST_F(Query, StopsAtTheRowLimit) {
  const QueryResult result = Reader(scratch_ / "run.db").query("SELECT * FROM TAUT_STEP", {.max_rows = 3});
  EXPECT_EQ(result.rows.size(), 3u);
  EXPECT_TRUE(result.cut);
}

TEST_F(Query, ReadingIsAllowed) {
  EXPECT_EQ(exit_code("SELECT name FROM sqlite_schema"), 0);
  EXPECT_EQ(exit_code("EXPLAIN QUERY PLAN SELECT * FROM TAUT_STEP"), 0);
  EXPECT_EQ(exit_code("SELECT * FROM pragma_table_info('TAUT_STEP')"), 0);
  EXPECT_EQ(exit_code("VALUES (1), (2)"), 0);
}

TEST_F(Query, AnythingElseIsRefused) {
  const std::string other = scratch_ / "other.db";
  for (const std::string& sql :
       {std::string("DELETE FROM TAUT_STEP"), std::string("INSERT INTO TAUT_META VALUES('a','b')"),
        std::string("CREATE TABLE x(y)"), std::string("CREATE TEMP TABLE x AS SELECT 1"), "ATTACH '" + other + "' AS o",
        "VACUUM INTO '" + other + "'", std::string("PRAGMA query_only=0"), std::string("PRAGMA journal_mode=DELETE"),
        std::string("SELECT load_extension('/tmp/x.so')"), std::string("BEGIN"), std::string("SELECT 1; SELECT 2"),
        std::string("SELEC 1"), std::string("   "), std::string("SELECT * FROM no_such_table")})
    EXPECT_EQ(exit_code(sql), 2) << sql;
  EXPECT_FALSE(std::filesystem::exists(other));
  EXPECT_EQ(Reader(scratch_ / "run.db").count("TAUT_STEP"), 5);
}

TEST_F(Query, StopsAfterItsTime) {
  const Reader reader(scratch_ / "run.db");
  const std::string forever = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n";
  try {
    reader.query(forever, {.max_time = std::chrono::milliseconds(50)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("took longer"), std::string::npos);
  }
  EXPECT_EQ(reader.count("TAUT_STEP"), 5) << "the reader works on";
}

}  // namespace
}  // namespace taut::store
