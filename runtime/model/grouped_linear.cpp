#include "runtime/model/grouped_linear.h"

#include <torch/csrc/autograd/custom_function.h>

namespace taut::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct GroupedLinear : torch::autograd::Function<GroupedLinear> {
  static Variable forward(AutogradContext* ctx, const Variable& input, at::TensorList weights,
                          const std::vector<int64_t>& rows_per_group) {
    at::Tensor output = at::empty({input.size(0), weights[0].size(0)}, input.options());
    int64_t first = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const int64_t rows = rows_per_group[i];
      if (rows == 0) continue;
      at::Tensor part = output.narrow(0, first, rows);
      at::mm_out(part, input.narrow(0, first, rows), weights[i].t());
      first += rows;
    }
    variable_list saved{input};
    saved.insert(saved.end(), weights.begin(), weights.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["rows"] = rows_per_group;
    return output;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto rows_per_group = ctx->saved_data["rows"].toIntVector();
    const at::Tensor& input = saved[0];
    const at::Tensor gradient = gradients[0].contiguous();
    const at::Tensor of_input = at::empty_like(input);
    variable_list result{of_input};
    int64_t first = 0;
    for (size_t i = 0; i < rows_per_group.size(); ++i) {
      const at::Tensor& weight = saved[i + 1];
      const int64_t rows = rows_per_group[i];
      if (rows == 0) {
        result.push_back(at::zeros_like(weight));
        continue;
      }
      const at::Tensor part = gradient.narrow(0, first, rows);
      at::Tensor of_part = of_input.narrow(0, first, rows);
      at::mm_out(of_part, part, weight);
      result.push_back(at::mm(part.t(), input.narrow(0, first, rows)));
      first += rows;
    }
    result.emplace_back();
    return result;
  }
};

}  // namespace

at::Tensor grouped_linear(const at::Tensor& input, const std::vector<at::Tensor>& weights,
                          const std::vector<int64_t>& rows_per_group) {
  return GroupedLinear::apply(input, at::TensorList(weights), rows_per_group);
}

}  // namespace taut::model
