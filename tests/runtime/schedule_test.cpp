#include "runtime/parallel/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "runtime/config/pipeline_math.h"
#include "taut.h"

namespace taut::parallel {
namespace {

using config::PipelineSchedule;

struct Kind {
  const char* name;
  PipelineSchedule schedule;
  int chunks;
};
constexpr Kind kKinds[] = {{"gpipe", PipelineSchedule::gpipe, 1},
                           {"1f1b", PipelineSchedule::one_f_one_b, 1},
                           {"interleaved, 1 chunk", PipelineSchedule::interleaved_1f1b, 1},
                           {"interleaved, 2 chunks", PipelineSchedule::interleaved_1f1b, 2},
                           {"interleaved, 3 chunks", PipelineSchedule::interleaved_1f1b, 3},
                           {"interleaved, 4 chunks", PipelineSchedule::interleaved_1f1b, 4},
                           {"zero_bubble", PipelineSchedule::zero_bubble, 1}};

/// Calls `body(kind, stages, microbatches)` for every size up to p 16, m 64 in which the schedule exists.
template <class Body>
void for_every_size(Body body) {
  for (const Kind& kind : kKinds) {
    for (int p = 1; p <= 16; ++p) {
      const int step = kind.chunks > 1 ? p : 1;
      for (int m = step; m <= 64; m += step) body(kind, p, m);
    }
  }
}

TEST(PipelineSchedule, EverySizeIsValid) {
  for_every_size([](const Kind& kind, int p, int m) {
    EXPECT_NO_THROW(validate(make_schedule(kind.schedule, p, m, kind.chunks))) << kind.name << " p " << p << " m " << m;
  });
}

// The oracles below are the papers' formulas, written out here: see runtime/config/pipeline_math.h.
double bubble_of_the_papers(const Kind& kind, double p, double m, double f, double b, double w) {
  if (kind.schedule != PipelineSchedule::zero_bubble) return (p - 1) / (kind.chunks * m + p - 1);
  const double busy = m * (f + b + w);
  // Below m = p the W of a stage are too few for the gaps: p − m times one W's worth is missing.
  const double idle = (p - 1) * (f + b - w) + (m < p ? (p - m) * w : 0);
  return idle / (busy + idle);
}

TEST(PipelineSchedule, BubbleIsTheClosedForm) {
  double largest_error = 0, largest_error_of_math = 0;
  int sizes = 0;
  for_every_size([&](const Kind& kind, int p, int m) {
    // Equal costs; of the smaller ones also those of real layers and a backward that is cheaper than the forward.
    for (const auto& [f, b, w] : {std::tuple(1.0, 1.0, 1.0), {1.0, 1.3, 0.8}, {1.2, 1.0, 0.9}}) {
      if (f + b + w != 3.0 && (p > 6 || m > 16)) continue;
      const Schedule schedule = make_schedule(kind.schedule, p, m, kind.chunks);
      const double expected = bubble_of_the_papers(kind, p, m, f, b, w);
      const double v = kind.chunks;
      const double bubble = schedule.splits_backward ? simulate(schedule, f, b, w).bubble_fraction
                                                     : simulate(schedule, f / v, (b + w) / v).bubble_fraction;
      const double math = config::ideal_bubble_fraction(kind.schedule, p, m, kind.chunks, {f, b, w});
      largest_error = std::max(largest_error, std::abs(bubble - expected));
      largest_error_of_math = std::max(largest_error_of_math, std::abs(math - expected));
      ASSERT_NEAR(bubble, expected, 1e-9) << kind.name << " p " << p << " m " << m << " costs " << f << b << w;
      ASSERT_NEAR(math, expected, 1e-9) << kind.name << " p " << p << " m " << m << " costs " << f << b << w;
      ++sizes;
    }
  });
  std::printf("largest error of the bubble fraction over %d pipelines: simulated %.1e, pipeline_math %.1e\n", sizes,
              largest_error, largest_error_of_math);
}

TEST(PipelineSchedule, ZeroBubbleIsAThirdOf1f1b) {
  // Over the ideal 3m: (p − 1)/(3m) against (p − 1)/m.
  for (const auto& [p, m] : {std::pair(2, 2), {4, 8}, {8, 32}, {16, 64}}) {
    const double ideal = 3.0 * m;
    EXPECT_NEAR(simulate(zero_bubble(p, m), 1, 1, 1).span / ideal - 1, (p - 1) / ideal, 1e-12);
    EXPECT_NEAR(simulate(one_forward_one_backward(p, m), 1, 2).span / ideal - 1, double(p - 1) / m, 1e-12);
  }
}

TEST(PipelineSchedule, MicrobatchesInFlightAreTheClosedForm) {
  for_every_size([](const Kind& kind, int p, int m) {
    const Schedule schedule = make_schedule(kind.schedule, p, m, kind.chunks);
    for (int s = 0; s < p; ++s) {
      int expected = std::min(p - s, m);  // 1f1b
      if (kind.schedule == PipelineSchedule::gpipe) expected = m;
      if (kind.schedule == PipelineSchedule::zero_bubble) expected = std::min(p, m);
      if (kind.chunks > 1) {  // Megatron's warm-up, and the forward before the first backward
        expected = std::min(2 * (p - s - 1) + (kind.chunks - 1) * p + 1, m * kind.chunks);
      }
      ASSERT_EQ(peak_in_flight(schedule.programs[s]), expected) << kind.name << " p " << p << " m " << m << " s " << s;
      if (p == 1) continue;
      ASSERT_EQ(config::passes_in_flight(kind.schedule, p, s, m, kind.chunks), expected);
    }
  });
  EXPECT_EQ(config::passes_in_flight(PipelineSchedule::gpipe, 1, 0, 8), 1) << "one stage accumulates";
}

// The first passes of Megatron-LM's interleaved schedule for p = 2, m = 4, v = 2, as its paper's figure 4 has them.
TEST(PipelineSchedule, InterleavedRunsGroupsOfPMicrobatchesThroughEachChunk) {
  std::string order;
  const Schedule schedule = interleaved(2, 4, 2);
  for (const Action& action : schedule.programs[1]) {
    if (!is_pass(action.kind)) continue;
    order += action.kind == ActionKind::forward ? " F" : " B";
    order += std::to_string(action.microbatch) + "." + std::to_string(action.chunk);
  }
  EXPECT_EQ(order, " F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
}

TEST(PipelineSchedule, VirtualStagesShareTheLayersInTheOrderOfTheirChunks) {
  using Layers = std::vector<int64_t>;
  config::Config config;
  config.model.num_layers = 14;
  config.parallel.pipeline_parallel_size = 4;
  EXPECT_EQ(config::layers_per_virtual_stage(config), (Layers{4, 4, 3, 3}));
  config.parallel.pipeline_layers = Layers{5, 5, 3, 1};
  EXPECT_EQ(config::layers_per_virtual_stage(config), (Layers{5, 5, 3, 1}));
  config.parallel.pipeline_layers.reset();
  config.model.num_layers = 16;
  config.parallel.virtual_pipeline_stages = 2;
  EXPECT_EQ(config::layers_per_virtual_stage(config), Layers(8, 2));  // stage 1 holds layers 2, 3 and 10, 11
}

TEST(PipelineSchedule, RefusesSizesThatDoNotExist) {
  EXPECT_THROW(interleaved(4, 6, 2), Error);
  EXPECT_THROW(interleaved(4, 2, 2), Error);
  EXPECT_THROW(make_schedule(PipelineSchedule::one_f_one_b, 2, 4, 2), Error);
  EXPECT_THROW(make_schedule(PipelineSchedule::zero_bubble, 2, 4, 2), Error);
}

TEST(PipelineSchedule, PrintsAsATimeTable) {
  // Worked out by hand with a forward of one and a backward of two columns: stage 1 has its first gradient ready at 4.
  EXPECT_EQ(to_text(one_forward_one_backward(2, 2)),
            "stage 0 | F0 F1       B0       B1\n"
            "stage 1 |    F0 B0    F1 B1\n");
  EXPECT_EQ(to_text(gpipe(2, 2)),
            "stage 0 | F0 F1          B0    B1\n"
            "stage 1 |    F0 F1 B0    B1\n");
  EXPECT_EQ(to_text(zero_bubble(2, 3)),
            "stage 0 | F0 F1    B0 W0 F2 B1 W1 B2 W2\n"
            "stage 1 |    F0 B0 F1 B1 W0 F2 B2 W1 W2\n");
  EXPECT_EQ(to_text(interleaved(2, 2, 2)),
            "stage 0 | F0.0 F1.0 F0.1 F1.1           B0.1           B1.1      B0.0      B1.0\n"
            "stage 1 |      F0.0 F1.0 F0.1 B0.1      F1.1 B1.1      B0.0      B1.0\n");
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
  EXPECT_NE(why_invalid(schedule).find("the activations of microbatch 0, chunk 0 arrive first"), std::string::npos);
}

// With two stages and two chunks activations and gradients share each direction.
TEST(PipelineSchedule, ValidatorFindsAGradientAwaitedBeforeActivationsThatWereSentFirst) {
  Schedule schedule = interleaved(2, 4, 2);
  auto& program = schedule.programs[1];
  const auto activations = std::find_if(program.begin(), program.end(), [](const Action& a) {
    return a.microbatch == 1 && a.kind == ActionKind::recv_forward;
  });
  const auto gradient =
      std::find_if(program.begin(), program.end(), [](const Action& a) { return a.kind == ActionKind::recv_backward; });
  ASSERT_LT(activations, gradient);
  const Action first = *gradient;
  program.erase(gradient);
  program.insert(activations, first);
  EXPECT_NE(why_invalid(schedule).find("the activations of microbatch 1, chunk 0 arrive first"), std::string::npos)
      << why_invalid(schedule);
}

TEST(PipelineSchedule, ValidatorFindsWeightGradientsOutOfPlace) {
  Schedule schedule = zero_bubble(2, 2);
  EXPECT_EQ(why_invalid(schedule), "");
  auto& program = schedule.programs[1];
  const auto backward =
      std::find_if(program.begin(), program.end(), [](const Action& a) { return a.kind == ActionKind::backward; });
  program.insert(backward, {ActionKind::weight_gradient, 0});
  EXPECT_NE(why_invalid(schedule).find("weight gradient of microbatch 0: before its backward"), std::string::npos);
  Schedule missing = zero_bubble(2, 2);
  missing.programs[0].pop_back();
  EXPECT_NE(why_invalid(missing).find("weight gradient of microbatch 1: is missing"), std::string::npos);
  Schedule whole = gpipe(1, 1);
  whole.programs[0].push_back({ActionKind::weight_gradient, 0});
  EXPECT_NE(why_invalid(whole).find("backward is not split"), std::string::npos);
}

TEST(PipelineSchedule, ValidatorFindsAWrongChunk) {
  Schedule schedule = interleaved(2, 2, 2);
  schedule.programs[0].push_back({ActionKind::forward, 0, 2});
  EXPECT_NE(why_invalid(schedule).find("there is no such chunk"), std::string::npos);
  Schedule missing = interleaved(2, 2, 2);
  std::erase_if(missing.programs[1], [](const Action& a) { return a.chunk == 1 && a.microbatch == 1; });
  EXPECT_NE(why_invalid(missing).find("chunk 1: is missing"), std::string::npos) << why_invalid(missing);
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
