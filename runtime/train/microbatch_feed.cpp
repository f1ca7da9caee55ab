#include "runtime/train/microbatch_feed.h"

#include "runtime/comm/collectives.h"
#include "runtime/data/source.h"
#include "runtime/parallel/context_parallel.h"
#include "taut.h"

namespace taut::train {
namespace {

constexpr comm::ContentTag kTokens{.reason = comm::Reason::token};

}  // namespace

MicrobatchFeed::MicrobatchFeed(const config::Config& config, comm::Communicator& communicator, at::Device device,
                               int64_t first_step)
    : communicator_(communicator),
      device_(device),
      shape_{config.train_micro_batch_size_per_gpu, config.model.seq_length + 1},
      attention_(config.model.attention),
      end_of_document_(config.data.eod_mask_loss ? std::optional(data::end_of_document(config)) : std::nullopt),
      needed_(communicator.at().pp == 0 || communicator.at().pp + 1 == communicator.size().pp) {
  const comm::Coordinates& at = communicator.at();
  if (!needed_ || at.tp != 0 || at.cp != 0 || first_step >= config.train_steps) return;
  loader_ =
      std::make_unique<data::Loader>(config, data::LoaderPlace{communicator.at().dp, communicator.rank()}, first_step);
  if (device_.is_cuda()) pinned_.emplace(loader_->ring_memory());
}

at::Tensor MicrobatchFeed::load(int64_t step, int microbatch) {
  data::Batch batch = loader_->next();
  if (batch.step != step || batch.microbatch != microbatch || batch.rows != shape_[0] || batch.columns != shape_[1]) {
    throw Error("the loader handed over microbatch " + std::to_string(batch.microbatch) + " of step " +
                std::to_string(batch.step) + ", expected " + std::to_string(microbatch) + " of " +
                std::to_string(step));
  }
  // No copy: the tensor keeps the loader's slot. from_blob wants a mutable pointer; the tensor is only read.
  auto* data = const_cast<int64_t*>(batch.tokens);
  return at::from_blob(
      data, shape_, [slot = std::move(batch.slot)](void*) {}, at::kLong);
}

Tokens MicrobatchFeed::next(int64_t step, int microbatch) {
  at::Tensor tokens = (loader_ ? load(step, microbatch) : at::empty(shape_, at::kLong)).to(device_);
  if (communicator_.at().cp == 0) comm::broadcast(communicator_.tp(), tokens, 0, kTokens);
  comm::broadcast(communicator_.cp(), tokens, 0, kTokens);
  const auto part = [&](int64_t first) {
    return parallel::take_sequence(tokens.narrow(1, first, shape_[1] - 1), 1, communicator_.cp().rank(),
                                   communicator_.cp().size(), attention_);
  };
  Tokens parts{part(0), part(1)};
  if (end_of_document_) parts.labels = parts.labels.masked_fill(parts.labels == *end_of_document_, -1);
  return parts;
}

}  // namespace taut::train
