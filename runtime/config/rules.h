// What keys mean together: one function a rule, each of which throws one clear error that names the keys, their values
// and the nearest values that go. validate() lists them in order; a rule may rely on those before it. Rules that fill
// in what was left out take the config by reference.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "runtime/config/config.h"

namespace taut::config {

// rules_model.cpp
void check_model(Config& config);  // fills in num_query_groups and ffn_hidden_size
void check_experts(const Config& config);
void check_expert_placement(const Config& config);

// rules_parallel.cpp
void check_mesh(Config& config);  // fills in world_size
void check_tensor_parallel(const Config& config);
void check_context_parallel(const Config& config);
void check_sequence_parallel(const Config& config);
void check_expert_parallel(const Config& config);

// rules_pipeline.cpp
void check_stages(const Config& config);
void check_virtual_stages(const Config& config);
void check_interleaved_microbatches(const Config& config);  // after check_batch
void check_zero_bubble(const Config& config);

// rules_run.cpp
void check_batch(Config& config);  // fills in the batch numbers
void check_precision(const Config& config);
void check_loss_scale(const Config& config);
void check_learning_rate(Config& config);  // fills in total_num_steps
void check_data(const Config& config);
void check_run(const Config& config);

// rules.cpp
std::string text(int64_t value);

/// "2 × 3".
std::string product(std::initializer_list<int64_t> factors);

/// The divisor of all `values` nearest below `wanted`: what to set instead of a size that does not divide.
int64_t nearest_divisor(std::initializer_list<int64_t> values, int64_t wanted);

/// The smallest multiple of `unit` that is not below `value`.
int64_t next_multiple(int64_t value, int64_t unit);

}  // namespace taut::config
