#include "runtime/data/recipe.h"

#include <algorithm>
#include <cmath>

#include "runtime/data/text.h"
#include "taut.h"

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

/// Tokens of the corpus, ends of documents included; counts no further than needed to see that there are `enough`.
uint64_t count_tokens(const TextSource& source, uint64_t enough) {
  const std::vector<Document>& documents = source.corpus.documents();
  if (source.tokenizer.is_byte()) return source.corpus.bytes() + documents.size();
  uint64_t tokens = 0;
  std::string text;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < documents.size() && tokens < enough; ++i) {
    for (uint64_t offset = 0; offset < documents[i].bytes && tokens < enough; offset += text.size()) {
      text.clear();
      ids.clear();
      source.corpus.read(i, offset, kPieceBytes, text);
      source.tokenizer.encode(without_torn_end(without_torn_begin(text)), ids);
      tokens += ids.size();
    }
    ++tokens;
  }
  return tokens;
}

void check_length(const config::Config& config, uint64_t tokens) {
  const auto needed = static_cast<uint64_t>(config.model.seq_length) + 1;
  if (tokens >= needed) return;
  throw Error("the data are shorter than one sequence: data.path '" + config.data.path + "' holds " +
                  std::to_string(tokens) + " tokens, model.seq_length " + std::to_string(config.model.seq_length) +
                  " needs " + std::to_string(needed),
              tokens > 1 ? "set model.seq_length to " + std::to_string(tokens - 1) + " or less, or give more data"
                         : "give more data");
}

}  // namespace

Recipe make_recipe(const config::Config& config, const Source& source) {
  Recipe recipe = base_recipe(config);
  if (std::holds_alternative<std::monostate>(source)) {
    recipe.mock = true;
    recipe.order.samples = kMockSamples;
    return recipe;
  }
  recipe.read_latency_ms = config.data.read_latency_ms;
  const auto seq_length = static_cast<uint64_t>(recipe.seq_length);
  if (const auto* file = std::get_if<TokenFile>(&source)) {
    check_length(config, file->tokens());
    recipe.order.samples = (file->tokens() - 1) / seq_length;
    return recipe;
  }
  const auto& text = std::get<TextSource>(source);
  check_length(config, count_tokens(text, seq_length + 1));
  const double stride = static_cast<double>(seq_length) * mean_bytes_per_token(text.corpus, text.tokenizer);
  recipe.stride_bytes = static_cast<uint64_t>(std::llround(stride));
  recipe.order.samples = std::max<uint64_t>(1, text.corpus.bytes() / recipe.stride_bytes);
  return recipe;
}

}  // namespace taut::data
