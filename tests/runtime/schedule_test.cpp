#include "runtime/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "taut.h"

namespace taut::parallel {
namespace {

using Make = Schedule (*)(int, int);
constexpr std::pair<const char*, Make> kSchedules[] = {{"gpipe", gpipe}, {"1f1b", one_forward_one_backward}};

TEST(PipelineSchedule, EverySizeIsValid) {
  for (const auto& [name, make] : kSchedules) {
    for (int stages = 1; stages <= 8; ++stages) {
      for (int microbatches = 1; microbatches <= 17; ++microbatches) {
        EXPECT_NO_THROW(validate(make(stages, microbatches))) << name << " p " << stages << " m " << microbatches;
      }
    }
  }
}

TEST(PipelineSchedule, BubbleIsTheClosedForm) {
  double largest_error = 0;
  for (const auto& [name, make] : kSchedules) {
    for (const auto& [p, m] : {std::pair(1, 4), {2, 4}, {2, 8}, {4, 4}, {4, 8}, {4, 16}, {8, 32}}) {
      for (const double backward : {1.0, 2.0, 2.7}) {
        const double expected = double(p - 1) / (m + p - 1);
        const double bubble = simulate(make(p, m), 1.0, backward).bubble_fraction;
        largest_error = std::max(largest_error, std::abs(bubble - expected));
        EXPECT_NEAR(bubble, expected, 1e-12) << name << " p " << p << " m " << m << " backward " << backward;
      }
    }
  }
  std::printf("largest error of the bubble fraction: %.1e\n", largest_error);
}

TEST(PipelineSchedule, OneForwardOneBackwardKeepsAtMostPMinusStageInFlight) {
  for (const int p : {1, 2, 4, 7}) {
    for (const int m : {1, 3, 4, 16}) {
      const Schedule schedule = one_forward_one_backward(p, m), all_first = gpipe(p, m);
      for (int stage = 0; stage < p; ++stage) {
        EXPECT_EQ(peak_in_flight(schedule.programs[stage]), std::min(p - stage, m));
        EXPECT_EQ(peak_in_flight(all_first.programs[stage]), m);
      }
    }
  }
}

TEST(PipelineSchedule, PrintsAsATimeTable) {
  // Worked out by hand with a forward of one and a backward of two columns: stage 1 has its first gradient ready at 4.
  EXPECT_EQ(to_text(one_forward_one_backward(2, 2)),
            "stage 0 | F0 F1       B0       B1\n"
            "stage 1 |    F0 B0    F1 B1\n");
  EXPECT_EQ(to_text(gpipe(2, 2)),
            "stage 0 | F0 F1          B0    B1\n"
            "stage 1 |    F0 F1 B0    B1\n");
}

std::string why_invalid(const Schedule& schedule) {
  try {
    validate(schedule);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PipelineSchedule, ValidatorFindsBackwardBeforeForward) {
  Schedule schedule = gpipe(1, 2);
  std::swap(schedule.programs[0][1], schedule.programs[0][2]);  // F0 B0 F1 B1 is fine
  EXPECT_EQ(why_invalid(schedule), "");
  std::swap(schedule.programs[0][0], schedule.programs[0][1]);
  EXPECT_NE(why_invalid(schedule).find("stage 0, backward of microbatch 0: before its forward"), std::string::npos);
}

TEST(PipelineSchedule, ValidatorFindsAMissingSendAsDeadlock) {
  Schedule schedule = one_forward_one_backward(2, 2);
  auto& program = schedule.programs[0];
  program.erase(std::find_if(program.begin(), program.end(),
                             [](const Action& a) { return a.kind == ActionKind::send_forward && a.microbatch == 1; }));
  EXPECT_NE(why_invalid(schedule).find("deadlock"), std::string::npos);
}

TEST(PipelineSchedule, ValidatorFindsAMissingReceive) {
  Schedule schedule = gpipe(2, 1);
  auto& program = schedule.programs[0];
  program.erase(std::remove_if(program.begin(), program.end(),
                               [](const Action& a) { return a.kind == ActionKind::recv_backward; }),
                program.end());
  EXPECT_NE(why_invalid(schedule).find("its gradient was not received"), std::string::npos);
}

TEST(PipelineSchedule, ValidatorFindsMessagesOutOfOrder) {
  Schedule schedule = gpipe(2, 2);
  auto& program = schedule.programs[1];
  for (Action& action : program) {
    if (action.kind == ActionKind::recv_forward || action.kind == ActionKind::forward) {
      action.microbatch = 1 - action.microbatch;
    }
  }
  EXPECT_NE(why_invalid(schedule).find("microbatch 0 arrives first"), std::string::npos);
}

TEST(PipelineSchedule, ValidatorFindsWorkDoneTwiceOrNever) {
  Schedule twice = gpipe(1, 1);
  twice.programs[0].push_back({ActionKind::backward, 0});
  EXPECT_NE(why_invalid(twice).find("happens twice"), std::string::npos);
  Schedule never = gpipe(1, 2);
  never.programs[0].pop_back();
  EXPECT_NE(why_invalid(never).find("backward of microbatch 1: is missing"), std::string::npos);
}

}  // namespace
}  // namespace taut::parallel
