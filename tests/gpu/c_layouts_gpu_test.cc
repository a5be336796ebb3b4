// Layouts of other software in device memory, through the C interface: the bytes of the host.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device_bytes.h"
#include "support/c_handles.h"
#include "support/random_matrix.h"

namespace subbyte::testing {
namespace {

struct LayoutName {
  const char* name;
  const char* tile;
};
const LayoutName kInt4Layouts[] = {{"int4pack-cpu", "64"},       {"int4pack-cpu", "32"},
                                   {"int4pack-cpu", "pairs-32"}, {"int4pack-cpu", "pairs-16"},
                                   {"int4pack-cuda", "2"},       {"int4pack-cuda", "4"},
                                   {"int4pack-cuda", "8"},       {"int4pack-xpu", ""}};

subbyte_layout layout_of(const LayoutName& name, int32_t number = SUBBYTE_NONE) {
  auto layout = c_struct<subbyte_layout>();
  layout.name = name.name;
  layout.tile = name.tile;
  layout.number = number;
  return layout;
}

using Tensors =
    std::unique_ptr<subbyte_tensors, CDeleter<subbyte_tensors, subbyte_tensors_destroy>>;

/// The tensors of a matrix, or none and the error.
Tensors export_to(const subbyte_matrix* matrix, const subbyte_layout& layout) {
  subbyte_tensors* made = nullptr;
  if (subbyte_matrix_export(matrix, &layout, &made) != SUBBYTE_OK) return nullptr;
  return Tensors(made);
}

std::vector<subbyte_tensor> list(const Tensors& tensors) {
  int64_t count = 0;
  EXPECT_EQ(subbyte_tensors_count(tensors.get(), &count), SUBBYTE_OK);
  std::vector<subbyte_tensor> all;
  for (int64_t i = 0; i < count; ++i) {
    all.push_back(c_struct<subbyte_tensor>());
    EXPECT_EQ(subbyte_tensors_get(tensors.get(), i, &all.back()), SUBBYTE_OK);
  }
  return all;
}

/// Bytes by name, type and shape, wherever they are.
std::map<std::string, std::vector<std::byte>> contents(const Tensors& tensors) {
  std::map<std::string, std::vector<std::byte>> all;
  for (const subbyte_tensor& tensor : list(tensors)) {
    const std::string dtype = tensor.dtype;
    std::string name = std::string(tensor.name) + " " + dtype;
    std::size_t size = dtype == "U8" || dtype == "I8"      ? 1
                       : dtype == "F16" || dtype == "BF16" ? 2
                                                           : 4;
    for (int i = 0; i < tensor.rank; ++i) {
      name += " " + std::to_string(tensor.shape[i]);
      size *= static_cast<std::size_t>(tensor.shape[i]);
    }
    all[name].resize(size);
    expect_ok(cudaMemcpy(all[name].data(), tensor.data, size, cudaMemcpyDefault));
  }
  return all;
}

/// Canonical bytes of the host, described and in device memory.
struct OnDevice {
  explicit OnDevice(const MatrixView& view)
      : codes(view.codes), scales(view.scales), zeros(view.zeros), weights(c_weights(view)) {
    weights.codes = codes.data();
    weights.scales = scales.data();
    weights.zeros = view.zeros.empty() ? nullptr : zeros.data();
  }
  DeviceBytes codes, scales, zeros;
  subbyte_weights weights;
};

std::vector<std::byte> floats_on_gpu(const subbyte_matrix* matrix, std::size_t count) {
  const DeviceBytes out(count * 4);
  EXPECT_EQ(subbyte_matrix_dequantize(matrix, SUBBYTE_F32, out.data(), nullptr), SUBBYTE_OK)
      << subbyte_last_error();
  expect_ok(cudaDeviceSynchronize());
  return out.read();
}

TEST(CLayoutsGpu, operands_of_aten_are_those_of_the_host_and_come_back) {
  const CContext context = c_context();
  for (const WeightFormat& format : {WeightFormat{Format::kU4, Format::kF16, Zero::kU8, 32},
                                     WeightFormat{Format::kU4, Format::kBF16, Zero::kU8, 64},
                                     WeightFormat{Format::kU4, Format::kF32, Zero::kU8, 128},
                                     WeightFormat{Format::kI4, Format::kBF16, Zero::kNone, 64},
                                     WeightFormat{Format::kI4, Format::kF16, Zero::kF16, 32},
                                     WeightFormat{Format::kI4, Format::kBF16, Zero::kBF16, 128}}) {
    RandomMatrix random = random_matrix(format, 112, 512, Contents::kReal, 9);
    if (format.zero == Zero::kU8) {  // XPU has no 16
      for (std::byte& zero : random.zeros->span()) zero &= std::byte{15};
    }
    const CMatrix host = c_matrix(context, c_weights(random.view));
    const OnDevice device(random.view);
    const CMatrix packed = c_matrix(context, device.weights);
    for (const LayoutName& name : kInt4Layouts) {
      SCOPED_TRACE(to_string(format) + " " + name.name + " " + name.tile);
      const subbyte_layout layout = layout_of(name);
      const Tensors expected = export_to(host.get(), layout);
      const Tensors made = export_to(packed.get(), layout);
      ASSERT_EQ(made == nullptr, expected == nullptr) << subbyte_last_error();
      if (made == nullptr) continue;  // offsets are not for XPU
      EXPECT_EQ(contents(made), contents(expected));
      const std::vector<subbyte_tensor> tensors = list(made);
      cudaPointerAttributes attributes = {};
      expect_ok(cudaPointerGetAttributes(&attributes, tensors.front().data));
      EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
      subbyte_matrix* again = nullptr;
      ASSERT_EQ(subbyte_matrix_import(context.get(), &layout, tensors.data(),
                                      static_cast<int64_t>(tensors.size()), nullptr, &again),
                SUBBYTE_OK)
          << subbyte_last_error();
      const CMatrix owner(again);
      EXPECT_EQ(contents(export_to(again, layout)), contents(expected));
      const std::size_t count = 112 * 512;
      const std::vector<subbyte_tensor> on_host = list(expected);
      subbyte_matrix* reference = nullptr;
      ASSERT_EQ(subbyte_matrix_import(context.get(), &layout, on_host.data(),
                                      static_cast<int64_t>(on_host.size()), nullptr, &reference),
                SUBBYTE_OK);
      const CMatrix reference_owner(reference);
      std::vector<std::byte> weights(count * 4);
      ASSERT_EQ(subbyte_matrix_dequantize(reference, SUBBYTE_F32, weights.data(), nullptr),
                SUBBYTE_OK);
      EXPECT_EQ(floats_on_gpu(again, count), weights);
    }
  }
}

TEST(CLayoutsGpu, scales_are_rounded_to_the_type_of_the_activations) {
  const CContext context = c_context();
  const RandomMatrix random =
      random_matrix({Format::kU4, Format::kF32, Zero::kU8, 32}, 64, 256, Contents::kReal, 9);
  const CMatrix host = c_matrix(context, c_weights(random.view));
  const OnDevice device(random.view);
  const CMatrix packed = c_matrix(context, device.weights);
  for (const int32_t number : {SUBBYTE_F16, SUBBYTE_BF16}) {
    const subbyte_layout layout = layout_of({"int4pack-cuda", "4"}, number);
    EXPECT_EQ(contents(export_to(packed.get(), layout)), contents(export_to(host.get(), layout)));
  }
}

TEST(CLayoutsGpu, zero_points_beyond_a_layout_are_refused) {
  const CContext context = c_context();
  const RandomMatrix random =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 64}, 64, 256, Contents::kReal, 9);
  for (std::byte& zero : random.zeros->span()) zero = std::byte{3};
  random.zeros->data()[4 * 9 + 2] = random.zeros->data()[4 * 11] = std::byte{16};
  const OnDevice device(random.view);
  const CMatrix packed = c_matrix(context, device.weights);
  EXPECT_EQ(export_to(packed.get(), layout_of({"int4pack-xpu", ""})), nullptr);
  EXPECT_STREQ(subbyte_last_error_code(), "layout.zero_range");
  EXPECT_NE(std::string(subbyte_last_error()).find("of output 9, group 2"), std::string::npos)
      << subbyte_last_error();
}

TEST(CLayoutsGpu, a_packed_matrix_of_any_row_order_is_exported_as_it_was) {
  const CContext context = c_context();
  const RandomMatrix random =
      random_matrix({Format::kU4, Format::kF16, Zero::kU8, 64}, 112, 256, Contents::kReal, 9);
  for (std::byte& zero : random.zeros->span()) zero &= std::byte{15};
  const CMatrix host = c_matrix(context, c_weights(random.view));
  for (const int32_t order :
       {SUBBYTE_ROWS_NATURAL, SUBBYTE_ROWS_GATE_ABOVE_UP, SUBBYTE_ROWS_GATE_UP_PAIRS}) {
    OnDevice device(random.view);
    device.weights.row_order = order;
    const CMatrix packed = c_matrix(context, device.weights);
    for (const LayoutName& name :
         {LayoutName{"int4pack-cuda", "8"}, LayoutName{"awq", ""}, LayoutName{"gptq_v2", ""}}) {
      SCOPED_TRACE(name.name + std::string(" row order ") + std::to_string(order));
      const Tensors made = export_to(packed.get(), layout_of(name));
      ASSERT_NE(made, nullptr) << subbyte_last_error();
      EXPECT_EQ(contents(made), contents(export_to(host.get(), layout_of(name))));
    }
  }
}

/// Zero points of 2^bits, which GPTQ v2 does not store, become 0.
void keep_zeros_of_codes(const RandomMatrix& random) {
  const WeightFormat& format = random.view.format;
  if (format.zero == Zero::kNone) return;
  const auto most = static_cast<uint16_t>((1 << info(format.element).bits) - 1);
  const std::span<std::byte> zeros = random.zeros->span();
  const auto width = static_cast<std::size_t>(zero_bytes(format.zero));
  for (std::size_t at = 0; at < zeros.size(); at += width) {
    uint16_t zero = 0;
    std::memcpy(&zero, &zeros[at], width);
    zero &= most;
    std::memcpy(&zeros[at], &zero, width);
  }
}

TEST(CLayoutsGpu, packed_matrices_of_every_kind_go_back_through_the_host) {
  const CContext context = c_context();
  const struct {
    WeightFormat format;
    const char* layout;
  } cases[] = {{{Format::kU3, Format::kF16, Zero::kU8, 32}, "gptq_v2"},
               {{Format::kU8, Format::kF16, Zero::kU16, 64}, "gptq_v2"},
               {{Format::kE2M1, Format::kE8M0, Zero::kNone, 32}, "mxfp4_pack_quantized"},
               {{Format::kNFL3, Format::kE4M4, Zero::kNone, 32}, "kbit"},
               {{Format::kI8, Format::kBF16, Zero::kNone, 128}, "pack_quantized"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(to_string(one.format) + " " + one.layout);
    const RandomMatrix random = random_matrix(one.format, 64, 512, Contents::kReal, 9);
    keep_zeros_of_codes(random);
    const CMatrix host = c_matrix(context, c_weights(random.view));
    const Tensors expected = export_to(host.get(), layout_of({one.layout, ""}));
    ASSERT_NE(expected, nullptr) << subbyte_last_error();
    const OnDevice device(random.view);
    const CMatrix packed = c_matrix(context, device.weights);
    const Tensors made = export_to(packed.get(), layout_of({one.layout, ""}));
    ASSERT_NE(made, nullptr) << subbyte_last_error();
    EXPECT_EQ(contents(made), contents(expected));
  }
}

}  // namespace
}  // namespace subbyte::testing
