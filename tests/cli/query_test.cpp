#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/run_taut.h"
#include "tests/cli/synthetic_run.h"

namespace taut::tests {
namespace {

class Query : public testing::Test {
 protected:
  Query() { write_trace({}, folder_ / "run.db"); }

  Outcome query(const std::string& sql, const std::string& format = "text") {
    return run_taut({"query", folder_ / "run.db", sql, "--format", format});
  }

  TemporaryFolder folder_{"cli-query"};
};

TEST_F(Query, PrintsAnAlignedTable) {
  EXPECT_EQ(query("SELECT 1 AS one, 'a' AS text, 2.5 AS real, NULL AS missing").out,
            "one  text  real  missing\n"
            "───  ────  ────  ───────\n"
            "  1  a      2.5     NULL\n"
            "1 row\n");
}

TEST_F(Query, GivesCsvAndJson) {
  const char* const sql =
      "SELECT rank, count(*) AS steps, 'a,b' AS text, x'0AFF' AS bytes, NULL AS missing FROM TAUT_STEP GROUP BY rank";
  EXPECT_EQ(query(sql, "csv").out, "rank,steps,text,bytes,missing\n0,12,\"a,b\",x'0AFF',\n1,12,\"a,b\",x'0AFF',\n");
  EXPECT_EQ(nlohmann::json::parse(query(sql, "json").out),
            nlohmann::json::parse(R"({"columns":["rank","steps","text","bytes","missing"],
                                      "rows":[[0,12,"a,b","x'0AFF'",null],[1,12,"a,b","x'0AFF'",null]],"cut":false})"));
}

TEST_F(Query, ShowsColumnsWithoutRows) {
  EXPECT_EQ(query("SELECT rank FROM TAUT_STEP WHERE rank = 99").out, "rank\n────\n0 rows\n");
}

TEST_F(Query, RefusesBadSqlAndEveryWrite) {
  const std::string before = read_text(folder_ / "run.db");
  for (const char* const sql :
       {"SELEC 1", "SELECT nothing FROM TAUT_STEP", "SELECT * FROM NO_TABLE", "", "DELETE FROM TAUT_STEP",
        "DROP TABLE TAUT_STEP", "UPDATE TAUT_STEP SET loss = 0", "ATTACH '/tmp/taut-attached.db' AS x",
        "PRAGMA journal_mode = DELETE", "SELECT 1; DELETE FROM TAUT_STEP", "VACUUM INTO '/tmp/taut-vacuum.db'",
        "SELECT load_extension('x')"}) {
    const Outcome outcome = query(sql);
    EXPECT_EQ(outcome.exit_code, 2) << sql << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.rfind("error: ", 0), 0u) << sql << "\n" << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << sql << "\n" << outcome.out;
  }
  EXPECT_EQ(read_text(folder_ / "run.db"), before);
}

}  // namespace
}  // namespace taut::tests
