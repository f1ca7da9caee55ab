#include "runtime/data/recipe.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/text.h"

namespace taut::data {
namespace {

constexpr uint64_t kMockSamples = uint64_t{1} << 40;
constexpr uint64_t kPieces = 16, kPieceBytes = 16 << 10;

double mean_bytes_per_token(const Corpus& corpus, const Tokenizer& tokenizer) {
  if (tokenizer.is_byte()) return 1;
  double bytes = 0;
  std::string text;
  std::vector<int64_t> ids;
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    const Corpus::Position at = corpus.locate(corpus.bytes() / kPieces * piece);
    text.clear();
    corpus.read(at.document, at.offset, kPieceBytes, text);
    const std::string_view whole = without_torn_end(without_torn_begin(text));
    tokenizer.encode(whole, ids);
    bytes += static_cast<double>(whole.size());
  }
  return ids.empty() ? 1 : std::max(1.0, bytes / static_cast<double>(ids.size()));
}

Recipe base_recipe(const config::Config& config) {
  Recipe recipe;
  recipe.seq_length = config.model.seq_length;
  recipe.vocab_size = config.model.vocab_size;
  recipe.shape = {config.train_micro_batch_size_per_gpu, config.gradient_accumulation_steps,
                  config.data_parallel_size()};
  recipe.order = {1, static_cast<uint64_t>(config.data.seed), config.data.shuffle};
  return recipe;
}

}  // namespace

Recipe make_recipe(const config::Config& config, const Corpus& corpus, const Tokenizer& tokenizer) {
  Recipe recipe = base_recipe(config);
  const double stride = static_cast<double>(recipe.seq_length) * mean_bytes_per_token(corpus, tokenizer);
  recipe.stride_bytes = static_cast<uint64_t>(std::llround(stride));
  recipe.order.samples = std::max<uint64_t>(1, corpus.bytes() / recipe.stride_bytes);
  recipe.read_latency_ms = config.data.read_latency_ms;
  return recipe;
}

Recipe make_mock_recipe(const config::Config& config) {
  Recipe recipe = base_recipe(config);
  recipe.mock = true;
  recipe.order.samples = kMockSamples;
  return recipe;
}

}  // namespace taut::data
