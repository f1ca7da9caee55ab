#include "runtime/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "taut.h"

namespace taut::checkpoint {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the reference implementation's limit

struct DtypeSize {
  const char* name;
  uint64_t bytes;
};
constexpr DtypeSize kDtypes[] = {{"F64", 8}, {"F32", 4}, {"BF16", 2}, {"F16", 2}, {"I64", 8},
                                 {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},  {"BOOL", 1}};

uint64_t dtype_bytes(const std::string& name) {
  for (const DtypeSize& dtype : kDtypes) {
    if (name == dtype.name) return dtype.bytes;
  }
  return 0;
}

std::string reason() {
  return std::strerror(errno);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// A file being written; removed again unless `finish` is reached.
class NewFile {
 public:
  explicit NewFile(const std::filesystem::path& path)
      : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) throw Error("cannot write " + path_.string() + ": " + reason());
  }
  ~NewFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(path_.c_str());
  }
  void write(const void* data, size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail();
      at += written;
      bytes -= static_cast<size_t>(written);
    }
  }
  void finish() {
    if (::fsync(descriptor_) != 0) fail();
    const int closed = ::close(descriptor_);
    descriptor_ = -1;
    if (closed != 0) throw Error("cannot write " + path_.string() + ": " + reason());
  }

 private:
  [[noreturn]] void fail() {
    throw Error("cannot write " + path_.string() + ": " + reason(), "is the disk full? nothing was left behind");
  }
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorView>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + tensor.bytes}}};
    offset += tensor.bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // tensors start aligned
  unsigned char length[kLengthBytes];
  for (size_t i = 0; i < kLengthBytes; ++i) length[i] = static_cast<unsigned char>(text.size() >> (8 * i));

  NewFile file(path);
  file.write(length, sizeof length);
  file.write(text.data(), text.size());
  for (const TensorView& tensor : tensors) file.write(tensor.data, tensor.bytes);
  file.finish();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  const auto broken = [&](const std::string& why) {
    return Error(path.string() + " is no sound safetensors file: " + why,
                 "it may be cut short or come from something else; take another checkpoint");
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw Error("cannot read " + path.string() + ": " + reason(), "the checkpoint is incomplete; take another one");
  }
  struct stat info {};
  const bool regular = ::fstat(descriptor, &info) == 0 && S_ISREG(info.st_mode);
  size_ = regular ? static_cast<size_t>(info.st_size) : 0;
  if (size_ >= kLengthBytes) {
    void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (mapped != MAP_FAILED) mapped_ = static_cast<std::byte*>(mapped);
  }
  ::close(descriptor);
  if (!regular) throw broken("not a regular file");
  if (size_ < kLengthBytes) throw broken("shorter than 8 bytes");
  if (!mapped_) throw Error("cannot map " + path.string() + ": " + reason());

  // The destructor does not run when a constructor throws.
  try {
    uint64_t header_bytes = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) header_bytes |= std::to_integer<uint64_t>(mapped_[i]) << (8 * i);
    if (header_bytes > kLongestHeader || header_bytes > size_ - kLengthBytes) {
      throw broken("its header length is " + std::to_string(header_bytes) + " in a file of " + std::to_string(size_));
    }
    const char* text = reinterpret_cast<const char*>(mapped_ + kLengthBytes);
    const auto header = nlohmann::json::parse(text, text + header_bytes, nullptr, /*allow_exceptions=*/false);
    if (!header.is_object()) throw broken("its header is not a JSON object");
    const std::byte* data = mapped_ + kLengthBytes + header_bytes;
    const uint64_t data_bytes = size_ - kLengthBytes - header_bytes;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") {
        if (!entry.is_object()) throw broken("its metadata is not an object");
        for (const auto& [key, value] : entry.items()) {
          if (value.is_string()) metadata_[key] = value.get<std::string>();
        }
        continue;
      }
      const auto member = [&](const char* key) -> const nlohmann::json& {
        static const nlohmann::json nothing;
        if (!entry.is_object()) return nothing;
        const auto found = entry.find(key);
        return found == entry.end() ? nothing : *found;
      };
      const auto& dtype = member("dtype");
      const auto& shape = member("shape");
      const auto& offsets = member("data_offsets");
      TensorView view;
      view.name = name;
      if (!dtype.is_string() || dtype_bytes(dtype.get<std::string>()) == 0) throw broken(name + " has no known dtype");
      view.dtype = dtype.get<std::string>();
      uint64_t elements_bytes = dtype_bytes(view.dtype);
      if (!shape.is_array()) throw broken(name + " has no shape");
      for (const auto& length : shape) {
        if (!length.is_number_unsigned()) throw broken(name + " has a shape that is not made of counts");
        const uint64_t count = length.get<uint64_t>();
        if (count > static_cast<uint64_t>(INT64_MAX) ||
            __builtin_mul_overflow(elements_bytes, count, &elements_bytes)) {
          throw broken(name + " is impossibly large");
        }
        view.shape.push_back(static_cast<int64_t>(count));
      }
      if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
          !offsets[1].is_number_unsigned()) {
        throw broken(name + " has no offsets");
      }
      const uint64_t begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
      if (begin > end || end > data_bytes) throw broken(name + " lies outside the file");
      if (end - begin != elements_bytes) throw broken(name + "'s bytes do not fit its shape " + shape_text(view.shape));
      view.data = data + begin;
      view.bytes = end - begin;
      tensors_[name] = std::move(view);
    }
  } catch (...) {
    ::munmap(mapped_, size_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() {
  ::munmap(mapped_, size_);
}

const TensorView& SafetensorsFile::expect(const std::string& name, const std::string& dtype,
                                          const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error(path_.string() + " has no tensor " + name, "it belongs to another model or layout");
  }
  if (found->second.dtype != dtype || found->second.shape != shape) {
    throw Error(path_.string() + ": " + name + " is " + found->second.dtype + " " + shape_text(found->second.shape) +
                    ", expected " + dtype + " " + shape_text(shape),
                "it belongs to another model or layout");
  }
  return found->second;
}

}  // namespace taut::checkpoint
