// The instruction sets for which the CPU kernels are compiled. A kernel takes the fastest that the processor has; tests
// ask for each: all give the same result up to rounding.
#pragma once

#include <vector>

namespace taut::kernels {

enum class InstructionSet { plain, avx2, avx512 };

/// Those that this processor has, the fastest last.
std::vector<InstructionSet> supported_instruction_sets();
/// The fastest of them; looked up once.
InstructionSet best_instruction_set();

}  // namespace taut::kernels
