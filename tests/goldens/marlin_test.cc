// What vLLM 0.32.0 makes for Marlin (tests/data/marlin), against the layouts and against what
// `pack` writes of a model. It lies in this layer as the files are safetensors files.
//
// layouts.safetensors, from vLLM's own functions; N outputs, K inputs, names TYPE.KxN.gG.T:
//
//   .codes U8 [K, N], .scales T [G, N], .zeros U8 [G, N]    what is packed, a code a byte
//   .words, .marlin_scales, .marlin_zeros                   what it becomes
//   bias.N.T.bias, .marlin_bias; fp4.KxN.codes U8 [N, K/2], .words
//   mxfp4.KxN.NAME.scales U8 [N, K/32], .bf16.marlin_scales U8 [K/32, N]
//
// nvfp4.safetensors:
//
//   128x64.global F32 [1]; for NAME usual, small, every, subnormal: NAME.scales U8 [N, G], and for
//   T f16, bf16: NAME.T.marlin_scales U8 [G, N], NAME.T.factor, NAME.T.marlin_global F32 [1]

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/thread_pool.h"
#include "checkpoints/import_parts.h"
#include "foreign_layouts/marlin.h"
#include "foreign_layouts/marlin_int8.h"
#include "support/temp_dir.h"
#include "support/tensors_of_file.h"
#include "support/test_tensors.h"
#include "transform/packing/pack_model.h"

namespace subbyte {
namespace {

using Bytes = std::vector<std::byte>;

class MarlinLayouts : public TensorsOfFile {
 protected:
  MarlinLayouts() : TensorsOfFile("marlin/layouts.safetensors") {}

  /// [G, N] of elements as the canonical [N][G].
  static Bytes turned(const FileTensor& from) {
    const std::size_t groups = from.shape[0];
    const std::size_t rows = from.shape[1];
    const std::size_t width = from.bytes.size() / groups / rows;
    Bytes to(from.bytes.size());
    for (std::size_t i = 0; i < groups * rows; ++i) {
      std::copy_n(from.bytes.begin() + i * width, width,
                  to.begin() + (i % rows * groups + i / rows) * width);
    }
    return to;
  }

  /// Canonical codes of [K, N] bytes.
  static Bytes canonical(const FileTensor& codes, int bits) {
    const Bytes rows = turned(codes);
    if (bits == 8) return rows;
    Bytes packed(rows.size() / 2);
    for (std::size_t i = 0; i < rows.size(); ++i) packed[i / 2] |= rows[i] << (4 * (i % 2));
    return packed;
  }

  void expect(const Bytes& found, const std::string& name) const {
    EXPECT_TRUE(std::ranges::equal(found, tensor(name).bytes)) << name;
  }
};

struct IntegerCase {
  const char* name;
  int bits;
};

constexpr IntegerCase kIntegers[] = {
    {"u4b8.128x64.g32.f16", 4},   {"u4b8.128x64.g64.bf16", 4},   {"u4b8.128x64.g128.f16", 4},
    {"u4b8.256x128.g256.f16", 4}, {"u4.128x64.g32.f16", 4},      {"u4.128x64.g128.f16", 4},
    {"u8b128.128x64.g32.f16", 8}, {"u8b128.128x64.g64.bf16", 8}, {"u8.128x64.g64.f16", 8}};

TEST_F(MarlinLayouts, words_scales_and_zero_points_are_those_of_vllm) {
  for (const auto& [name, bits] : kIntegers) {
    SCOPED_TRACE(name);
    const std::string at = name;
    const FileTensor& codes = tensor(at + ".codes");
    const FileTensor& scales = tensor(at + ".scales");
    const auto cols = static_cast<int64_t>(codes.shape[0]);
    const auto rows = static_cast<int64_t>(codes.shape[1]);
    const auto groups = static_cast<int64_t>(scales.shape[0]);
    Bytes words(rows * cols * bits / 8);
    (bits == 8 ? pack_marlin_int8 : pack_marlin)(words.data(), canonical(codes, bits).data(), rows,
                                                 cols);
    expect(words, at + ".words");
    Bytes packed(scales.bytes.size());
    pack_marlin_scales(packed.data(), turned(scales).data(), rows, groups, 2);
    expect(packed, at + ".marlin_scales");
    if (source_->find(at + ".zeros") == nullptr) continue;
    const Bytes zeros = turned(tensor(at + ".zeros"));
    Bytes zero_words(rows * groups * bits / 8);
    Bytes wide(zeros.size() * 2);
    for (std::size_t i = 0; i < zeros.size(); ++i) wide[2 * i] = zeros[i];
    const Status status = bits == 8
                              ? pack_marlin_int8_zeros(zero_words.data(), wide.data(), rows, groups)
                              : pack_marlin_zeros(zero_words.data(), zeros.data(), rows, groups);
    ASSERT_TRUE(status.ok()) << status.error().message;
    expect(zero_words, at + ".marlin_zeros");
  }
}

TEST_F(MarlinLayouts, biases_are_in_the_order_of_vllm_and_come_back) {
  for (const int64_t rows : {64, 128}) {
    for (const char* type : {"f16", "bf16"}) {
      const std::string at = fmt::format("bias.{}.{}", rows, type);
      const FileTensor& bias = tensor(at + ".bias");
      Bytes packed(bias.bytes.size());
      pack_marlin_bias(packed.data(), bias.bytes.data(), rows, 2);
      expect(packed, at + ".marlin_bias");
      Bytes back(packed.size());
      unpack_marlin_bias(back.data(), packed.data(), rows, 2);
      EXPECT_TRUE(std::ranges::equal(back, bias.bytes)) << at;
    }
  }
}

TEST_F(MarlinLayouts, fp4_words_and_e8m0_scales_are_those_of_vllm) {
  const FileTensor& codes = tensor("fp4.128x64.codes");
  Bytes words(codes.bytes.size());
  pack_marlin(words.data(), codes.bytes.data(), 64, 128);
  expect(words, "fp4.128x64.words");
  for (const std::string at : {"mxfp4.128x64.usual", "mxfp4.128x64.every"}) {
    const FileTensor& scales = tensor(at + ".scales");
    Bytes packed(scales.bytes.size());
    pack_marlin_e8m0(packed.data(), scales.bytes.data(), 64, 4);
    expect(packed, at + ".bf16.marlin_scales");
  }
}

/// A GPTQ model of one layer, of the codes [K, N], scales and, but for symmetric codes, zero points
/// of a case.
std::vector<TestTensor> gptq_layer(const FileTensor& codes, const FileTensor& scales,
                                   const FileTensor* zeros, const FileTensor& bias) {
  const uint64_t cols = codes.shape[0];
  const uint64_t rows = codes.shape[1];
  const uint64_t groups = scales.shape[0];
  TestTensor qweight = filled<uint32_t>("m.q_proj.qweight", DType::kI32, {cols / 8, rows}, 0);
  TestTensor qzeros = filled<uint32_t>("m.q_proj.qzeros", DType::kI32, {groups, rows / 8}, 0);
  for (uint64_t k = 0; k < cols; ++k) {
    for (uint64_t n = 0; n < rows; ++n) {
      const uint64_t word = k / 8 * rows + n;
      const auto code = std::to_integer<uint32_t>(codes.bytes[k * rows + n]);
      qweight.set(word, qweight.at<uint32_t>(word) | code << (k % 8 * 4));
    }
  }
  for (uint64_t i = 0; i < groups * rows; ++i) {
    const uint32_t zero = zeros == nullptr ? 8 : std::to_integer<uint32_t>(zeros->bytes[i]);
    const uint64_t word = i / 8;
    qzeros.set(word, qzeros.at<uint32_t>(word) | zero << (i % 8 * 4));
  }
  const auto bytes = [](const FileTensor& tensor) {
    return std::string(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
  };
  return {qweight,
          qzeros,
          {"m.q_proj.scales", scales.dtype, scales.shape, bytes(scales)},
          {"m.q_proj.bias", bias.dtype, bias.shape, bytes(bias)}};
}

TEST_F(MarlinLayouts, a_packed_model_has_the_tensors_of_vllm_and_comes_back) {
  for (const std::string at : {"u4b8.128x64.g32.f16", "u4.128x64.g32.f16"}) {
    SCOPED_TRACE(at);
    const TempDir folder;
    const auto tensors = gptq_layer(tensor(at + ".codes"), tensor(at + ".scales"),
                                    source_->find(at + ".zeros"), tensor("bias.64.f16.bias"));
    folder.write("model/config.json",
                 R"({"model_type": "any", "quantization_config": {"quant_method": "gptq",
                     "bits": 4, "group_size": 32, "checkpoint_format": "gptq_v2"}})");
    ASSERT_TRUE(write_tensors(folder / "model/model.safetensors", tensors).ok());
    ThreadPool pool(2);
    PackOptions options;
    options.layout = "marlin";
    const auto report = pack_model(folder / "model", folder / "packed", options, pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
    const auto packed = TensorSource::open_packed(folder / "packed");
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    const auto expect_packed = [&](const std::string& suffix, const std::string& name) {
      const FileTensor* found = packed->find("m.q_proj.packed." + suffix);
      ASSERT_NE(found, nullptr) << suffix;
      EXPECT_EQ(found->shape, tensor(name).shape) << suffix;
      EXPECT_EQ(found->dtype, tensor(name).dtype) << suffix;
      EXPECT_TRUE(std::ranges::equal(found->bytes, tensor(name).bytes)) << suffix;
    };
    expect_packed("words", at + ".words");
    expect_packed("scales", at + ".marlin_scales");
    expect_packed("bias", "bias.64.f16.marlin_bias");
    if (source_->find(at + ".zeros") != nullptr) expect_packed("zeros", at + ".marlin_zeros");
    const auto back = unpack_model(folder / "packed", folder / "back", {}, pool);
    ASSERT_TRUE(back.ok()) << back.error().message;
    const auto again = TensorSource::open(folder / "back");
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(again->tensors().size(), tensors.size());
    for (const TestTensor& before : tensors) {
      const FileTensor* after = again->find(before.name);
      ASSERT_NE(after, nullptr) << before.name;
      EXPECT_TRUE(std::ranges::equal(after->bytes, std::as_bytes(std::span(before.bytes))))
          << before.name;
    }
  }
}

class MarlinNvfp4 : public TensorsOfFile {
 protected:
  MarlinNvfp4() : TensorsOfFile("marlin/nvfp4.safetensors") {}
};

TEST_F(MarlinNvfp4, scales_are_those_of_vllm) {
  const float global = load_f32(tensor("nvfp4.128x64.global"), 0);
  for (const std::string kind : {"usual", "small", "every", "subnormal"}) {
    const std::string name = "nvfp4.128x64." + kind;
    const FileTensor& scales = tensor(name + ".scales");
    const auto rows = static_cast<int64_t>(scales.shape[0]);
    const auto groups = static_cast<int64_t>(scales.shape[1]);
    for (const Format type : {Format::kF16, Format::kBF16}) {
      const std::string at = name + "." + std::string(info(type).name);
      SCOPED_TRACE(at);
      std::vector<std::byte> packed(scales.bytes.size());
      const auto factor = marlin_e4m3_factor(scales.bytes, type);
      ASSERT_TRUE(factor.ok()) << factor.error().message;
      pack_marlin_e4m3(*factor, packed.data(), scales.bytes.data(), rows, groups);
      EXPECT_TRUE(std::ranges::equal(packed, tensor(at + ".marlin_scales").bytes));
      EXPECT_EQ(*factor, load_f32(tensor(at + ".factor"), 0));
      EXPECT_EQ(marlin_global_scale(global, *factor, type),
                load_f32(tensor(at + ".marlin_global"), 0));
    }
  }
}

}  // namespace
}  // namespace subbyte
