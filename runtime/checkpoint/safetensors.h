// The safetensors format: 8 bytes little-endian header length, a JSON header {name: {dtype, shape, data_offsets}}, then
// the tensors' bytes. Read with every bound checked, since a file may come from anywhere. No LibTorch here. Format:
// https://github.com/huggingface/safetensors (README, "Format").
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace taut::checkpoint {

/// A named tensor in somebody's memory. `dtype` is the format's name: F64, F32, BF16, F16, I64, I32, I16, I8, U8, BOOL.
struct TensorView {
  std::string name, dtype = "F32";
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// Writes the tensors, in the order given, and flushes them to disk. Throws taut::Error on any failure (a full disk,
/// say) after removing what it wrote.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

/// An opened file, mapped into memory. Views are valid as long as it lives. Const functions are thread-safe.
class SafetensorsFile {
 public:
  /// Throws taut::Error when the file cannot be read, is truncated, or its header lies about what follows.
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// By ascending name.
  const std::map<std::string, TensorView>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// Throws taut::Error when there is no such tensor, or its dtype or shape is another.
  const TensorView& expect(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) const;

 private:
  std::filesystem::path path_;
  std::byte* mapped_ = nullptr;
  size_t size_ = 0;
  std::map<std::string, TensorView> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace taut::checkpoint
