#include "runtime/model/attention.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>

#include <map>
#include <tuple>

#include "runtime/comm/collectives.h"
#include "runtime/model/attention_block.h"
#include "runtime/model/attention_plan.h"

namespace taut::model {
namespace {

using config::Interval;
using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::ScalarType sum_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

/// Rows `intervals` of dimension `dim`, one after the other; a view when that is possible.
at::Tensor take_rows(const at::Tensor& tensor, int64_t dim, const std::vector<Interval>& intervals) {
  if (intervals.size() == 1) return tensor.narrow(dim, intervals[0].first, intervals[0].size());
  std::vector<at::Tensor> parts;
  for (const Interval& rows : intervals) parts.push_back(tensor.narrow(dim, rows.first, rows.size()));
  return at::cat(parts, dim);
}

/// Adds `part`, whose rows are `intervals` of `sum`'s.
void add_rows(const at::Tensor& sum, int64_t dim, const std::vector<Interval>& intervals, const at::Tensor& part) {
  int64_t done = 0;
  for (const Interval& rows : intervals) {
    sum.narrow(dim, rows.first, rows.size()).add_(part.narrow(dim, done, rows.size()));
    done += rows.size();
  }
}

/// Makes the masks of one call's pieces; pieces of the same shape share one.
class Masks {
 public:
  explicit Masks(const at::TensorOptions& options) : options_(options) {}

  BlockMask of(const Piece& piece) {
    if (piece.sees_all()) return {};
    if (piece.causal()) return {false, true, {}};
    const int64_t queries = piece.queries.size(), keys = piece.key_count();
    at::Tensor& bias = made_[{queries, keys, piece.lower, piece.upper}];
    if (!bias.defined()) bias = band_bias(queries, keys, piece.lower, piece.upper, options_);
    return {false, false, bias};
  }

 private:
  at::TensorOptions options_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, at::Tensor> made_;
};

/// Keys and values on their way round: in step j this rank's go to member rank + j, and those of rank − j arrive. Each
/// message is [2 (keys, values), batch, rows, groups, head_dim] of the rows that the receiver needs. The two ends of a
/// message issue it in the same step, so that the messages from one rank to another keep one order at both.
class KeyRing {
 public:
  KeyRing(const at::Tensor& key, const at::Tensor& value, const config::AttentionMask& mask, comm::Group* cp)
      : key_(key), value_(value), mask_(mask), cp_(cp), steps_(size()) {
    for (int step = 0; step < size(); ++step) steps_[step].plan = plan_step(mask, rank(), source(step), size());
  }

  int size() const { return cp_ == nullptr ? 1 : cp_->size(); }
  int rank() const { return cp_ == nullptr ? 0 : cp_->rank(); }
  /// Whose keys this rank works on in `step`.
  int source(int step) const { return (rank() - step + size()) % size(); }
  /// Who works on this rank's keys in `step`.
  int reader(int step) const { return (rank() + step) % size(); }
  const AttentionStep& plan(int step) const { return steps_[step].plan; }
  AttentionStep readers_plan(int step) const { return plan_step(mask_, reader(step), rank(), size()); }

  at::Tensor empty_message(int64_t rows, at::ScalarType type) const {
    return at::empty({2, key_.size(0), rows, key_.size(2), key_.size(3)}, key_.options().dtype(type));
  }

  /// Starts the transfers of `step`; past the last one nothing.
  void start(int step) {
    if (step == 0 || step >= size()) return;
    const std::vector<Interval> wanted = readers_plan(step).rows;
    if (!wanted.empty()) {
      const at::Tensor message = at::stack({take_rows(key_, 1, wanted), take_rows(value_, 1, wanted)});
      sends_.push_back(comm::send_async(*cp_, message, reader(step), {.reason = comm::Reason::activation}));
    }
    Step& coming = steps_[step];
    if (coming.plan.rows.empty()) return;
    coming.message = empty_message(coming.plan.row_count(), key_.scalar_type());
    coming.arrival = comm::recv_async(*cp_, coming.message, source(step), {.reason = comm::Reason::activation});
  }

  /// Keys and values [batch, rows, groups, head_dim] of a step whose plan has rows, once they are here.
  std::pair<at::Tensor, at::Tensor> take(int step) {
    if (step == 0) return {key_, value_};
    steps_[step].arrival.wait();
    const at::Tensor message = std::move(steps_[step].message);
    return {message[0], message[1]};
  }

  void finish() {
    for (comm::Handle& send : sends_) send.wait();
  }

 private:
  struct Step {
    AttentionStep plan;
    at::Tensor message;
    comm::Handle arrival;
  };
  const at::Tensor& key_;
  const at::Tensor& value_;
  config::AttentionMask mask_;
  comm::Group* cp_;
  std::vector<Step> steps_;
  std::vector<comm::Handle> sends_;
};

/// The gradients of keys and values: this rank's own sum, and what travels between ranks on its way home to the owner.
class KeyGradients {
 public:
  KeyGradients(KeyRing& ring, int64_t rows, at::ScalarType type, at::ScalarType wide, comm::Group* cp)
      : ring_(ring), type_(type), wide_(wide), cp_(cp), own_(ring.empty_message(rows, wide).zero_()) {}

  /// Where the pieces of `step` add theirs: [2, batch, rows, groups, head_dim].
  at::Tensor begin(int step) {
    return step == 0 ? own_ : ring_.empty_message(ring_.plan(step).row_count(), wide_).zero_();
  }

  /// Sends `found` home and gets ready for what the reader of this step found.
  void exchange(int step, const at::Tensor& found) {
    if (step == 0) return;
    if (!ring_.plan(step).rows.empty()) {
      sends_.push_back(
          comm::send_async(*cp_, found.to(type_), ring_.source(step), {.reason = comm::Reason::activation_gradient}));
    }
    const AttentionStep theirs = ring_.readers_plan(step);
    if (theirs.rows.empty()) return;
    Homecoming coming{theirs.rows, ring_.empty_message(theirs.row_count(), type_), {}};
    coming.arrival =
        comm::recv_async(*cp_, coming.message, ring_.reader(step), {.reason = comm::Reason::activation_gradient});
    coming_.push_back(std::move(coming));
  }

  /// Keys' and values' gradients [2, batch, rows, groups, head_dim], complete.
  at::Tensor finish() {
    for (Homecoming& coming : coming_) {
      coming.arrival.wait();
      add_rows(own_, 2, coming.rows, coming.message);
    }
    for (comm::Handle& send : sends_) send.wait();
    return own_.to(type_);
  }

 private:
  struct Homecoming {
    std::vector<Interval> rows;
    at::Tensor message;
    comm::Handle arrival;
  };
  KeyRing& ring_;
  at::ScalarType type_, wide_;
  comm::Group* cp_;
  at::Tensor own_;
  std::vector<Homecoming> coming_;
  std::vector<comm::Handle> sends_;
};

at::Tensor heads_first(const at::Tensor& rows_first) {
  return rows_first.transpose(1, 2);
}

at::Tensor query_rows(const at::Tensor& tensor, const Piece& piece) {
  return tensor.narrow(2, piece.queries.first, piece.queries.size());
}

/// Types are those of the inputs, autocast or not: nothing in here may be cast behind our back.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

/// Dense causal attention of a whole sequence as one block.
struct OneBlockAttention : torch::autograd::Function<OneBlockAttention> {
  static Variable forward(AutogradContext* ctx, const Variable& query, const Variable& key, const Variable& value) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const at::Tensor q = heads_first(query);
    const BlockOutput block =
        block_forward(choose_kernel(q, kCausal), q, heads_first(key), heads_first(value), kCausal);
    const at::Tensor result = block.output.transpose(1, 2).flatten(2, 3);
    ctx->save_for_backward({query, key, value, result, block.log_sum_exp});
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &query = saved[0], q = heads_first(query);
    const BlockGradients block = block_backward(
        choose_kernel(q, kCausal), heads_first(gradients[0].contiguous().view(query.sizes())), q, heads_first(saved[1]),
        heads_first(saved[2]), heads_first(saved[3].view(query.sizes())), saved[4], kCausal);
    const auto as_given = [&](const at::Tensor& gradient) { return gradient.transpose(1, 2).to(query.scalar_type()); };
    return {as_given(block.query), as_given(block.key), as_given(block.value)};
  }

  static inline const BlockMask kCausal{false, true, {}};
};

struct PiecewiseAttention : torch::autograd::Function<PiecewiseAttention> {
  static Variable forward(AutogradContext* ctx, const Variable& query, const Variable& key, const Variable& value,
                          const AttentionShape& shape, comm::Group* cp) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const int64_t ranks = cp == nullptr ? 1 : cp->size();
    KeyRing ring(key, value, {shape.kind, shape.window, query.size(1) * ranks}, cp);
    Masks masks(query.options());
    // With one rank each query's only piece is its output; several are merged in a wider type.
    const at::ScalarType wide = sum_type(query);
    const at::Tensor merged = at::empty(query.sizes(), query.options().dtype(ranks == 1 ? query.scalar_type() : wide));
    const at::Tensor log_sum_exp =
        at::empty({query.size(0), query.size(2), query.size(1)}, query.options().dtype(wide));
    const at::Tensor queries = heads_first(query), outputs = heads_first(merged);
    for (int step = 0; step < ring.size(); ++step) {
      ring.start(step + 1);
      if (ring.plan(step).pieces.empty()) continue;
      const auto [keys, values] = ring.take(step);
      for (const Piece& piece : ring.plan(step).pieces) {
        const BlockMask mask = masks.of(piece);
        const at::Tensor q = query_rows(queries, piece);
        const BlockOutput block = block_forward(choose_kernel(q, mask), q, heads_first(take_rows(keys, 1, piece.keys)),
                                                heads_first(take_rows(values, 1, piece.keys)), mask);
        const at::Tensor output = query_rows(outputs, piece), weight = query_rows(log_sum_exp, piece);
        if (step == 0) {
          output.copy_(block.output);
          weight.copy_(block.log_sum_exp);
        } else {
          merge_block(output, weight, block);
        }
      }
    }
    ring.finish();
    const at::Tensor result = merged.to(query.scalar_type()).flatten(2, 3);
    ctx->save_for_backward({query, key, value, result, log_sum_exp});
    ctx->saved_data["kind"] = static_cast<int64_t>(shape.kind);
    ctx->saved_data["window"] = shape.window;
    // autograd's context saves plain values only; the group outlives the graph.
    ctx->saved_data["cp"] = reinterpret_cast<int64_t>(cp);
    return result;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &query = saved[0], &key = saved[1], &value = saved[2], &log_sum_exp = saved[4];
    auto* cp = reinterpret_cast<comm::Group*>(ctx->saved_data["cp"].toInt());
    const auto kind = static_cast<config::Attention>(ctx->saved_data["kind"].toInt());
    const int64_t ranks = cp == nullptr ? 1 : cp->size();
    KeyRing ring(key, value, {kind, ctx->saved_data["window"].toInt(), query.size(1) * ranks}, cp);
    Masks masks(query.options());
    const at::ScalarType wide = sum_type(query);
    KeyGradients key_gradients(ring, key.size(1), query.scalar_type(), wide, cp);
    const at::Tensor query_gradient = at::zeros(query.sizes(), query.options().dtype(wide));
    const at::Tensor queries = heads_first(query), outputs = heads_first(saved[3].view(query.sizes())),
                     output_gradients = heads_first(gradients[0].contiguous().view(query.sizes()));
    for (int step = 0; step < ring.size(); ++step) {
      ring.start(step + 1);
      at::Tensor found;
      if (!ring.plan(step).pieces.empty()) {
        const auto [keys, values] = ring.take(step);
        found = key_gradients.begin(step);
        for (const Piece& piece : ring.plan(step).pieces) {
          const BlockMask mask = masks.of(piece);
          const at::Tensor q = query_rows(queries, piece);
          const BlockGradients block =
              block_backward(choose_kernel(q, mask), query_rows(output_gradients, piece), q,
                             heads_first(take_rows(keys, 1, piece.keys)), heads_first(take_rows(values, 1, piece.keys)),
                             query_rows(outputs, piece), query_rows(log_sum_exp, piece), mask);
          query_rows(heads_first(query_gradient), piece).add_(block.query);
          add_rows(found[0], 1, piece.keys, heads_first(block.key));
          add_rows(found[1], 1, piece.keys, heads_first(block.value));
        }
      }
      key_gradients.exchange(step, found);
    }
    ring.finish();
    const at::Tensor key_and_value = key_gradients.finish();
    return {query_gradient.to(query.scalar_type()), key_and_value[0], key_and_value[1], Variable(), Variable()};
  }
};

}  // namespace

at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionShape& shape, comm::Group* cp) {
  if ((cp != nullptr && cp->size() > 1) || shape.kind != config::Attention::dense) {
    return PiecewiseAttention::apply(query, key, value, shape, cp);
  }
  const at::Tensor q = heads_first(query);
  if (backward_widens(choose_kernel(q, OneBlockAttention::kCausal), q)) {
    return OneBlockAttention::apply(query, key, value);
  }
  const at::Tensor output =
      at::scaled_dot_product_attention(q, heads_first(key), heads_first(value), {}, 0.0,
                                       /*is_causal=*/true, {}, /*enable_gqa=*/key.size(2) < query.size(2));
  return output.transpose(1, 2).flatten(2, 3);
}

}  // namespace taut::model
