// What it buys on one rank and one thread, forward and backward together: the fp32 backward of short 16-bit sequences
// over LibTorch's, and sparse attention in pieces over dense causal attention and over dense attention with the same
// mask handed to it as a tensor. Interleaved, medians, ratios.
#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/config/attention_mask.h"
#include "runtime/model/attention.h"

namespace {

using namespace taut;
using config::Attention;

constexpr int64_t kHeads = 8, kGroups = 8, kHeadDim = 64;
constexpr int kRounds = 5;

at::Tensor mask_tensor(const config::AttentionMask& mask) {
  const at::Tensor visible = at::zeros({mask.seq, mask.seq}, at::kBool);
  auto cells = visible.accessor<bool, 2>();
  for (int64_t i = 0; i < mask.seq; ++i) {
    for (int64_t j = 0; j <= i; ++j) cells[i][j] = config::sees(mask, i, j);
  }
  return visible;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void compare(Attention kind, int64_t window, int64_t seq, at::ScalarType type) {
  const auto options = at::TensorOptions(type);
  const auto leaf = [&](int64_t heads) { return at::randn({1, seq, heads, kHeadDim}, options).requires_grad_(); };
  const at::Tensor query = leaf(kHeads), key = leaf(kGroups), value = leaf(kGroups);
  const at::Tensor gradient = at::randn({1, seq, kHeads * kHeadDim}, options);
  const config::AttentionMask mask{kind, window, seq};
  const at::Tensor visible = mask_tensor(mask);
  const std::function<at::Tensor()> forms[] = {[&] {
                                                 return model::attention(query, key, value, {kind, window}, nullptr);
                                               },
                                               [&] { return model::attention(query, key, value, {}, nullptr); },
                                               [&] {
                                                 return at::scaled_dot_product_attention(query.transpose(1, 2),
                                                                                         key.transpose(1, 2),
                                                                                         value.transpose(1, 2), visible)
                                                     .transpose(1, 2)
                                                     .flatten(2, 3);
                                               }};
  std::vector<double> ms[3];
  for (int round = 0; round < kRounds + 1; ++round) {
    for (int form = 0; form < 3; ++form) {
      const auto start = std::chrono::steady_clock::now();
      forms[form]().backward(gradient);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round > 0) ms[form].push_back(took.count());  // the first warms up
    }
  }
  const double pieces = median(ms[0]), causal = median(ms[1]), masked = median(ms[2]);
  std::printf(
      "%-14s window %4lld, seq %5lld, %s: %7.1f ms; dense causal %7.1f ms (%.2fx), dense with the mask %7.1f ms "
      "(%.2fx); visible pairs %.3f of dense\n",
      kind == Attention::sliding_window ? "sliding_window" : "block_sparse", static_cast<long long>(window),
      static_cast<long long>(seq), type == at::kFloat ? "fp32" : "bf16", pieces, causal, causal / pieces, masked,
      masked / pieces, static_cast<double>(config::visible_pairs(mask)) / static_cast<double>(seq * (seq + 1) / 2));
  std::fflush(stdout);
}

void compare_short(int64_t seq, int64_t head_dim) {
  const auto leaf = [&] { return at::randn({4, seq, kHeads, head_dim}, at::kBFloat16).requires_grad_(); };
  const at::Tensor query = leaf(), key = leaf(), value = leaf();
  const at::Tensor gradient = at::randn({4, seq, kHeads * head_dim}, at::kBFloat16);
  std::vector<double> ms[2];
  for (int round = 0; round < 4 * kRounds + 1; ++round) {
    for (int form = 0; form < 2; ++form) {
      const auto start = std::chrono::steady_clock::now();
      const at::Tensor output = form == 0 ? model::attention(query, key, value, {}, nullptr)
                                          : at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2),
                                                                             value.transpose(1, 2), {}, 0.0, true)
                                                .transpose(1, 2)
                                                .flatten(2, 3);
      output.backward(gradient);
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      if (round > 0) ms[form].push_back(took.count());
    }
  }
  std::printf("dense, seq %4lld, head %3lld, bf16: %7.2f ms; LibTorch's %7.2f ms (%.2fx)\n",
              static_cast<long long>(seq), static_cast<long long>(head_dim), median(ms[0]), median(ms[1]),
              median(ms[1]) / median(ms[0]));
  std::fflush(stdout);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  for (const auto& [seq, head_dim] : {std::pair{128, 32}, {128, 64}, {256, 32}, {256, 64}})
    compare_short(seq, head_dim);
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const auto kind : {Attention::sliding_window, Attention::block_sparse}) {
      for (const int64_t window : {128, 256}) compare(kind, window, 2048, type);
    }
  }
}
