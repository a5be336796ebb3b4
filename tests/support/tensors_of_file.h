#pragma once
// Tensors of files as tests want them: to be changed, and what other software gave, which lies in
// safetensors files of tests/data.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/containers/tensor_source.h"
#include "support/paths.h"
#include "support/test_tensors.h"

namespace subbyte {

/// The tensors of a model, to be changed, in the order of their names.
inline std::vector<TestTensor> read_tensors(const std::filesystem::path& from) {
  auto source = TensorSource::open(from);
  EXPECT_TRUE(source.ok()) << source.error().message;
  std::vector<TestTensor> tensors;
  for (const auto& [name, tensor] : source->tensors()) {
    tensors.push_back(
        {name, tensor.dtype, tensor.shape,
         std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size())});
  }
  return tensors;
}

class TensorsOfFile : public ::testing::Test {
 protected:
  explicit TensorsOfFile(const char* file)
      : file_(std::filesystem::path(SUBBYTE_TEST_DATA) / file) {}

  void SetUp() override {
    auto source = TensorSource::open(file_);
    ASSERT_TRUE(source.ok()) << source.error().message;
    source_ = std::move(source).value();
  }

  const FileTensor& tensor(const std::string& name) const {
    const FileTensor* found = source_->find(name);
    EXPECT_NE(found, nullptr) << name;
    return *found;
  }
  std::span<const std::byte> bytes(const std::string& name) const { return tensor(name).bytes; }
  template <typename T>
  std::vector<T> numbers(const std::string& name) const {
    const std::span<const std::byte> from = bytes(name);
    std::vector<T> to(from.size() / sizeof(T));
    std::memcpy(to.data(), from.data(), from.size());
    return to;
  }

  std::optional<TensorSource> source_;

 private:
  std::filesystem::path file_;
};

}  // namespace subbyte
