#include "runtime/train/microbatch_feed.h"

#include "runtime/comm/collectives.h"
#include "taut.h"

namespace taut::train {

MicrobatchFeed::MicrobatchFeed(const config::Config& config, comm::Communicator& communicator, at::Device device,
                               int64_t first_step)
    : communicator_(communicator),
      device_(device),
      shape_{config.train_micro_batch_size_per_gpu, config.model.seq_length + 1},
      needed_(communicator.at().pp == 0 || communicator.at().pp + 1 == communicator.size().pp) {
  if (!needed_ || communicator.at().tp != 0 || first_step >= config.train_steps) return;
  loader_ =
      std::make_unique<data::Loader>(config, data::LoaderPlace{communicator.at().dp, communicator.rank()}, first_step);
}

at::Tensor MicrobatchFeed::next(int64_t step, int microbatch) {
  at::Tensor tokens;
  if (loader_) {
    const data::Batch batch = loader_->next();
    if (batch.step != step || batch.microbatch != microbatch || batch.rows != shape_[0] || batch.columns != shape_[1]) {
      throw Error("the loader handed over microbatch " + std::to_string(batch.microbatch) + " of step " +
                  std::to_string(batch.step) + ", expected " + std::to_string(microbatch) + " of " +
                  std::to_string(step));
    }
    // No copy: the slot is the tensor's, and goes back to the workers with the tensor's last reference, after the
    // backward pass. Nobody writes to tokens.
    tokens = at::from_blob(
        const_cast<int64_t*>(batch.tokens), shape_, [slot = batch.slot](void*) mutable { slot.reset(); }, at::kLong);
  } else {
    tokens = at::empty(shape_, at::kLong);
  }
  tokens = tokens.to(device_);
  comm::broadcast(communicator_.tp(), tokens, 0);
  return tokens;
}

}  // namespace taut::train
