#include "runtime/data/check.h"

#include <algorithm>

#include "runtime/data/loader.h"
#include "runtime/data/recipe.h"
#include "taut.h"

namespace taut::data {
namespace {

void check_memory(const config::Config& config, const LoaderMemory& memory, uint64_t available_bytes) {
  if (memory.total() <= available_bytes) return;
  std::string parts, keys;
  const auto add = [&](uint64_t bytes, const std::string& what, const char* key) {
    if (bytes == 0) return;
    parts += (parts.empty() ? "" : ", ") + mebibytes(bytes) + " for " + what;
    keys += (keys.empty() ? "" : ", or ") + std::string(key);
  };
  const auto loaders = static_cast<uint64_t>(memory.loaders);
  const RingShape ring = ring_shape(config);
  add(loaders * memory.ring_bytes,
      "the rings of " + std::to_string(loaders) + " loaders × " + std::to_string(ring.workers) + " workers × " +
          std::to_string(ring.slots) + " batches",
      "lower data.num_workers, data.prefetch_factor or train_micro_batch_size_per_gpu");
  add(memory.preload_bytes, "the preloaded data", "set data.preload to false");
  add(loaders * memory.unpacked_bytes, "the unpacked .gz text of " + std::to_string(loaders) + " loaders",
      "unpack the .gz files on the disk");
  throw Error("the data loaders need " + mebibytes(memory.total()) + " of memory on this machine, and " +
                  mebibytes(available_bytes) + " are available: " + parts,
              keys + ", or free memory on this machine");
}

/// Remarks on data that can be trained on, but perhaps not as meant.
std::vector<std::string> remarks(const config::Config& config, const Source& source, const Recipe& recipe) {
  std::vector<std::string> remarks;
  const auto of_a_step = static_cast<uint64_t>(config.train_batch_size);
  if (recipe.order.samples < of_a_step) {
    remarks.push_back("data.path holds " + std::to_string(recipe.order.samples) +
                      " samples of model.seq_length tokens, fewer than train_batch_size = " +
                      std::to_string(of_a_step) + ": samples repeat within a step");
  }
  const auto* file = std::get_if<TokenFile>(&source);
  const std::vector<std::string>& set = config.provenance.keys_set;
  if (file != nullptr && file->layout().documents > 1 &&
      std::find(set.begin(), set.end(), "data.tokenizer") != set.end()) {
    const int64_t of_file = file->layout().end_of_document,
                  of_tokenizer = Tokenizer(config.data.tokenizer).end_of_document();
    if (of_file != of_tokenizer) {
      remarks.push_back("the documents of '" + file->layout().path + "' end with " +
                        (of_file < 0 ? "different tokens" : "token " + std::to_string(of_file)) +
                        ", but data.tokenizer ends them with " + std::to_string(of_tokenizer) +
                        ": were they written with another tokenizer?");
    }
  }
  return remarks;
}

}  // namespace

LoaderMemory loader_memory(const config::Config& config, const Source& source) {
  LoaderMemory memory;
  memory.loaders = config.data_parallel_size() * (config.parallel.pipeline_parallel_size > 1 ? 2 : 1);
  if (config.data.num_workers > 0) memory.ring_bytes = ring_bytes(ring_shape(config));
  if (const auto* file = std::get_if<TokenFile>(&source)) {
    if (config.data.preload) memory.preload_bytes = file->layout().bin_bytes;
  } else if (const auto* text = std::get_if<TextSource>(&source)) {
    const uint64_t unpacked = text->corpus.memory() ? text->corpus.memory()->bytes() : 0;
    if (config.data.preload) {
      memory.preload_bytes = text->corpus.bytes() + unpacked;  // both while one is copied from the other
    } else {
      memory.unpacked_bytes = unpacked;
    }
  }
  return memory;
}

std::vector<std::string> check_data(const config::Config& config, uint64_t available_bytes) {
  const Source source = open_source(config);
  const Recipe recipe = make_recipe(config, source);
  if (config.data.eod_mask_loss) end_of_document(config, source);
  check_memory(config, loader_memory(config, source), available_bytes);
  return remarks(config, source, recipe);
}

}  // namespace taut::data
