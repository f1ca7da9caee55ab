// Makes every LibTorch operator an NVTX push/pop range in domain "PyTorch", forward and backward, so that a trace shows
// what the trainer computes. Operators that only describe or reserve memory (views, empty tensors) and the autograd
// engine's wrappers are left out: they are most of the calls and next to none of the time, which counts for the range
// around them. Costs a few hundred nanoseconds an operator; nothing happens until it is installed.
//
// This header needs no LibTorch; the code is in libtaut_torch.so.
#pragma once

namespace taut::collect {

/// Installs the observer for all threads of this process; a second call does nothing. Thread-safe.
void install_torch_observer();

}  // namespace taut::collect
