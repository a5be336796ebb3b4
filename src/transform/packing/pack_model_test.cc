// Models of every format into every layout and back, tensors bit for bit; what is no bijection is
// refused by name.

#include "transform/packing/pack_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/partial_name.h"
#include "support/paths.h"
#include "support/quantized_model.h"
#include "support/test_context.h"
#include "support/test_names.h"
#include "transform/packing/packed_module.h"
#include "transform/transform.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using testing::Contents;
using testing::random_matrix;
using testing::RandomMatrix;

const fs::path kGoldens = fs::path(SUBBYTE_TEST_DATA) / "goldens";

PackOptions to(const std::string& layout, const std::string& tile = "",
               const std::string& activations = "") {
  PackOptions options;
  options.layout = layout;
  options.tile = tile;
  options.activations = activations;
  return options;
}

Result<PackReport> pack(const fs::path& from, const fs::path& into, const PackOptions& options) {
  ThreadPool pool(2);
  return pack_model(from, into, options, pool);
}

std::string code_of(const fs::path& from, const fs::path& into, const PackOptions& options) {
  const auto report = pack(from, into, options);
  return report.ok() ? "ok" : std::string(report.error().code);
}

/// The same tensors: names, types, shapes and bytes.
void expect_same_tensors(const fs::path& a, const fs::path& b) {
  const auto first = TensorSource::open(a);
  const auto second = TensorSource::open(b);
  ASSERT_TRUE(first.ok()) << first.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  ASSERT_EQ(first->tensors().size(), second->tensors().size());
  for (const auto& [name, tensor] : first->tensors()) {
    const FileTensor* other = second->find(name);
    ASSERT_NE(other, nullptr) << name;
    EXPECT_EQ(tensor.dtype, other->dtype) << name;
    EXPECT_EQ(tensor.shape, other->shape) << name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, other->bytes)) << name;
  }
}

/// Packs, unpacks, and compares tensors and config.json.
void expect_round_trip(const fs::path& model, const TempDir& folder, const PackOptions& options) {
  const auto packed = pack(model, folder / "packed", options);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  EXPECT_GT(packed->modules, 0);
  EXPECT_FALSE(fs::exists(folder / "packed/model.safetensors"));
  ThreadPool pool(1);
  const auto back = unpack_model(folder / "packed", folder / "back", {}, pool);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(back->modules, packed->modules);
  EXPECT_EQ(back->layout, options.layout);
  expect_same_tensors(model, folder / "back");
  std::ifstream before(model / "config.json");
  const std::string config((std::istreambuf_iterator<char>(before)), {});
  EXPECT_EQ(folder.read("back/config.json"), config);
}

bool is_first_shard(const fs::path& file) {
  return file.filename().native().find("-00001-of-") != std::string::npos;
}

/// Copies the directory that is being written at `made`, as a kill would leave it when most is
/// written. The first shard of the copy is marked, to be known again.
void leave_half(const fs::path& made, uint64_t done, uint64_t total) {
  const std::string name = made.filename();
  const fs::path killed = made.parent_path() / partial_name(name, 1, 1);
  if (done < total / 8 * 7 || fs::exists(killed)) return;
  for (const auto& entry : fs::directory_iterator(made.parent_path())) {
    if (entry.path().filename().native().starts_with(name + ".partial-")) {
      fs::copy(entry.path(), killed);
      break;
    }
  }
  for (const auto& entry : fs::directory_iterator(killed)) {
    if (!is_first_shard(entry.path())) continue;
    std::fstream shard(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
    shard.seekp(-1, std::ios::end);
    shard.put('!');
  }
}

TEST(PackModel, what_was_stopped_is_gone_on_with) {
  const TempDir folder;
  ThreadPool pool(1);
  PackOptions options = to("marlin");
  options.shard_bytes = 20'000;
  const auto pack_once = [&](const ByteProgress& progress) {
    return pack_model(kGoldens / "qwen3-awq", folder / "packed", options, pool, progress).ok();
  };
  const auto unpack_once = [&](const ByteProgress& progress) {
    return unpack_model(folder / "clean-packed", folder / "back",
                        {.shard_bytes = options.shard_bytes}, pool, progress)
        .ok();
  };
  const auto expect_resumed = [&](const std::string& name, const auto& run) {
    ASSERT_TRUE(
        run([&](uint64_t done, uint64_t total) { leave_half(folder / name, done, total); }));
    fs::rename(folder / name, folder / ("clean-" + name));
    ASSERT_TRUE(run(nullptr));
    int num_marked = 0;
    for (const auto& entry : fs::directory_iterator(folder / ("clean-" + name))) {
      const std::string file = entry.path().filename();
      const bool same = folder.read(name + "/" + file) == folder.read("clean-" + name + "/" + file);
      EXPECT_EQ(same, !is_first_shard(entry.path())) << file;
      num_marked += same ? 0 : 1;
    }
    EXPECT_EQ(num_marked, 1);
  };
  expect_resumed("packed", pack_once);
  expect_resumed("back", unpack_once);
}

struct Golden {
  const char* name;
  const char* layout;
  const char* tile;
};

class PackGolden : public ::testing::TestWithParam<Golden> {};

TEST_P(PackGolden, comes_back_bit_for_bit) {
  const TempDir folder;
  expect_round_trip(kGoldens / GetParam().name, folder, to(GetParam().layout, GetParam().tile));
}

INSTANTIATE_TEST_SUITE_P(
    All, PackGolden,
    ::testing::Values(
        Golden{"qwen3-awq", "marlin", ""}, Golden{"qwen3-gptq-v1", "marlin", ""},
        Golden{"qwen3-gptq-v2", "marlin", ""}, Golden{"qwen3-gptq-act-order", "marlin", ""},
        Golden{"qwen3-awq", "int4pack-cpu", "64"}, Golden{"qwen3-awq", "int4pack-cpu", "32"},
        Golden{"qwen3-gptq-v1", "int4pack-cpu", "pairs-32"},
        Golden{"qwen3-gptq-act-order", "int4pack-cpu", "pairs-16"},
        Golden{"gptqmodel-4-bits", "int4pack-cpu", "64"},
        Golden{"autoawq-qwen3-moe", "int4pack-cpu", "32"},
        Golden{"llmcompressor-qwen3-moe", "int4pack-cpu", "64"},
        Golden{"llmcompressor-w4a16-asym", "int4pack-cpu", "32"},
        Golden{"llmcompressor-0-12-actorder", "int4pack-cpu", "32"},
        Golden{"qwen3-biases-gptq", "int4pack-cpu", "64"}, Golden{"qwen3-awq", "int4pack-cuda", ""},
        Golden{"qwen3-gptq-v2", "int4pack-cuda", "2"}, Golden{"qwen3-awq", "int4pack-xpu", ""},
        Golden{"qwen3-gptq-act-order", "int4pack-xpu", ""},
        Golden{"llmcompressor-qwen3-moe", "int4pack-xpu", ""},
        Golden{"gpt-oss-mxfp4", "marlin-fp4", ""}, Golden{"gpt-oss-mxfp4", "flashinfer-mxfp4", ""},
        Golden{"gpt-oss-mxfp4", "flashinfer-mxfp4", "8x4"},
        Golden{"llmcompressor-mxfp4", "flashinfer-mxfp4", ""}),
    [](const auto& test) {
      return test_name_of(
          fmt::format("{}_{}_{}", test.param.name, test.param.layout, test.param.tile));
    });

/// One linear layer, four experts that are modules, and with a flavour that has them a stack.
struct Form {
  const char* exporter;
  WeightFormat format;
  const char* layout;
  const char* tile;
  double factor = 1;
};

QuantizedModel model_of(const Form& form, int64_t rows = 128, int64_t cols = 256) {
  QuantizedModel model = {form.exporter, {}};
  uint64_t seed = 1;
  const auto add = [&](const std::string& name, int count) {
    ModelModule& module = model.modules.emplace_back();
    module.name = name;
    for (int i = 0; i < count; ++i) {
      RandomMatrix matrix = random_matrix(form.format, rows, cols, Contents::kReal, seed++);
      matrix.view.tensor_scale = form.factor;
      // GPTQ 1 can say 1 to 16, AWQ and Marlin 0 to 15.
      const int width = zero_bytes(form.format.zero);
      for (int64_t z = 0; z < rows * matrix.view.groups() && matrix.zeros; ++z) {
        const auto zero = static_cast<uint16_t>(1 + z % 15);
        std::memcpy(matrix.zeros->data() + z * width, &zero, width);
      }
      if (form.format.scale == Format::kE4M3) {  // which Marlin has without signs
        for (std::byte& scale : matrix.scales->span()) scale &= std::byte{0x7F};
      }
      module.matrices.push_back(std::move(matrix));
    }
  };
  const bool stacks = find_exporter(form.exporter)->write_experts != nullptr;
  if (!stacks) {
    add("model.layers.0.self_attn.q_proj", 1);
    for (int e = 0; e < 4; ++e) add(fmt::format("model.layers.0.mlp.experts.{}.up_proj", e), 1);
    for (int e = 0; e < 4; ++e) add(fmt::format("model.layers.0.mlp.experts.{}.down_proj", e), 1);
  } else {
    add("model.layers.0.mlp.experts.down_proj", 3);
  }
  return model;
}

constexpr WeightFormat u4(int64_t group, Format scale = Format::kF16) {
  return {Format::kU4, scale, Zero::kU8, group};
}
constexpr WeightFormat i4(int64_t group, Format scale = Format::kF16) {
  return {Format::kI4, scale, Zero::kNone, group};
}
constexpr WeightFormat kNvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};
constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat nfl(Format element, Format scale) {
  return {element, scale, Zero::kNone, 32};
}

class PackForm : public ::testing::TestWithParam<Form> {};

TEST_P(PackForm, comes_back_bit_for_bit) {
  const TempDir folder;
  write_model(model_of(GetParam()), folder, "model");
  expect_round_trip(folder / "model", folder, to(GetParam().layout, GetParam().tile));
}

INSTANTIATE_TEST_SUITE_P(
    All, PackForm,
    ::testing::Values(
        Form{"awq", u4(32), "marlin", ""}, Form{"awq", u4(64), "marlin", ""},
        Form{"gptq", u4(128), "marlin", ""}, Form{"gptq_v2", u4(0), "marlin", ""},
        Form{"gptq", {Format::kU8, Format::kBF16, Zero::kU16, 32}, "marlin", ""},
        Form{"pack_quantized", i4(32, Format::kBF16), "marlin", ""},
        Form{"pack_quantized", {Format::kI8, Format::kF16, Zero::kNone, 128}, "marlin", ""},
        Form{"gptq", u4(32, Format::kBF16), "int4pack-cuda", "4"},
        Form{"pack_quantized", i4(128, Format::kBF16), "int4pack-cuda", ""},
        Form{"pack_quantized", i4(64), "int4pack-cpu", "pairs-16"},
        Form{"pack_quantized", i4(64, Format::kF32), "int4pack-cpu", "64"},
        Form{"pack_quantized", i4(64), "int4pack-xpu", ""}, Form{"mxfp4", kMxfp4, "marlin-fp4", ""},
        Form{"mxfp4", kMxfp4, "flashinfer-mxfp4", ""},
        Form{"mxfp4_pack_quantized", kMxfp4, "marlin-fp4", ""},
        Form{"nvfp4_pack_quantized", kNvfp4, "marlin-fp4", "", 0.125},
        Form{"modelopt_nvfp4", kNvfp4, "marlin-fp4", "", 0.375},
        Form{"kbit", nfl(Format::kNFL2, Format::kE4M4), "kbit", ""},
        Form{"kbit", nfl(Format::kNFL3, Format::kF16), "kbit", "flat"},
        Form{"kbit", nfl(Format::kNFL4, Format::kE4M4), "kbit", "tiled", 0.25},
        Form{"kbit", nfl(Format::kNFL5, Format::kE4M4), "kbit", "flat"}),
    [](const auto& test) {
      return test_name_of(fmt::format("{}_{}_{}_{}", test.param.exporter,
                                      to_string(test.param.format), test.param.layout,
                                      test.param.tile));
    });

TEST(Pack, experts_become_one_tensor_with_a_line_that_says_so) {
  const TempDir folder;
  write_model(model_of({"awq", u4(32), "marlin", ""}), folder, "model");
  const auto report = pack(folder / "model", folder / "packed", to("marlin"));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->modules, 9);
  EXPECT_EQ(report->packed_modules, 3);
  EXPECT_EQ(report->tile, "16x64");
  const auto packed = TensorSource::open_packed(folder / "packed");
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const FileTensor* words = packed->find("model.layers.0.mlp.experts.up_proj.packed.words");
  ASSERT_NE(words, nullptr);
  EXPECT_EQ(words->shape, (Shape{4, 16, 256}));
  const auto& metadata = packed->metadata().front();
  const auto line = metadata.find("model.layers.0.mlp.experts.up_proj.packed");
  ASSERT_NE(line, metadata.end());
  EXPECT_EQ(line->second,
            R"({"layout":"marlin","version":1,"tile":"16x64","shape":[4,128,256],"modules":true,)"
            R"("element":"u4","scale":"f16","zero":"u8","group_size":32,"flavour":"awq",)"
            R"("tensors":[".qweight",".qzeros",".scales"]})");
}

TEST(Pack, symmetric_codes_have_no_zero_points_in_marlin) {
  const TempDir folder;
  QuantizedModel model = model_of({"gptq", u4(32), "marlin", ""});
  for (ModelModule& module : model.modules) {
    for (RandomMatrix& matrix : module.matrices) {
      std::memset(matrix.zeros->data(), 8, matrix.view.zeros.size());
    }
  }
  write_model(model, folder, "model");
  expect_round_trip(folder / "model", folder, to("marlin"));
  const auto packed = TensorSource::open_packed(folder / "packed");
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->find("model.layers.0.self_attn.q_proj.packed.zeros"), nullptr);
  EXPECT_NE(packed->find("model.layers.0.self_attn.q_proj.packed.scales"), nullptr);
}

TEST(Pack, the_same_bytes_for_any_number_of_threads_and_shards_that_come_back) {
  const TempDir folder;
  write_model(model_of({"awq", u4(32), "marlin", ""}), folder, "model");
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const auto report = pack_model(folder / "model", folder / std::to_string(threads),
                                   to("int4pack-cpu", "32"), pool);
    ASSERT_TRUE(report.ok()) << report.error().message;
  }
  EXPECT_TRUE(folder.read("1/packed.safetensors") == folder.read("3/packed.safetensors"));
  PackOptions options = to("marlin");
  options.shard_bytes = 40'000;
  expect_round_trip(folder / "model", folder, options);
  EXPECT_TRUE(fs::exists(folder / "packed/packed.safetensors.index.json"));
}

TEST(Pack, what_is_kept_stays_as_it_is) {
  const TempDir folder;
  write_model(model_of({"awq", u4(32), "marlin", ""}), folder, "model");
  PackOptions options = to("marlin");
  options.keep = {"re:.*down_proj"};
  expect_round_trip(folder / "model", folder, options);
  const auto packed = TensorSource::open_packed(folder / "packed");
  ASSERT_TRUE(packed.ok());
  EXPECT_NE(packed->find("model.layers.0.mlp.experts.1.down_proj.qweight"), nullptr);
}

TEST(Pack, what_is_kept_must_be_there) {
  const TempDir folder;
  write_model(model_of({"awq", u4(32), "marlin", ""}), folder, "model");
  PackOptions options = to("marlin");
  options.keep = {"re:.*down_proj", "nothere"};
  ThreadPool pool(1);
  const auto report = pack_model(folder / "model", folder / "packed", options, pool);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, "quantize.pattern");
  EXPECT_NE(report.error().message.find("nothere"), std::string::npos) << report.error().message;
  EXPECT_FALSE(fs::exists(folder / "packed"));
}

TEST(Pack, experts_of_nvfp4_share_the_power_of_two_that_marlin_takes_out) {
  const TempDir folder;
  QuantizedModel model = model_of({"nvfp4_pack_quantized", kNvfp4, "marlin-fp4", "", 0.125});
  // 2^-4 is the smallest scale and, of the first expert of up_proj, 28 the largest: 448 / 28 is 16.
  for (ModelModule& module : model.modules) {
    auto scales = module.matrices.front().scales->span();
    std::ranges::fill(scales, std::byte{0x18});
    if (module.name.ends_with("experts.0.up_proj")) scales[0] = std::byte{0x5E};
  }
  write_model(model, folder, "model");
  expect_round_trip(folder / "model", folder, to("marlin-fp4", "", "bf16"));
  const auto packed = TensorSource::open_packed(folder / "packed");
  ASSERT_TRUE(packed.ok());
  const auto& line = packed->metadata().front().at("model.layers.0.mlp.experts.up_proj.packed");
  EXPECT_NE(line.find(R"("activations":"bf16","scale_factor":16.0,)"), std::string::npos) << line;
  const FileTensor* global = packed->find("model.layers.0.mlp.experts.up_proj.packed.global");
  ASSERT_NE(global, nullptr);
  ASSERT_EQ(global->shape, Shape{4});
  float factor = 0;
  std::memcpy(&factor, global->bytes.data(), 4);
  EXPECT_EQ(factor, 0.125F * 0x1p119F / 16);
}

TEST(Pack, scales_of_nvfp4_that_marlin_reads_as_0_are_refused) {
  const TempDir folder;
  QuantizedModel model = model_of({"nvfp4_pack_quantized", kNvfp4, "marlin-fp4", "", 0.125});
  for (ModelModule& module : model.modules) {
    std::ranges::fill(module.matrices.front().scales->span(), std::byte{0x38});
  }
  model.modules.front().matrices.front().scales->data()[3] = std::byte{0x05};  // below 2^-6
  write_model(model, folder, "model");
  for (const char* activations : {"f16", "bf16"}) {
    const bool lost = std::string_view(activations) == "f16";  // 448 / 1 keeps it for bf16
    EXPECT_EQ(code_of(folder / "model", folder / activations, to("marlin-fp4", "", activations)),
              lost ? "pack.scale_range" : "ok");
  }
}

TEST(Pack, biases_of_experts_have_the_order_of_marlin_in_one_tensor) {
  const TempDir folder;
  const auto report = pack(kGoldens / "gpt-oss-mxfp4", folder / "packed", to("marlin-fp4"));
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto packed = TensorSource::open_packed(folder / "packed");
  const auto model = TensorSource::open(kGoldens / "gpt-oss-mxfp4");
  ASSERT_TRUE(packed.ok() && model.ok());
  const std::string module = "model.layers.0.mlp.experts.gate_up_proj";
  const FileTensor* bias = packed->find(module + ".packed.bias");
  const FileTensor* before = model->find(module + "_bias");
  ASSERT_NE(bias, nullptr);
  ASSERT_EQ(bias->shape, before->shape);
  EXPECT_EQ(packed->find(module + "_bias"), nullptr);
  // Column 2 of 32 is output 8, of every expert.
  const std::size_t row = before->bytes.size() / before->shape[0];
  for (std::size_t e = 0; e < before->shape[0]; ++e) {
    EXPECT_TRUE(std::ranges::equal(bias->bytes.subspan(e * row + 4, 2),
                                   before->bytes.subspan(e * row + 16, 2)));
  }
}

TEST(Pack, refuses_by_name_what_a_layout_does_not_hold) {
  const TempDir folder;
  const auto code = [&](const char* golden, const PackOptions& options) {
    return code_of(kGoldens / golden, folder / "out", options);
  };
  EXPECT_EQ(code("qwen3-bf16", to("marlin")), "pack.not_quantized");
  EXPECT_EQ(code("qwen3-awq", to("marlin-fp4")), "pack.format");
  EXPECT_EQ(code("qwen3-awq", to("kbit")), "pack.format");
  EXPECT_EQ(code("qwen3-awq", to("flashinfer-mxfp4")), "pack.format");
  EXPECT_EQ(code("gpt-oss-mxfp4", to("marlin")), "pack.format");
  EXPECT_EQ(code("gptqmodel-2-bits", to("marlin")), "pack.format");
  EXPECT_EQ(code("gptqmodel-3-bits", to("int4pack-cuda")), "pack.format");
  EXPECT_EQ(code("qwen3-fp8-blocks", to("marlin")), "pack.format");
  EXPECT_EQ(code("bitsandbytes-nf4-double", to("kbit")), "pack.format");
  EXPECT_EQ(code("gptqmodel-4-bits", to("marlin")), "layout.shape");  // 32 outputs
  EXPECT_EQ(code("gpt-oss-mxfp4", to("marlin-fp4", "", "f16")), "pack.activations");
  EXPECT_EQ(code("qwen3-awq", to("marlin", "", "f16")), "pack.activations");
  EXPECT_EQ(code("qwen3-awq", to("int4pack-cpu")), "pack.tile");
  EXPECT_EQ(code("qwen3-awq", to("int4pack-cuda", "16")), "pack.tile");
  EXPECT_EQ(code("qwen3-awq", to("marlin24")), "pack.layout");
  EXPECT_FALSE(fs::exists(folder / "out"));
}

TEST(Pack, refuses_odd_sizes_and_groups_and_zero_points_with_the_name_of_the_module) {
  const TempDir folder;
  const auto refuse = [&](const Form& form, int64_t rows, int64_t cols, std::string_view code,
                          int zero = 1) {
    QuantizedModel model = model_of(form, rows, cols);
    for (RandomMatrix& matrix : model.modules.front().matrices) {
      if (matrix.zeros) matrix.zeros->data()[0] = std::byte(zero);
    }
    const std::string name = fmt::format("{}-{}-{}-{}", form.layout, rows, cols, code);
    write_model(model, folder, name);
    const auto report = pack(folder / name, folder / "out", to(form.layout, form.tile));
    ASSERT_FALSE(report.ok()) << name;
    EXPECT_EQ(report.error().code, code) << report.error().message;
    EXPECT_NE(report.error().message.find("model.safetensors: \"model.layers.0."),
              std::string::npos)
        << report.error().message;
    EXPECT_FALSE(fs::exists(folder / "out"));
  };
  refuse({"gptq", u4(32), "marlin", ""}, 96, 256, "layout.shape");
  refuse({"gptq", u4(16), "marlin", ""}, 128, 256, "pack.group_size");
  refuse({"gptq", u4(128), "marlin", ""}, 128, 256, "layout.zero_range", 16);
  refuse({"awq", u4(256), "marlin", ""}, 128, 512, "pack.group_size");
  refuse({"gptq", u4(16), "int4pack-cpu", "64"}, 128, 256, "pack.group_size");
  refuse({"gptq", u4(32), "int4pack-cpu", "64"}, 8, 256, "layout.shape");
  refuse({"gptq", u4(32), "int4pack-cuda", "8"}, 128, 64, "layout.shape");
  refuse({"gptq", u4(32), "int4pack-xpu", ""}, 128, 256, "layout.zero_range", 16);
  refuse({"gptq", u4(16), "int4pack-xpu", ""}, 128, 256, "pack.group_size");
  refuse({"kbit", nfl(Format::kNFL4, Format::kE4M4), "kbit", "tiled"}, 96, 256, "layout.shape");
  refuse({"mxfp4", kMxfp4, "marlin-fp4", ""}, 48, 256, "layout.shape");
  refuse({"mxfp4", kMxfp4, "marlin-fp4", ""}, 64, 32, "pack.group_size");
}

TEST(PackModel, of_a_gguf_file_is_that_of_the_directory_that_it_becomes) {
  const TempDir folder;
  ThreadPool pool(2);
  const fs::path file = folder / "model.gguf";
  const fs::path golden = kGoldens / "gptqmodel-short-group";
  ASSERT_TRUE(convert_model(golden, file, {.format = "gguf"}, pool).ok());
  const auto report = pack(file, folder / "packed", to("int4pack-xpu"));
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_TRUE(unpack_model(folder / "packed", folder / "back", {}, pool).ok());
  const ConvertOptions options = {.format = "compressed-tensors"};
  ASSERT_TRUE(convert_model(file, folder / "expected", options, pool).ok());
  expect_same_tensors(folder / "back", folder / "expected");
  const auto left = std::distance(fs::directory_iterator(folder / "."), {});
  EXPECT_EQ(left, 4);
}

}  // namespace
}  // namespace subbyte
