// Buffers that go back to a stock when nobody looks at them any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace taut::data {

/// Thread safety: take() is for one thread; buffers may be dropped by any, also after the stock's end.
class Buffers {
 public:
  /// Buffers of `tokens` ids each.
  explicit Buffers(size_t tokens) : tokens_(tokens), stock_(std::make_shared<Stock>()) {}

  /// A buffer with any content, returned to the stock with the last copy of the pointer.
  std::shared_ptr<int64_t> take() {
    std::unique_ptr<int64_t[]> buffer;
    {
      const std::scoped_lock lock(stock_->mutex);
      if (!stock_->idle.empty()) {
        buffer = std::move(stock_->idle.back());
        stock_->idle.pop_back();
      }
    }
    if (!buffer) buffer = std::make_unique_for_overwrite<int64_t[]>(tokens_);
    return {buffer.release(), [stock = stock_](int64_t* used) {
              const std::scoped_lock lock(stock->mutex);
              stock->idle.emplace_back(used);
            }};
  }

 private:
  struct Stock {
    std::mutex mutex;
    std::vector<std::unique_ptr<int64_t[]>> idle;
  };

  size_t tokens_;
  std::shared_ptr<Stock> stock_;
};

}  // namespace taut::data
