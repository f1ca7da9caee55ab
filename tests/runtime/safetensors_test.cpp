#include "runtime/checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include "taut.h"

namespace taut::checkpoint {
namespace {

namespace fs = std::filesystem;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "taut-safetensors-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path file() const { return folder_ / "a.safetensors"; }

  /// A file with that header text, whatever it says, and `data_bytes` zeros.
  void write_raw(const std::string& header, size_t data_bytes, std::optional<uint64_t> length = {}) const {
    const uint64_t n = length.value_or(header.size());
    std::ofstream out(file(), std::ios::binary);
    for (int i = 0; i < 8; ++i) out.put(static_cast<char>(n >> (8 * i)));
    out << header << std::string(data_bytes, '\0');
  }

  std::string why_refused() const {
    try {
      SafetensorsFile opened(file());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  fs::path folder_;
};

TensorView view(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
  return {name, "F32", std::move(shape), reinterpret_cast<const std::byte*>(values.data()), values.size() * 4};
}

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{7};
  write_safetensors(file(), {view("b", {}, b), view("a", {2, 3}, a)}, {{"format", "pt"}});
  const SafetensorsFile read(file());
  ASSERT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(std::memcmp(read.expect("a", "F32", {2, 3}).data, a.data(), 24), 0);
  EXPECT_EQ(std::memcmp(read.expect("b", "F32", {}).data, b.data(), 4), 0);
  EXPECT_EQ(read.metadata().at("format"), "pt");
}

TEST_F(Safetensors, ReadsTheFormatsOwnLayout) {
  // Written by hand after the format's description: length, header, data.
  write_raw(R"({"x":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]}})", 6);
  EXPECT_EQ(SafetensorsFile(file()).expect("x", "BF16", {3}).bytes, 6u);
}

TEST_F(Safetensors, NamesATensorThatIsMissingOrOfAnotherShape) {
  const std::vector<float> a{1, 2};
  write_safetensors(file(), {view("a", {2}, a)});
  const SafetensorsFile read(file());
  EXPECT_THROW(read.expect("b", "F32", {2}), Error);
  EXPECT_THROW(read.expect("a", "F32", {1, 2}), Error);
  EXPECT_THROW(read.expect("a", "BF16", {2}), Error);
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  const std::vector<float> a{1, 2, 3, 4};
  write_safetensors(file(), {view("a", {4}, a)});
  std::ifstream in(file(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(file(), std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    EXPECT_NE(why_refused(), "") << size << " of " << whole.size() << " bytes";
  }
}

TEST_F(Safetensors, RefusesHeadersThatLie) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,16]}})", "lies outside"},
      {R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "lies outside"},
      {R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "do not fit"},
      {R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,8]}})", "impossibly large"},
      {R"({"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}})", "not made of counts"},
      {R"({"x":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", "dtype"},
      {R"({"x":{"dtype":"F32","shape":[2]}})", "offsets"},
      {R"({"x":7})", "dtype"},
      {R"([1,2])", "not a JSON object"},
      {R"({"x":)", "not a JSON object"}};
  for (const auto& [header, reason] : cases) {
    write_raw(header, 8);
    EXPECT_NE(why_refused().find(reason), std::string::npos) << header << " gave: " << why_refused();
  }
  write_raw("{}", 0, UINT64_MAX);
  EXPECT_NE(why_refused().find("header length"), std::string::npos);
}

TEST_F(Safetensors, AWriteThatFailsLeavesNothingBehind) {
  const std::vector<float> a{1};
  const fs::path nowhere = folder_ / "missing" / "a.safetensors";
  EXPECT_THROW(write_safetensors(nowhere, {view("a", {1}, a)}), Error);
  EXPECT_FALSE(fs::exists(nowhere));
  EXPECT_THROW(SafetensorsFile{nowhere}, Error);
  EXPECT_THROW(SafetensorsFile{folder_}, Error);
}

}  // namespace
}  // namespace taut::checkpoint
