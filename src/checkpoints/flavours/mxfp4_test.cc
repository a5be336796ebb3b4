// Random blocks, read by the table of E2M1 values and 2^(byte - 127).

#include <gtest/gtest.h>

#include "support/round_trip.h"

namespace subbyte {
namespace {

constexpr double kE2M1[16] = {0.0,  0.5,  1.0,  1.5,  2.0,  3.0,  4.0,  6.0,
                              -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0};

struct Experts {
  TestTensor blocks, scales;
  int64_t experts, rows, cols;

  double weight(int64_t e, int64_t n, int64_t k) const {
    const int64_t block = ((e * rows + n) * cols + k) / 32;
    const auto byte = blocks.at<uint8_t>(block * 16 + k % 32 / 2);
    const double element = kE2M1[k % 2 == 0 ? byte & 0xF : byte >> 4];  // low nibble first
    return element * std::ldexp(1.0, scales.at<uint8_t>(block) - 127);
  }
};

Experts random_experts(uint64_t experts, uint64_t rows, uint64_t cols) {
  Random random(experts * 100 + rows + cols);
  Experts made = {random_bits("m_blocks", DType::kU8, {experts, rows, cols / 32, 16}, random),
                  random_bits("m_scales", DType::kU8, {experts, rows, cols / 32}, random),
                  static_cast<int64_t>(experts), static_cast<int64_t>(rows),
                  static_cast<int64_t>(cols)};
  for (char& byte : made.scales.bytes) byte = byte == '\xFF' ? '\x7F' : byte;
  return made;
}

class Mxfp4 : public RoundTripFixture {
 protected:
  Mxfp4() { say({{"quant_method", "mxfp4"}, {"modules_to_not_convert", nullptr}}); }

  void expect_experts(const Experts& made) {
    const auto matrices = import_experts(context(), "m");
    ASSERT_TRUE(matrices.ok()) << matrices.error().message;
    ASSERT_EQ(static_cast<int64_t>(matrices->size()), made.experts);
    for (int64_t e = 0; e < made.experts; ++e) {
      expect_equal((*matrices)[e].view, made.rows, made.cols,
                   [&](int64_t n, int64_t k) { return made.weight(e, n, k); });
    }
  }
};

TEST_F(Mxfp4, decodes_all_experts) {
  for (const auto& [experts, rows, cols] :
       {std::tuple(1, 1, 32), {3, 10, 96}, {2, 17, 256}, {8, 6, 64}}) {
    const Experts made = random_experts(experts, rows, cols);
    open({made.blocks, made.scales});
    expect_experts(made);
  }
}

TEST_F(Mxfp4, decodes_the_byte_whose_value_is_known) {
  // Byte 0x5e with scale 123: element 0 is -0.25, element 1 is 0.1875.
  open({filled<uint8_t>("m_blocks", DType::kU8, {1, 1, 1, 16}, 0x5E),
        filled<uint8_t>("m_scales", DType::kU8, {1, 1, 1}, 123)});
  expect_weights(1, 32, [](int64_t, int64_t k) { return k % 2 == 0 ? -0.25 : 0.1875; });
}

TEST_F(Mxfp4, the_smallest_scale_is_not_zero) {
  open({filled<uint8_t>("m_blocks", DType::kU8, {1, 2, 1, 16}, 0x72),
        filled<uint8_t>("m_scales", DType::kU8, {1, 2, 1}, 0)});
  expect_weights(2, 32, [](int64_t, int64_t k) { return k % 2 == 0 ? 0x1p-127 : 0x6p-127; });
}

TEST_F(Mxfp4, uses_the_bytes_where_they_lie) {
  const Experts made = random_experts(2, 4, 64);
  open({made.blocks, made.scales});
  const auto matrices = import_experts(context(), "m");
  ASSERT_TRUE(matrices.ok());
  const FileTensor* blocks = source_->find("m_blocks");
  EXPECT_EQ((*matrices)[0].view.codes.data(), blocks->bytes.data());
  EXPECT_EQ((*matrices)[1].view.codes.data(), blocks->bytes.data() + 4 * 2 * 16);
  // The matrices keep the mapping alive without the source.
  source_.reset();
  expect_equal((*matrices)[1].view, 4, 64,
               [&](int64_t n, int64_t k) { return made.weight(1, n, k); });
}

TEST_F(Mxfp4, does_not_depend_on_the_alignment_of_the_file) {
  const Experts made = random_experts(2, 3, 64);
  for (const std::size_t remainder : {1, 3, 6}) {
    open_misaligned({made.scales, made.blocks}, remainder);
    expect_experts(made);
  }
}

TEST_F(Mxfp4, describes_the_experts) {
  const Experts made = random_experts(3, 10, 96);
  open({made.blocks, made.scales});
  const auto info = describe_module(context(), "m");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->importer, "mxfp4");
  EXPECT_EQ(info->experts, 3);
  EXPECT_EQ(info->rows, 10);
  EXPECT_EQ(info->cols, 96);
  EXPECT_EQ(to_string(info->format), "e2m1 g32 scale e8m0");
  EXPECT_EQ(info->bytes(), 3u * 10 * 3 * 17);
}

TEST_F(Mxfp4, refuses_wrong_shapes_types_and_nan) {
  const Experts good = random_experts(2, 4, 64);
  Random random(1);
  const auto blocks = [&](DType dtype, Shape shape) {
    return code_of({random_bits("m_blocks", dtype, std::move(shape), random), good.scales});
  };
  const auto scales = [&](DType dtype, Shape shape) {
    return code_of({good.blocks, filled<uint8_t>("m_scales", dtype, std::move(shape), 120)});
  };
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 32}), "import.shape");  // three dimensions
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 2, 8}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 2, 32}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {2, 4, 0, 16}), "import.shape");
  EXPECT_EQ(blocks(DType::kU8, {0, 4, 2, 16}), "import.shape");
  EXPECT_EQ(blocks(DType::kI8, {2, 4, 2, 16}), "import.dtype");
  EXPECT_EQ(blocks(DType::kF32, {2, 4, 2, 16}), "import.dtype");
  EXPECT_EQ(scales(DType::kU8, {2, 4, 3}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {2, 5, 2}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {1, 4, 2}), "import.shape");
  EXPECT_EQ(scales(DType::kU8, {2, 4, 2, 1}), "import.shape");
  EXPECT_EQ(scales(DType::kF8E8M0, {2, 4, 2}), "import.dtype");
  EXPECT_EQ(code_of({good.blocks}), "import.missing");
  Experts nan = good;
  nan.scales.set<uint8_t>(13, 0xFF);
  EXPECT_EQ(code_of({nan.blocks, nan.scales}), "import.scale_not_finite");
  EXPECT_NE(message().find("0xFF (NaN) at index 13"), std::string::npos) << message();
}

TEST_F(Mxfp4, comes_back_byte_for_byte) {
  for (const auto& [experts, rows, cols] :
       {std::tuple(1, 1, 32), {3, 10, 96}, {2, 17, 256}, {8, 6, 64}}) {
    const Experts made = random_experts(experts, rows, cols);
    expect_round_trip("mxfp4", {made.blocks, made.scales});
  }
}

TEST_F(Mxfp4, takes_the_names_of_the_original_files) {
  Experts made = random_experts(3, 10, 96);
  made.blocks.name = "m.blocks";
  made.scales.name = "m.scales";
  // Their config says nothing of quantization.
  for (const bool is_said : {false, true}) {
    config_ = {};
    if (is_said) say({{"quant_method", "mxfp4"}, {"modules_to_not_convert", nullptr}});
    open({made.blocks, made.scales});
    EXPECT_EQ(describe_module(context(), "m")->importer, "mxfp4_original");
    expect_experts(made);
  }
  say({{"quant_method", "kbit"}, {"bits", 2}, {"block_size", 32}});
  EXPECT_EQ(code(), "import.config");
  config_ = {};
  EXPECT_EQ(code_of({made.blocks}), "import.missing");
}

TEST_F(Mxfp4, one_matrix_is_written_as_one_expert) {
  const Experts made = random_experts(1, 6, 64);
  open({made.blocks, made.scales});
  const auto matrix = import_matrix(context(), "m");
  ASSERT_TRUE(matrix.ok());
  const auto written = find_exporter("mxfp4")->write(matrix->view, "m", pool_);
  ASSERT_TRUE(written.ok());
  expect_same_tensors(test_tensors(*written), {made.blocks, made.scales});
}

TEST_F(Mxfp4, the_writer_refuses_what_is_not_mxfp4) {
  const Exporter& writer = *find_exporter("mxfp4");
  const auto code_of_shape = [&](const ExportShape& shape) {
    const auto described = writer.describe(shape, "m");
    return described.ok() ? std::string_view() : described.error().code;
  };
  const WeightFormat mxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
  EXPECT_EQ(code_of_shape({mxfp4, 8, 64, false, 4}), "");
  EXPECT_EQ(writer.describe({mxfp4, 8, 64, false, 4}, "m")->at(0).shape, (Shape{4, 8, 2, 16}));
  EXPECT_EQ(code_of_shape({mxfp4, 8, 48}), "export.shape");
  EXPECT_EQ(code_of_shape({mxfp4, 8, 64, true}), "export.act_order");
  EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE4M3, Zero::kNone, 16}, 8, 64}),
            "export.format");
  EXPECT_EQ(code_of_shape({{Format::kE2M1, Format::kE8M0, Zero::kNone, 64}, 8, 64}),
            "export.format");
  // Experts of two shapes, and a factor that has no place.
  const Experts one = random_experts(2, 4, 64);
  const Experts other = random_experts(2, 4, 96);
  open({one.blocks, one.scales});
  auto experts = *import_experts(context(), "m");
  const TempDir second;
  ASSERT_TRUE(write_tensors(second / "model.safetensors", {other.blocks, other.scales}).ok());
  const auto source = TensorSource::open(second.path());
  auto wider = *import_experts({*source, config_, pool_}, "m");
  experts[1] = wider[1];
  EXPECT_EQ(writer.write_experts(experts, "m", pool_).error().code, "export.experts");
  EXPECT_EQ(writer.write_experts({}, "m", pool_).error().code, "export.experts");
  wider[1].view.tensor_scale = 2;
  EXPECT_EQ(writer.write_experts(wider, "m", pool_).error().code, "export.tensor_scale");
}

TEST_F(Mxfp4, refuses_another_method) {
  const Experts good = random_experts(2, 4, 64);
  config_ = {};
  EXPECT_EQ(code_of({good.blocks, good.scales}), "import.config");
  for (const char* const method : {"awq", "gptq"}) {
    say({{"quant_method", method}, {"bits", 4}, {"group_size", 32}});
    EXPECT_EQ(code(), "import.config");
  }
}

}  // namespace
}  // namespace subbyte
