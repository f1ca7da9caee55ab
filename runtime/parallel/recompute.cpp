#include "runtime/parallel/recompute.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace taut::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

using Part = std::function<at::Tensor(const at::Tensor&)>;

/// Autocast's settings for one device type, as they were when this was made.
struct AutocastSettings {
  explicit AutocastSettings(at::DeviceType device_type)
      : type(device_type),
        enabled(at::autocast::is_autocast_enabled(device_type)),
        dtype(at::autocast::get_autocast_dtype(device_type)),
        caches(at::autocast::is_autocast_cache_enabled()) {}

  void use() const {
    at::autocast::set_autocast_dtype(type, dtype);
    at::autocast::set_autocast_enabled(type, enabled);
    at::autocast::set_autocast_cache_enabled(caches);
  }

  at::DeviceType type;
  bool enabled;
  at::ScalarType dtype;
  bool caches;
};

/// Puts the settings back that it found.
class AutocastGuard {
 public:
  explicit AutocastGuard(at::DeviceType type) : before_(type) {}
  ~AutocastGuard() { before_.use(); }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  AutocastSettings before_;
};

/// What backward needs besides the input; autograd's context carries it as a capsule.
struct Kept : torch::CustomClassHolder {
  Kept(Part part, at::DeviceType type) : f(std::move(part)), autocast(type) {}
  Part f;
  AutocastSettings autocast;
};

struct Recompute : torch::autograd::Function<Recompute> {
  // `anchor` only makes autograd record the call when the input itself needs no gradient.
  static Variable forward(AutogradContext* ctx, const Part& f, const Variable& input, const Variable&) {
    const auto kept = c10::make_intrusive<Kept>(f, input.device().type());
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    ctx->save_for_backward({input});
    // A weight's cast made here has no history; from the cache it would cut the weight off from its gradient.
    const AutocastGuard guard(input.device().type());
    at::autocast::set_autocast_cache_enabled(false);
    return f(input);
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const auto capsule = ctx->saved_data["kept"].toCapsule();
    const Kept& kept = static_cast<const Kept&>(*capsule);
    const at::AutoGradMode grad_mode(true);
    const at::Tensor saved = ctx->get_saved_variables()[0];
    const at::Tensor input = saved.detach();
    if (saved.requires_grad()) input.requires_grad_();
    at::Tensor output;
    {
      const AutocastGuard guard(kept.autocast.type);
      kept.autocast.use();
      output = kept.f(input);
    }
    if (output.requires_grad()) torch::autograd::backward({output}, {gradients[0]});
    return {Variable(), input.grad(), Variable()};
  }
};

}  // namespace

at::Tensor recompute(Part f, const at::Tensor& input) {
  if (!at::GradMode::is_enabled()) return f(input);
  const at::Tensor anchor = at::empty({0}, at::kFloat).requires_grad_(!input.requires_grad());
  return Recompute::apply(std::move(f), input, anchor);
}

}  // namespace taut::parallel
