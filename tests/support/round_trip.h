#pragma once
// Import and export as inverses: bytes -> matrix -> the same bytes -> the same matrix.

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoints/exporter.h"
#include "support/import_fixture.h"

namespace subbyte {

inline void expect_same_matrix(const MatrixView& a, const MatrixView& b) {
  EXPECT_EQ(a.format, b.format);
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  EXPECT_EQ(a.tensor_scale, b.tensor_scale);
  EXPECT_TRUE(std::ranges::equal(a.codes, b.codes));
  EXPECT_TRUE(std::ranges::equal(a.scales, b.scales));
  EXPECT_TRUE(std::ranges::equal(a.zeros, b.zeros));
  EXPECT_TRUE(std::ranges::equal(a.input_order, b.input_order));
}

inline std::vector<TestTensor> test_tensors(const std::vector<ExportedTensor>& exported) {
  std::vector<TestTensor> tensors;
  for (const ExportedTensor& tensor : exported) {
    tensors.push_back({"m" + std::string(tensor.suffix),
                       tensor.dtype,
                       tensor.shape,
                       {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
  }
  return tensors;
}

class RoundTripFixture : public ImportFixture {
 protected:
  /// What `exporter` writes of module "m" of the open file, for one thread and for three.
  std::vector<TestTensor> exported(std::string_view exporter) {
    std::vector<TestTensor> first;
    for (const int threads : {1, 3}) {
      ThreadPool pool(threads);
      const auto matrices = import_experts({*source_, config_, pool}, "m");
      EXPECT_TRUE(matrices.ok()) << matrices.error().message;
      if (!matrices.ok()) return {};
      const Exporter& writer = *find_exporter(exporter);
      const auto written = writer.write_experts != nullptr
                               ? writer.write_experts(*matrices, "m", pool)
                               : writer.write(matrices->front().view, "m", pool);
      EXPECT_TRUE(written.ok()) << written.error().message;
      if (!written.ok()) return {};
      const std::vector<TestTensor> tensors = test_tensors(*written);
      if (threads == 1) first = tensors;
      expect_same_tensors(tensors, first);
    }
    return first;
  }

  static void expect_same_tensors(const std::vector<TestTensor>& found,
                                  const std::vector<TestTensor>& expected) {
    EXPECT_EQ(found.size(), expected.size());
    for (const TestTensor& tensor : found) {
      const auto same = std::ranges::find(expected, tensor.name, &TestTensor::name);
      ASSERT_NE(same, expected.end()) << tensor.name;
      EXPECT_EQ(tensor.dtype, same->dtype) << tensor.name;
      EXPECT_EQ(tensor.shape, same->shape) << tensor.name;
      EXPECT_TRUE(tensor.bytes == same->bytes) << tensor.name;
    }
  }

  /// Of tensors of module "m": exporting what was imported gives them, and importing that gives the
  /// same matrices.
  void expect_round_trip(std::string_view exporter, const std::vector<TestTensor>& tensors) {
    open(tensors);
    ASSERT_TRUE(source_);
    const auto before = import_experts(context(), "m");
    ASSERT_TRUE(before.ok()) << before.error().message;
    const std::vector<TestTensor> written = exported(exporter);
    expect_same_tensors(written, tensors);
    // Another file: the matrices of the first lie in its mapping.
    const TempDir again;
    again.write("model.safetensors", tensor_file(written, 3));
    const auto source = TensorSource::open(again / "model.safetensors");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto after = import_experts({*source, config_, pool_}, "m");
    ASSERT_TRUE(after.ok()) << after.error().message;
    ASSERT_EQ(before->size(), after->size());
    for (std::size_t e = 0; e < after->size(); ++e) {
      expect_same_matrix((*before)[e].view, (*after)[e].view);
    }
  }
};

}  // namespace subbyte
