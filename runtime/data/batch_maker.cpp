#include "runtime/data/batch_maker.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "runtime/data/batch.h"
#include "runtime/data/mix.h"
#include "runtime/data/phases.h"
#include "runtime/data/text.h"

namespace taut::data {
namespace {

/// Ids of a generated sample: uniform over the vocabulary.
void generate(uint64_t seed, uint64_t sample, int64_t vocab_size, std::vector<int64_t>& ids, size_t count) {
  const uint64_t key = mix(mix(seed) ^ sample);
  for (size_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int64_t>((mix(key + i) >> 32) * static_cast<uint64_t>(vocab_size) >> 32));
  }
}

}  // namespace

BatchMaker::BatchMaker(Recipe recipe, MakerIdentity identity, Source source, Wait wait)
    : recipe_(std::move(recipe)), identity_(identity), source_(std::move(source)), wait_(std::move(wait)) {
  const auto rows = static_cast<size_t>(recipe_.shape.micro_batch);
  samples_.resize(rows);
  texts_.resize(rows);
  ids_.resize(rows);
  // For bytes this is just enough. Otherwise a margin over the average keeps second reads rare: text with more bytes
  // per token needs them.
  const auto* text = std::get_if<TextSource>(&source_);
  const bool exact = text == nullptr || text->tokenizer.is_byte();
  window_bytes_ = exact ? static_cast<uint64_t>(columns()) : recipe_.stride_bytes * 3 / 2 + 64;
}

uint64_t BatchMaker::make(int64_t batch, int64_t* tokens) {
  const PhaseMarks marks{batch, identity_.rank, identity_.worker, recipe_.shape.micro_batch};
  if (const auto* file = std::get_if<TokenFile>(&source_)) {
    return make_from_tokens(*file, marks, batch, tokens);
  }
  return make_from_text(std::get_if<TextSource>(&source_), marks, batch, tokens);
}

void BatchMaker::choose_samples(int64_t batch) {
  const int64_t microbatches = recipe_.shape.microbatches;
  const uint64_t first = first_position(recipe_.shape, batch / microbatches, batch % microbatches, identity_.dp_rank);
  for (size_t row = 0; row < samples_.size(); ++row) samples_[row] = recipe_.order[first + row];
}

uint64_t BatchMaker::make_from_tokens(const TokenFile& file, const PhaseMarks& marks, int64_t batch, int64_t* tokens) {
  const auto count = static_cast<size_t>(columns());
  const auto row_of = [&](size_t row) { return std::span<int64_t>(tokens + row * count, count); };
  const auto first_of = [&](size_t row) { return samples_[row] * static_cast<uint64_t>(recipe_.seq_length); };
  {
    // Pages come from the disk as they are touched, so what widens the ids is what reads them.
    const auto range = marks.read();
    choose_samples(batch);
    for (size_t row = 0; row < samples_.size(); ++row) {
      if (recipe_.read_latency_ms > 0) wait_(recipe_.read_latency_ms);
      file.read(first_of(row), row_of(row));
    }
  }
  const auto range = marks.pack();
  for (size_t row = 0; row < samples_.size(); ++row) check_ids(file, first_of(row), row_of(row), recipe_.vocab_size);
  return sample_hash({tokens, static_cast<size_t>(tokens_per_batch())});
}

uint64_t BatchMaker::make_from_text(const TextSource* source, const PhaseMarks& marks, int64_t batch, int64_t* tokens) {
  {
    const auto range = marks.read();
    choose_samples(batch);
    for (size_t row = 0; row < samples_.size() && source != nullptr; ++row) {
      if (recipe_.read_latency_ms > 0) wait_(recipe_.read_latency_ms);
      read(*source, samples_[row], window_bytes_, texts_[row]);
    }
  }
  {
    const auto range = marks.tokenize();
    for (size_t row = 0; row < samples_.size(); ++row) {
      ids_[row].clear();
      if (source == nullptr) {
        generate(recipe_.order.seed, samples_[row], recipe_.vocab_size, ids_[row], static_cast<size_t>(columns()));
      } else {
        tokenize(*source, samples_[row], texts_[row], ids_[row]);
      }
    }
  }
  const auto range = marks.pack();
  int64_t* to = tokens;
  for (const std::vector<int64_t>& ids : ids_) to = std::copy_n(ids.begin(), columns(), to);
  return sample_hash({tokens, static_cast<size_t>(tokens_per_batch())});
}
void BatchMaker::read(const TextSource& source, uint64_t sample, uint64_t bytes, Text& to) const {
  to.text.clear();
  to.ends.clear();
  Corpus::Position at = source.corpus.locate(sample * recipe_.stride_bytes);
  // An end of document counts as a byte: it becomes a token of its own.
  while (to.text.size() + to.ends.size() < bytes) {
    source.corpus.read(at.document, at.offset, bytes - to.text.size() - to.ends.size(), to.text);
    const uint64_t begin = to.ends.empty() ? 0 : to.ends.back();
    const uint64_t taken = to.text.size() - begin;
    to.torn = at.offset + taken < source.corpus.documents()[at.document].bytes;
    if (to.torn) return;
    to.ends.push_back(to.text.size());
    at = {(at.document + 1) % source.corpus.documents().size(), 0};
  }
}

void BatchMaker::tokenize(const TextSource& source, uint64_t sample, Text& text, std::vector<int64_t>& ids) const {
  const auto wanted = static_cast<size_t>(columns());
  for (uint64_t bytes = window_bytes_;;) {
    size_t begin = 0;
    const auto encode = [&](size_t end, bool torn) {
      std::string_view part = std::string_view(text.text).substr(begin, end - begin);
      if (!source.tokenizer.is_byte()) {
        // A sample begins wherever its byte offset falls, perhaps inside a character.
        if (begin == 0) part = without_torn_begin(part);
        if (torn) part = without_torn_end(part);
      }
      source.tokenizer.encode(part, ids);
      begin = end;
    };
    for (const size_t end : text.ends) {
      encode(end, false);
      ids.push_back(source.tokenizer.end_of_document());
    }
    if (text.torn) encode(text.text.size(), true);
    if (ids.size() >= wanted) return;
    ids.clear();
    bytes *= 2;
    read(source, sample, bytes, text);
  }
}

}  // namespace taut::data
