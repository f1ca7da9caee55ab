// Operations of a group against their definition, and how they fail.
#include "runtime/comm/collectives.h"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::comm {
namespace {

/// Rows that `sender` has for `receiver`: uneven, some none.
int64_t rows_between(int sender, int receiver) {
  return (3 * sender + 5 * receiver) % 4;
}

/// Row `i` of that block, recognisable: [sender, receiver, i].
at::Tensor block(int sender, int receiver, at::ScalarType type) {
  const int64_t rows = rows_between(sender, receiver);
  at::Tensor block = at::empty({rows, 3}, type);
  for (int64_t i = 0; i < rows; ++i) block[i].copy_(at::tensor({int64_t{sender}, int64_t{receiver}, i}));
  return block;
}

TEST(AllToAll, EveryMemberGetsTheRowsMeantForIt) {
  for (const int ranks : {2, 3, 4}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
      testing::run_ranks(ranks, [&](Group& group) {
        std::vector<at::Tensor> to, from;
        std::vector<int64_t> to_rows, from_rows;
        for (int peer = 0; peer < ranks; ++peer) {
          to.push_back(block(group.rank(), peer, type));
          to_rows.push_back(to.back().size(0));
          from.push_back(block(peer, group.rank(), type));
          from_rows.push_back(from.back().size(0));
        }
        const at::Tensor expected = at::cat(from);
        const at::Tensor output = at::full_like(expected, -1);
        all_to_all(group, output, at::cat(to), from_rows, to_rows);
        EXPECT_TRUE(at::equal(output, expected));
      });
    }
  }
}

TEST(AllToAll, WithoutCountsTheBlocksAreEqual) {
  testing::run_ranks(3, [](Group& group) {
    const at::Tensor input = at::arange(6).to(at::kFloat) + 10.0f * static_cast<float>(group.rank());
    const at::Tensor output = at::empty({6});
    Handle handle = all_to_all_async(group, output, input);
    handle.wait();
    const float first = 2.0f * static_cast<float>(group.rank());
    EXPECT_TRUE(at::equal(output, at::tensor({first, first + 1, first + 10, first + 11, first + 20, first + 21})));
  });
}

TEST(AllToAll, NobodyNeedHaveRows) {
  testing::run_ranks(2, [](Group& group) {
    const at::Tensor input = at::empty({0, 4}), output = at::empty({0, 4});
    all_to_all(group, output, input, {0, 0}, {0, 0});
    // All rows on one member: the usual case of a router that has not learned yet.
    const bool mine = group.rank() == 0;
    const at::Tensor rows = at::full({2, 4}, 1.0f + static_cast<float>(group.rank()));
    const at::Tensor all = at::zeros({mine ? 4 : 0, 4});
    all_to_all(group, all, rows, mine ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{0, 0}, {2, 0});
    if (mine) {
      EXPECT_TRUE(at::equal(all.select(1, 0), at::tensor({1.f, 1.f, 2.f, 2.f})));
    }
  });
}

TEST(AllToAll, AGroupOfOneCopies) {
  testing::run_ranks(1, [](Group& group) {
    const at::Tensor input = at::rand({3, 2}), output = at::empty({3, 2});
    all_to_all(group, output, input, {3}, {3});
    EXPECT_TRUE(at::equal(output, input));
  });
}

TEST(AllToAll, CountsThatAreNotTheRowsAreRefused) {
  testing::run_ranks(2, [](Group& group) {
    const at::Tensor tensor = at::zeros({3, 2});
    const auto message = [&](std::vector<int64_t> output_rows, std::vector<int64_t> input_rows) -> std::string {
      try {
        all_to_all(group, at::zeros({3, 2}), tensor, output_rows, input_rows);
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_EQ(message({1, 2}, {1, 1}), "all_to_all on group tp0: the input has 3 rows, its blocks [1, 1]");
    EXPECT_EQ(message({3}, {1, 2}), "all_to_all on group tp0: the output has 3 rows, its blocks [3]");
    EXPECT_EQ(message({1, 2}, {4, -1}), "all_to_all on group tp0: the input has 3 rows, its blocks [4, -1]");
    EXPECT_EQ(message({}, {1, 2}), "all_to_all on group tp0: the output has 3 rows, its blocks []");
  });
}

}  // namespace
}  // namespace taut::comm
