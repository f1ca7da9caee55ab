#include "analyzer/report/mesh_table.h"

#include <gtest/gtest.h>

#include "tests/cli/synthetic_run.h"
#include "tracer/store/ids.h"
#include "tracer/store/writer.h"

namespace taut::report {
namespace {

/// The inventory of a trace of a pp × dp × cp × tp mesh, read from a file: 8 ranks a node, Megatron's rank order.
Inventory inventory_of_mesh(int pp, int dp, int cp, int tp, int ep, int missing_rank = -1) {
  const tests::TemporaryFolder folder("mesh-table");
  const std::string path = folder / "run.db";
  {
    store::Writer writer(path);
    writer.begin();
    int rank = 0;
    for (int p = 0; p < pp; ++p)
      for (int d = 0; d < dp; ++d)
        for (int c = 0; c < cp; ++c)
          for (int t = 0; t < tp; ++t, ++rank) {
            if (rank == missing_rank) continue;
            writer.insert(store::TableId::TAUT_RANK,
                          {rank, store::global_pid(0, 1000 + rank), rank / 8, d, t, p, c, (d * cp + c) % ep, -1});
          }
    writer.commit();
    writer.finish();
  }
  return inventory_of(store::Reader(path));
}

std::vector<std::string> row(const Table& table, size_t index) {
  return table.rows.at(index);
}

TEST(MeshTable, ARowARankWithAllCoordinates) {
  const Inventory inventory = inventory_of_mesh(2, 1, 2, 2, 2);
  const Table table = mesh_table(inventory);
  ASSERT_EQ(table.rows.size(), 8u);
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);
  EXPECT_EQ(titles,
            (std::vector<std::string>{"rank", "pid", "node", "device", "pp", "dp", "cp", "tp", "ep", "edp", "steps"}));
  EXPECT_EQ(row(table, 0), (std::vector<std::string>{"0", "1000", "0", "cpu", "0", "0", "0", "0", "0", "0", "0"}));
  EXPECT_EQ(row(table, 7), (std::vector<std::string>{"7", "1007", "0", "cpu", "1", "0", "1", "1", "1", "0", "0"}));
  EXPECT_EQ(inventory.edp, 1);
  EXPECT_EQ(inventory_json(inventory)["mesh"], Json::parse(R"({"dp":1,"tp":2,"pp":2,"cp":2,"ep":2,"edp":1})"));
}

TEST(MeshTable, ManyRanksShareRowsFastestCoordinatesFirst) {
  const Inventory inventory = inventory_of_mesh(8, 4, 2, 8, 4);  // 512 ranks
  const Table by_stage = mesh_table(inventory);
  ASSERT_EQ(by_stage.rows.size(), 32u);  // 8 pp × 4 dp: tp and cp are merged
  EXPECT_EQ(row(by_stage, 1),
            (std::vector<std::string>{"16 to 31", "2 to 3", "cpu", "0", "1", "0 to 1", "0 to 7", "2 to 3", "0", "0"}));
  EXPECT_EQ(mesh_table(inventory, 64).rows.size(), 64u);
  EXPECT_EQ(mesh_table(inventory, 31).rows.size(), 8u);
  EXPECT_EQ(row(mesh_table(inventory, 8), 7)[0], "448 to 511");
  EXPECT_EQ(mesh_table(inventory, 512).rows.size(), 512u);
}

TEST(MeshTable, ARankThatIsNotThereIsCounted) {
  const Table table = mesh_table(inventory_of_mesh(2, 4, 1, 8, 1, 12), 8);
  ASSERT_EQ(table.rows.size(), 8u);
  EXPECT_EQ(row(table, 1)[0], "8 to 15 (7 of them)");
}

TEST(MeshTable, ManyGroupsAreCountedByKind) {
  std::vector<std::pair<std::string, int64_t>> groups{{"world", 16}};
  EXPECT_EQ(group_list({{"tp0", 2}, {"tp1", 2}, {"world", 4}}), "tp0 (2), tp1 (2), world (4)");
  for (int i = 0; i < 20; ++i) groups.emplace_back("dp_cp" + std::to_string(i), 4);
  EXPECT_EQ(group_list(groups), "20 dp_cp groups (4), world (16)");
}

}  // namespace
}  // namespace taut::report
