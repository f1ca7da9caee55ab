#include "runtime/model/fused.h"

#include <ATen/Parallel.h>

#include <cmath>

namespace taut::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

int64_t rows_per_task(int64_t row) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(1, row));
}

// Reductions over eight lanes, so that the compiler may vectorise a sum without reordering it differently from one
// build to the next.
constexpr int64_t kLanes = 16;

template <class Term>
inline float lane_sum(int64_t count, Term term) {
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(i + lane);
  }
  float sum = 0;
  for (; i < count; ++i) sum += term(i);
  for (const float lane : lanes) sum += lane;
  return sum;
}

void rms_norm_forward(const float* x, const float* w, float* y, float* inverse, int64_t first, int64_t last,
                      int64_t width, float epsilon) {
  for (int64_t row = first; row < last; ++row) {
    const float* in = x + row * width;
    float* out = y + row * width;
    const float squares = lane_sum(width, [&](int64_t i) { return in[i] * in[i]; });
    const float r = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
    inverse[row] = r;
    for (int64_t i = 0; i < width; ++i) out[i] = in[i] * r * w[i];
  }
}

// dx = r · (w·dy − x · r² · mean(x · w·dy)),  dw += x · r · dy
void rms_norm_backward(const float* x, const float* w, const float* dy, const float* inverse, float* dx, float* dw,
                       int64_t first, int64_t last, int64_t width) {
  for (int64_t row = first; row < last; ++row) {
    const float* in = x + row * width;
    const float* grad = dy + row * width;
    float* out = dx + row * width;
    const float r = inverse[row];
    const float dot = lane_sum(width, [&](int64_t i) { return in[i] * w[i] * grad[i]; });
    const float scale = dot * r * r / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      out[i] = r * (w[i] * grad[i] - in[i] * scale);
      dw[i] += in[i] * r * grad[i];
    }
  }
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Variable forward(AutogradContext* ctx, const Variable& input, const Variable& weight, double epsilon) {
    const at::Tensor x = input.contiguous();
    const int64_t width = x.size(-1), rows = x.numel() / width;
    const at::Tensor y = at::empty_like(x), inverse = at::empty({rows}, x.options());
    at::parallel_for(0, rows, rows_per_task(width), [&](int64_t first, int64_t last) {
      rms_norm_forward(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), y.data_ptr<float>(),
                       inverse.data_ptr<float>(), first, last, width, static_cast<float>(epsilon));
    });
    ctx->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor dy = gradients[0].contiguous();
    const int64_t width = dy.size(-1), rows = dy.numel() / width;
    // One partial sum of the weight's gradient per fixed chunk: the result does not depend on the thread count.
    const int64_t chunk = std::max<int64_t>(64, (rows + 63) / 64), chunks = (rows + chunk - 1) / chunk;
    const at::Tensor dx = at::empty_like(dy), partial = at::zeros({chunks, width}, dy.options());
    at::parallel_for(0, chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) {
        rms_norm_backward(saved[0].const_data_ptr<float>(), saved[1].const_data_ptr<float>(),
                          dy.const_data_ptr<float>(), saved[2].const_data_ptr<float>(), dx.data_ptr<float>(),
                          partial.data_ptr<float>() + c * width, c * chunk, std::min(rows, (c + 1) * chunk), width);
      }
    });
    return {dx, partial.sum(0), Variable()};
  }
};

/// Rows are (batch, position); `in_stride` is their distance in elements, heads lie head_dim apart, `out` is packed.
template <class T>
void rotate(T* out, const T* in, int64_t in_stride, const float* cos, const float* sin, int64_t first, int64_t last,
            int64_t seq, int64_t heads, int64_t half, float direction) {
  for (int64_t row = first; row < last; ++row) {
    const float* c = cos + row % seq * half;
    const float* s = sin + row % seq * half;
    for (int64_t head = 0; head < heads; ++head) {
      const T* a = in + row * in_stride + head * 2 * half;
      T* b = out + (row * heads + head) * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const float low = static_cast<float>(a[i]), high = static_cast<float>(a[i + half]), turn = s[i] * direction;
        b[i] = static_cast<T>(low * c[i] - high * turn);
        b[i + half] = static_cast<T>(high * c[i] + low * turn);
      }
    }
  }
}

at::Tensor rotate_heads(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin, float direction) {
  const int64_t batch = input.size(0), seq = input.size(1), heads = input.size(2), head_dim = input.size(3);
  const bool rows_are_regular =
      input.stride(3) == 1 && input.stride(2) == head_dim && input.stride(0) == seq * input.stride(1);
  const at::Tensor x = rows_are_regular ? input : input.contiguous();
  const at::Tensor y = at::empty({batch, seq, heads, head_dim}, x.options());
  const int64_t stride = x.stride(1);
  at::parallel_for(0, batch * seq, rows_per_task(heads * head_dim), [&](int64_t first, int64_t last) {
    const float *c = cos.const_data_ptr<float>(), *s = sin.const_data_ptr<float>();
    if (x.scalar_type() == at::kBFloat16) {
      rotate(y.data_ptr<at::BFloat16>(), x.const_data_ptr<at::BFloat16>(), stride, c, s, first, last, seq, heads,
             head_dim / 2, direction);
    } else {
      rotate(y.data_ptr<float>(), x.const_data_ptr<float>(), stride, c, s, first, last, seq, heads, head_dim / 2,
             direction);
    }
  });
  return y;
}

struct Rope : torch::autograd::Function<Rope> {
  static Variable forward(AutogradContext* ctx, const Variable& input, const Variable& cos, const Variable& sin) {
    ctx->save_for_backward({cos, sin});
    return rotate_heads(input, cos, sin, 1.0f);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    return {rotate_heads(gradients[0], saved[0], saved[1], -1.0f), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& input, const at::Tensor& weight, double epsilon) {
  if (input.is_cuda()) return at::rms_norm(input, weight.sizes(), weight, epsilon);
  return RmsNorm::apply(input, weight, epsilon);
}

at::Tensor rope(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin) {
  if (!input.is_cuda()) return Rope::apply(input, cos, sin);
  const auto halves = input.chunk(2, -1);
  const at::Tensor c = cos.unsqueeze(1), s = sin.unsqueeze(1);  // [seq, 1, half]
  return at::cat({halves[0] * c - halves[1] * s, halves[1] * c + halves[0] * s}, -1).to(input.scalar_type());
}

}  // namespace taut::model
