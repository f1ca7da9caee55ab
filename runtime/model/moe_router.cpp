#include "runtime/model/moe_router.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>

#include "runtime/comm/collectives.h"

namespace taut::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

struct AttachLoss : torch::autograd::Function<AttachLoss> {
  static Variable forward(AutogradContext* ctx, const Variable& output, const Variable&, double gradient) {
    ctx->saved_data["gradient"] = gradient;
    return output.view_as(output);
  }
  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const at::Tensor of_loss =
        at::full({}, ctx->saved_data["gradient"].toDouble(), gradients[0].options().dtype(at::kFloat));
    return {gradients[0], of_loss, Variable()};
  }
};

/// Choices of each expert by every chunk of the microbatch, in the order of the batch.
struct ChunkCounts {
  at::Tensor here;    // [chunks here, experts] int64, chunks in memory order
  at::Tensor before;  // [chunks here, experts]: choices of all chunks before each of them, of every rank
  at::Tensor total;   // [experts]: choices of the whole microbatch
};

/// `mask` int64 [batch, seq_local, experts]. Without cp a "chunk" is the whole rank's part.
ChunkCounts count_chunks(const at::Tensor& mask, comm::Group* cp, bool zig_zag) {
  const int64_t batch = mask.size(0), experts = mask.size(2);
  ChunkCounts counts;
  if (!cp || cp->size() == 1) {
    counts.here = mask.sum(at::IntArrayRef{0, 1}).unsqueeze(0);
    counts.before = at::zeros_like(counts.here);
    counts.total = counts.here[0];
    return counts;
  }
  // Of every sequence rank r holds chunk r and, zig-zag, chunk 2 · cp − 1 − r after it.
  const int64_t ranks = cp->size(), own = cp->rank(), held = zig_zag ? 2 : 1, chunks = held * ranks;
  const at::Tensor mine = mask.view({batch, held, mask.size(1) / held, experts}).sum(2).contiguous();
  at::Tensor all = at::empty({ranks * batch, held, experts}, mine.options());
  comm::all_gather_into_tensor(*cp, all, mine, {.reason = comm::Reason::routing});
  all = all.view({ranks, batch, held, experts});
  at::Tensor ordered = all.select(2, 0);  // [chunks, batch, experts], in the order of the sequence
  if (zig_zag) ordered = at::cat({ordered, all.select(2, 1).flip(0)});
  ordered = ordered.transpose(0, 1).reshape({batch * chunks, experts});
  const at::Tensor before = (ordered.cumsum(0) - ordered).view({batch, chunks, experts});
  counts.here = mine.view({held * batch, experts});
  counts.before = before.narrow(1, own, 1);
  if (zig_zag) counts.before = at::cat({counts.before, before.narrow(1, chunks - 1 - own, 1)}, 1);
  counts.before = counts.before.reshape({-1, experts});
  counts.total = ordered.sum(0);
  return counts;
}

std::vector<int64_t> to_vector(const at::Tensor& counts) {
  const at::Tensor host = counts.to(at::kCPU).contiguous();
  const int64_t* first = host.const_data_ptr<int64_t>();
  return {first, first + host.numel()};
}

}  // namespace

int64_t expert_capacity(double factor, int64_t topk, int64_t tokens, int64_t experts) {
  const double even = static_cast<double>(topk * tokens) / static_cast<double>(experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(factor * even)));
}

Routing route(const at::Tensor& logits, const RouterSettings& settings, comm::Group* cp) {
  const int64_t tokens = logits.size(0) * logits.size(1), all_tokens = tokens * (cp ? cp->size() : 1);
  const at::Tensor flat = logits.reshape({tokens, settings.experts});
  const at::Tensor probabilities = at::softmax(flat, -1);

  Routing routing;
  routing.chosen = std::get<1>(at::topk(probabilities.detach(), settings.topk, -1));
  at::Tensor total;  // [experts]: choices of the whole microbatch
  {
    const at::NoGradGuard no_grad;
    const at::Tensor mask =
        at::zeros({tokens, settings.experts}, flat.options().dtype(at::kLong)).scatter_(-1, routing.chosen, 1);
    const bool across_ranks = settings.capacity_factor || settings.aux_loss_coeff > 0;
    const ChunkCounts counts =
        count_chunks(mask.view({logits.size(0), logits.size(1), settings.experts}), across_ranks ? cp : nullptr,
                     settings.zig_zag);
    total = counts.total;

    at::Tensor taken = mask;
    if (settings.capacity_factor) {
      const int64_t capacity = expert_capacity(*settings.capacity_factor, settings.topk, all_tokens, settings.experts);
      const int64_t chunks = counts.here.size(0);
      const at::Tensor by_chunk = mask.view({chunks, tokens / chunks, settings.experts});
      const at::Tensor place = by_chunk.cumsum(1) - by_chunk + counts.before.unsqueeze(1);
      taken = mask * place.view_as(mask).lt(capacity);
      routing.kept = taken.gather(-1, routing.chosen).to(at::kBool);
    }
    routing.position = (taken.cumsum(0) - taken).gather(-1, routing.chosen);

    const at::Tensor here = counts.here.sum(0);
    routing.tokens_per_expert = to_vector(here);
    routing.dropped_per_expert.assign(static_cast<size_t>(settings.experts), 0);
    if (settings.capacity_factor) routing.dropped_per_expert = to_vector(here - taken.sum(0));
  }

  routing.weights = probabilities.gather(-1, routing.chosen);
  if (settings.topk > 1) routing.weights = routing.weights / routing.weights.sum(-1, /*keepdim=*/true);
  if (routing.kept.defined()) routing.weights = routing.weights * routing.kept;

  const double share = 1.0 / static_cast<double>(all_tokens);
  if (settings.aux_loss_coeff > 0) {
    const double scale = settings.aux_loss_coeff * static_cast<double>(settings.experts) * share * share /
                         static_cast<double>(settings.topk);
    routing.aux_loss = (probabilities.sum(0) * total.to(at::kFloat)).sum() * scale;
  }
  if (settings.z_loss_coeff > 0) {
    const at::Tensor z = at::logsumexp(flat, at::IntArrayRef{-1}).square().sum() * (settings.z_loss_coeff * share);
    routing.aux_loss = routing.aux_loss.defined() ? routing.aux_loss + z : z;
  }
  return routing;
}

at::Tensor attach_loss(const at::Tensor& output, const at::Tensor& loss, double gradient) {
  return AttachLoss::apply(output, loss, gradient);
}

}  // namespace taut::model
