// Operations that do not match are found before the backend runs them, and both sides are named on every rank.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "runtime/comm/collectives.h"
#include "runtime/comm/fingerprint.h"
#include "taut.h"
#include "tests/runtime/thread_ranks.h"

namespace taut::comm {
namespace {

using Body = std::function<void(Group&)>;

/// What every rank's call threw; "" where it did not.
std::vector<std::string> errors_of(int ranks, const Body& call, const testing::GroupSettings& settings = {}) {
  std::vector<std::string> errors(ranks);
  testing::run_ranks(
      ranks,
      [&](Group& group) {
        try {
          call(group);
        } catch (const Error& error) {
          errors[group.rank()] = error.what();
        }
      },
      settings);
  return errors;
}

void expect_on_every_rank(const std::vector<std::string>& errors, const std::string& expected) {
  for (const std::string& error : errors) EXPECT_EQ(error, expected);
}

TEST(Mismatch, SizesAreNamedOnEveryRank) {
  expect_on_every_rank(errors_of(2, [](Group& group) { all_reduce(group, at::zeros({group.rank() == 0 ? 8 : 4})); }),
                       "ranks disagree on operation 0 of group tp0: rank 0 calls all_reduce of 32 bytes float32, "
                       "rank 1 calls all_reduce of 16 bytes float32");
}

TEST(Mismatch, TypesAreNamedOnEveryRank) {
  expect_on_every_rank(
      errors_of(3,
                [](Group& group) { all_reduce(group, at::zeros({2}, group.rank() == 2 ? at::kLong : at::kDouble)); }),
      "ranks disagree on operation 0 of group tp0: ranks 0, 1 call all_reduce of 16 bytes float64, rank 2 calls "
      "all_reduce of 16 bytes int64");
}

TEST(Mismatch, OperationsAreNamedOnEveryRank) {
  expect_on_every_rank(
      errors_of(2,
                [](Group& group) {
                  const at::Tensor tensor = at::zeros({4});
                  barrier(group);
                  if (group.rank() == 0) return all_reduce(group, tensor);
                  all_gather_into_tensor(group, at::zeros({8}), tensor);
                }),
      "ranks disagree on operation 1 of group tp0: rank 0 calls all_reduce of 16 bytes float32, rank 1 "
      "calls all_gather of 32 bytes float32");
}

TEST(Mismatch, ReductionAndRootCount) {
  expect_on_every_rank(
      errors_of(2,
                [](Group& group) { all_reduce(group, at::zeros({4}), group.rank() == 0 ? Reduce::sum : Reduce::max); }),
      "ranks disagree on operation 0 of group tp0: rank 0 calls all_reduce of 16 bytes float32, rank 1 calls "
      "all_reduce of 16 bytes float32 (max)");
  expect_on_every_rank(errors_of(2, [](Group& group) { broadcast(group, at::zeros({4}), group.rank()); }),
                       "ranks disagree on operation 0 of group tp0: rank 0 calls broadcast of 16 bytes float32 from "
                       "member 0, rank 1 calls broadcast of 16 bytes float32 from member 1");
}

TEST(Mismatch, RowsThatNobodyExpectsAreNamed) {
  expect_on_every_rank(
      errors_of(2,
                [](Group& group) {
                  // Rank 0 sends three rows to rank 1, which expects two.
                  const bool first = group.rank() == 0;
                  const at::Tensor input = at::zeros({first ? 4 : 2, 5}), output = at::empty({first ? 2 : 3, 5});
                  all_to_all(group, output, input, first ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 1},
                             first ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 1});
                }),
      "ranks disagree on operation 0 of group tp0, all_to_all: rank 0 sends 60 bytes to rank 1, which "
      "expects 40");
}

TEST(Mismatch, AMessageThatDoesNotFitIsNamedByItsReceiver) {
  for (const auto& [sent, expected] : {std::pair(at::zeros({8}), "sends 32 bytes float32"),
                                       std::pair(at::zeros({4}, at::kInt), "sends 16 bytes int32")}) {
    const std::vector<std::string> errors = errors_of(2, [&](Group& group) {
      if (group.rank() == 0) return send(group, sent, 1);
      recv(group, at::zeros({4}), 0);
    });
    EXPECT_EQ(errors[1], "ranks disagree on message 0 of group tp0: rank 0 " + std::string(expected) +
                             ", rank 1 receives 16 bytes float32");
    // The sender learns it from the receiver's last words.
    EXPECT_NE(
        errors[0].find("send failed on group tp0 (operation 0, rank 0, peer rank 1): rank 1 gave up: ranks disagree"),
        std::string::npos)
        << errors[0];
  }
}

TEST(Mismatch, TheGroupGoesOnAfterwards) {
  testing::run_ranks(2, [](Group& group) {
    EXPECT_THROW(all_reduce(group, at::zeros({4 + group.rank()})), Error);
    const at::Tensor value = at::ones({4});
    all_reduce(group, value);
    EXPECT_EQ(value[3].item<float>(), 2.0f);
  });
}

TEST(Mismatch, CheckedForGoodWhereTheConfigAsksForIt) {
  const std::vector<std::string> errors = errors_of(2,
                                                    [](Group& group) {
                                                      for (int i = 0; i < 100; ++i) all_reduce(group, at::zeros({1}));
                                                      all_reduce(group, at::zeros({1 + group.rank()}));
                                                    },
                                                    {.timeout_s = 60, .check = true});
  expect_on_every_rank(errors,
                       "ranks disagree on operation 100 of group tp0: rank 0 calls all_reduce of 4 bytes "
                       "float32, rank 1 calls all_reduce of 8 bytes float32");
}

// The control: everything that matches passes, through the last checked operation and beyond, with several under way.
TEST(Mismatch, OperationsThatMatchKeepTheirOrder) {
  for (const bool check : {false, true}) {
    testing::run_ranks(
        3,
        [](Group& group) {
          std::vector<Handle> handles;
          std::vector<at::Tensor> values;
          for (int i = 0; i < 150; ++i) {
            values.push_back(at::full({1 + i % 7}, static_cast<float>(i), i % 2 ? at::kDouble : at::kFloat));
            handles.push_back(all_reduce_async(group, values.back()));
          }
          const int next = (group.rank() + 1) % 3, before = (group.rank() + 2) % 3;
          std::vector<at::Tensor> received;
          for (int i = 0; i < 150; ++i) {
            received.push_back(at::zeros({1 + i % 5}));
            handles.push_back(recv_async(group, received.back(), before));
            handles.push_back(send_async(group, at::full({1 + i % 5}, static_cast<float>(i)), next));
          }
          for (Handle& handle : handles) handle.wait();
          for (int i = 0; i < 150; ++i) {
            ASSERT_EQ(values[i][0].item<double>(), 3.0 * i);
            ASSERT_EQ(received[i][0].item<double>(), i);
          }
        },
        {.timeout_s = 60, .check = check});
  }
}

TEST(Fingerprint, LongListsOfRanksAreCut) {
  std::vector<Fingerprint> members(20);
  std::vector<int> ranks(20);
  for (int i = 0; i < 20; ++i) ranks[i] = i;
  members[19].op = annotate::CollectiveOp::all_reduce;
  members[19].bytes = 4;
  EXPECT_EQ(
      disagreement(members, ranks, "dp0"),
      "ranks disagree on operation 0 of group dp0: ranks 0, 1, 2, 3, 4, 5, 6, 7 and 11 more call barrier, rank 19 "
      "calls all_reduce of 4 bytes uint8");
}

}  // namespace
}  // namespace taut::comm
