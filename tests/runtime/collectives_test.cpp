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

/// Every operation of member `group.rank()` of three, blocking and not; the tensors that they leave.
std::vector<at::Tensor> results_of_all_operations(Group& group) {
  const int64_t ranks = group.size(), own = group.rank();
  const int next = static_cast<int>((own + 1) % ranks), last = static_cast<int>((own + ranks - 1) % ranks);
  const at::Tensor mine = at::arange(6).to(at::kFloat).view({3, 2}) + 10.0 * static_cast<double>(own);
  const std::vector<int64_t> rows_to{1, 0, 2}, rows_from(3, rows_to[static_cast<size_t>(own)]);
  std::vector<at::Tensor> results;
  const auto fresh = [&](at::Tensor tensor) { return results.emplace_back(std::move(tensor)); };
  const auto unwritten = [&](int64_t rows) { return fresh(at::full({rows, 2}, -1.0)); };

  all_reduce(group, fresh(mine.clone()));
  all_reduce(group, fresh(mine.to(at::kLong)), Reduce::max);
  all_gather_into_tensor(group, unwritten(3 * ranks), mine);
  reduce_scatter(group, unwritten(1), mine);
  all_to_all(group, unwritten(3), mine);
  all_to_all(group, unwritten(rows_from[0] * ranks), mine, rows_from, rows_to);
  broadcast(group, fresh(mine.clone()), /*root=*/2);
  barrier(group);
  std::vector<Handle> handles{all_reduce_async(group, fresh(mine.to(at::kBFloat16))),
                              all_gather_into_tensor_async(group, unwritten(3 * ranks), mine),
                              reduce_scatter_async(group, unwritten(1), mine),
                              all_to_all_async(group, unwritten(3), mine),
                              send_async(group, mine, next),
                              recv_async(group, unwritten(3), last)};
  for (Handle& handle : handles) handle.wait();
  handles[0].wait();  // once more: nothing happens twice
  return results;
}

TEST(Staging, EveryOperationLeavesWhatItLeavesWithoutIt) {
  std::vector<std::vector<at::Tensor>> direct(3);
  testing::run_ranks(3, [&](Group& group) { direct[group.rank()] = results_of_all_operations(group); });
  testing::run_ranks(3,
                     [&](Group& group) {
                       const auto staged = results_of_all_operations(group);
                       ASSERT_EQ(staged.size(), direct[group.rank()].size());
                       for (size_t i = 0; i < staged.size(); ++i) {
                         EXPECT_TRUE(at::equal(staged[i], direct[group.rank()][i]))
                             << "result " << i << " of rank " << group.rank();
                       }
                     },
                     {.kind = BackendKind::gloo_staged});
}

TEST(Staging, TheTensorsThemselvesAreLeftAloneUntilSomebodyWaits) {
  testing::run_ranks(2,
                     [](Group& group) {
                       const at::Tensor tensor = at::ones({4});
                       Handle handle = all_reduce_async(group, tensor);
                       barrier(group);  // behind the reduction
                       EXPECT_TRUE(at::equal(tensor, at::ones({4})));
                       handle.wait();
                       EXPECT_TRUE(at::equal(tensor, at::full({4}, 2.0)));
                     },
                     {.kind = BackendKind::gloo_staged});
}

TEST(CountDevices, SaysTheSameToEveryRank) {
  const std::vector<std::vector<std::string>> jobs{{"a"}, {"a", "b"}, {"a", "a"}, {"a", "b", "a", "a"}};
  const std::vector<int> expected{1, 2, 1, 2};
  for (size_t job = 0; job < jobs.size(); ++job) {
    const auto store = Rendezvous::in_process();
    const int ranks = static_cast<int>(jobs[job].size());
    std::vector<int> counted(jobs[job].size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < counted.size(); ++rank) {
      threads.emplace_back([&, rank] { counted[rank] = count_devices(store, ranks, jobs[job][rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(counted, std::vector<int>(counted.size(), expected[job])) << "job " << job;
  }
}

}  // namespace
}  // namespace taut::comm
