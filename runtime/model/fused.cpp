#include "runtime/model/fused.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "runtime/parallel/element.h"

namespace taut::model {
namespace {

using parallel::element_of;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

// Everything runs on the default stream, which is stream 0.
constexpr void* kStream = nullptr;

bool has_kernel(const at::Tensor& tensor) {
  return tensor.is_cpu() || tensor.is_cuda();
}

template <class T>
T* at_row(T* pointer, int64_t row, int64_t width, int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const char, char>;
  return static_cast<T*>(static_cast<Byte*>(pointer) + row * width * bytes);
}

int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, width));
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Variable forward(AutogradContext* ctx, const Variable& input, const Variable& weight, double epsilon,
                          at::ScalarType output) {
    const at::Tensor x = input.contiguous();
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const at::Tensor y = at::empty_like(x, x.options().dtype(output)), inverse = at::empty({rows}, x.options());
    const kernels::RmsNormForward work{x.const_data_ptr<float>(),
                                       weight.const_data_ptr<float>(),
                                       y.data_ptr(),
                                       inverse.data_ptr<float>(),
                                       element_of(y),
                                       rows,
                                       width,
                                       static_cast<float>(epsilon)};
    if (x.is_cuda()) {
      kernels::rms_norm_forward_cuda(work, kStream);
    } else {
      at::parallel_for(0, rows, rows_per_task(width), [&](int64_t first, int64_t last) {
        kernels::RmsNormForward part = work;
        part.x += first * width;
        part.y = at_row(part.y, first, width, y.element_size());
        part.inverse += first;
        part.rows = last - first;
        kernels::rms_norm_forward_cpu(part);
      });
    }
    ctx->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
    const at::Tensor dy = gradients[0].contiguous(), dx = at::empty_like(x);
    const int64_t width = x.size(-1), rows = x.numel() / width;
    kernels::RmsNormBackward work{x.const_data_ptr<float>(),
                                  weight.const_data_ptr<float>(),
                                  inverse.const_data_ptr<float>(),
                                  dy.const_data_ptr(),
                                  dx.data_ptr<float>(),
                                  nullptr,
                                  element_of(dy),
                                  rows,
                                  width};
    if (x.is_cuda()) {
      const at::Tensor dweight = at::zeros_like(weight);
      work.dweight = dweight.data_ptr<float>();
      kernels::rms_norm_backward_cuda(work, kStream);
      return {dx, dweight, Variable(), Variable()};
    }
    // One partial sum of the weight's gradient per fixed chunk: the result does not depend on the thread count.
    const int64_t chunk = std::max<int64_t>(64, (rows + 63) / 64), chunks = (rows + chunk - 1) / chunk;
    const at::Tensor partial = at::zeros({chunks, width}, x.options());
    float* sums = partial.data_ptr<float>();
    at::parallel_for(0, chunks, 1, [&](int64_t first_chunk, int64_t last_chunk) {
      for (int64_t c = first_chunk; c < last_chunk; ++c) {
        const int64_t first = c * chunk;
        kernels::RmsNormBackward part = work;
        part.x += first * width;
        part.inverse += first;
        part.dy = at_row(part.dy, first, width, dy.element_size());
        part.dx += first * width;
        part.dweight = sums + c * width;
        part.rows = std::min(rows, first + chunk) - first;
        kernels::rms_norm_backward_cpu(part);
      }
    });
    return {dx, partial.sum(0), Variable(), Variable()};
  }
};

/// `input` [batch, seq, heads, head_dim], turned by the angles of its position, into `output`, which may be a part of a
/// wider tensor's heads.
void turn_heads(const at::Tensor& input, const at::Tensor& output, const at::Tensor& cos, const at::Tensor& sin,
                float direction) {
  const int64_t batch = input.size(0), seq = input.size(1), heads = input.size(2), head_dim = input.size(3);
  const bool rows_are_regular =
      input.stride(3) == 1 && input.stride(2) == head_dim && input.stride(0) == seq * input.stride(1);
  const at::Tensor x = rows_are_regular ? input : input.contiguous();
  const kernels::Rope work{x.const_data_ptr(),
                           output.data_ptr(),
                           element_of(x),
                           0,
                           batch * seq,
                           x.stride(1),
                           output.stride(1),
                           heads,
                           head_dim,
                           seq,
                           cos.const_data_ptr<float>(),
                           sin.const_data_ptr<float>(),
                           direction};
  if (x.is_cuda()) {
    kernels::rope_cuda(work, kStream);
    return;
  }
  at::parallel_for(0, work.rows, rows_per_task(heads * head_dim), [&](int64_t first, int64_t last) {
    kernels::Rope part = work;
    part.first_row = first;
    part.rows = last - first;
    kernels::rope_cpu(part);
  });
}

struct SplitHeads : torch::autograd::Function<SplitHeads> {
  static variable_list forward(AutogradContext* ctx, const Variable& packed, int64_t heads, int64_t groups,
                               const Variable& cos, const Variable& sin) {
    ctx->save_for_backward({cos, sin});
    ctx->saved_data["heads"] = heads;
    ctx->saved_data["groups"] = groups;
    // Each a tensor of its own, since what follows wants them dense.
    const auto turned = [&](int64_t first, int64_t count) {
      const at::Tensor part = packed.narrow(2, first, count), own = at::empty(part.sizes(), part.options());
      turn_heads(part, own, cos, sin, 1.0f);
      return own;
    };
    return {turned(0, heads), turned(heads, groups), packed.narrow(2, heads + groups, groups).contiguous()};
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const int64_t heads = ctx->saved_data["heads"].toInt(), groups = ctx->saved_data["groups"].toInt();
    std::vector<int64_t> shape = gradients[0].sizes().vec();
    shape[2] = heads + 2 * groups;
    const at::Tensor packed = at::empty(shape, gradients[0].options());
    turn_heads(gradients[0], packed.narrow(2, 0, heads), saved[0], saved[1], -1.0f);
    turn_heads(gradients[1], packed.narrow(2, heads, groups), saved[0], saved[1], -1.0f);
    packed.narrow(2, heads + groups, groups).copy_(gradients[2]);
    return {packed, Variable(), Variable(), Variable(), Variable()};
  }
};

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Variable forward(AutogradContext* ctx, const Variable& input) {
    const at::Tensor gate_up = input.contiguous();
    std::vector<int64_t> shape = gate_up.sizes().vec();
    shape.back() /= 2;
    const at::Tensor y = at::empty(shape, gate_up.options());
    const int64_t width = shape.back(), bytes = y.element_size();
    const kernels::SwigluForward work{gate_up.const_data_ptr(), y.data_ptr(), element_of(y), y.numel() / width, width};
    if (y.is_cuda()) {
      kernels::swiglu_forward_cuda(work, kStream);
    } else {
      at::parallel_for(0, work.rows, rows_per_task(width), [&](int64_t first, int64_t last) {
        kernels::SwigluForward part = work;
        part.gate_up = at_row(part.gate_up, first, 2 * width, bytes);
        part.y = at_row(part.y, first, width, bytes);
        part.rows = last - first;
        kernels::swiglu_forward_cpu(part);
      });
    }
    ctx->save_for_backward({gate_up});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& gate_up = saved[0];
    const at::Tensor dy = gradients[0].contiguous(), dgate_up = at::empty_like(gate_up);
    const int64_t width = dy.size(-1), bytes = dy.element_size();
    const kernels::SwigluBackward work{gate_up.const_data_ptr(), dy.const_data_ptr(), dgate_up.data_ptr(),
                                       element_of(gate_up),      dy.numel() / width,  width};
    if (dy.is_cuda()) {
      kernels::swiglu_backward_cuda(work, kStream);
      return {dgate_up};
    }
    at::parallel_for(0, work.rows, rows_per_task(width), [&](int64_t first, int64_t last) {
      kernels::SwigluBackward part = work;
      part.gate_up = at_row(part.gate_up, first, 2 * width, bytes);
      part.dy = at_row(part.dy, first, width, bytes);
      part.dgate_up = at_row(part.dgate_up, first, 2 * width, bytes);
      part.rows = last - first;
      kernels::swiglu_backward_cpu(part);
    });
    return {dgate_up};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon, at::ScalarType output) {
  if (has_kernel(input)) return RmsNorm::apply(input, weight, epsilon, output);
  return at::rms_norm(input, weight.sizes(), weight, epsilon).to(output);
}

QueryKeyValue split_heads(const at::Tensor& packed, int64_t heads, int64_t groups, const at::Tensor& cos,
                          const at::Tensor& sin) {
  if (cos.defined() && has_kernel(packed)) {
    const auto parts = SplitHeads::apply(packed, heads, groups, cos, sin);
    return {parts[0], parts[1], parts[2]};
  }
  const auto turned = [&](const at::Tensor& part) {
    if (!cos.defined()) return part;
    const auto halves = part.chunk(2, -1);
    const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);  // [seq, 1, half]
    return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1).to(part.scalar_type());
  };
  return {turned(packed.narrow(2, 0, heads)), turned(packed.narrow(2, heads, groups)),
          packed.narrow(2, heads + groups, groups)};
}

at::Tensor swiglu(const at::Tensor& gate_up) {
  if (has_kernel(gate_up)) return Swiglu::apply(gate_up);
  const auto halves = gate_up.chunk(2, -1);
  return at::silu(halves[0]) * halves[1];
}

}  // namespace taut::model
