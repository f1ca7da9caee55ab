#include "kernels/instruction_set.h"

namespace taut::kernels {

std::vector<InstructionSet> supported_instruction_sets() {
  std::vector<InstructionSet> sets{InstructionSet::plain};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) {
    sets.push_back(InstructionSet::avx2);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw")) {
      sets.push_back(InstructionSet::avx512);
    }
  }
#endif
  return sets;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = supported_instruction_sets().back();
  return best;
}

}  // namespace taut::kernels
