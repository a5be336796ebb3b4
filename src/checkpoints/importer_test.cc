// Which importer is chosen, what contradictions are refused, and vectors.

#include "checkpoints/importer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoints/flavours/ct_config.h"
#include "checkpoints/flavours/modelopt.h"
#include "checkpoints/modules.h"
#include "support/import_fixture.h"

namespace subbyte {
namespace {

class Importers : public ImportFixture {
 protected:
  std::string importer_of(const std::vector<TestTensor>& tensors) {
    open(tensors);
    const auto info = describe_module(context(), "m");
    return info.ok() ? std::string(info->importer) : std::string(info.error().code);
  }

  void use(const char* method, int64_t group_size) {
    say({{"quant_method", method}, {"bits", 4}, {"group_size", group_size}});
  }

  /// 16 outputs, 64 inputs, groups of 32.
  static std::vector<TestTensor> awq() {
    Random random(1);
    return {random_bits("m.qweight", DType::kI32, {64, 2}, random),
            random_bits("m.qzeros", DType::kI32, {2, 2}, random),
            random_floats("m.scales", DType::kF16, {2, 16}, random)};
  }
  static std::vector<TestTensor> gptq() {
    Random random(2);
    return {random_bits("m.qweight", DType::kI32, {8, 16}, random),
            random_bits("m.qzeros", DType::kI32, {2, 2}, random),
            random_floats("m.scales", DType::kF16, {2, 16}, random)};
  }

  /// The modules as `inspect` finds them.
  std::string seen(const std::vector<TestTensor>& tensors) {
    open(tensors);
    std::string names;
    std::size_t used = 0;
    for (const FoundModule& module : find_modules(context())) {
      const auto& info = module.info;
      names += info.ok() ? std::string(info->importer) : std::string(info.error().code);
      if (info.ok()) used += info->tensors.size();
    }
    return names + (used == tensors.size() ? "" : " and others");
  }

  static TestTensor bytes(std::string name, DType dtype, Shape shape) {
    return filled<uint8_t>(std::move(name), dtype, std::move(shape), 0x38);
  }
};

TEST_F(Importers, are_tried_in_the_order_of_the_list) {
  std::string names;
  for (const Importer* importer : all_importers()) names += std::string(importer->name) + " ";
  EXPECT_EQ(names,
            "awq marlin marlin_qweight gptq pack_quantized naive_quantized nvfp4_pack_quantized "
            "mxfp4_pack_quantized modelopt_int4 modelopt_mxfp4 modelopt_nvfp4 modelopt_experts "
            "mxfp4 mxfp4_original bnb_nf4 fp8 kbit vq hqq q8_0 gguf dense ");
}

TEST_F(Importers, name_the_software_whose_tensors_are_not_supported) {
  Random random(3);
  const auto message_of = [&](std::vector<TestTensor> tensors) {
    open(tensors);
    const auto info = describe_module(context(), "m");
    EXPECT_FALSE(info.ok());
    return info.ok() ? "" : info.error().message;
  };
  const auto half = [&](const char* name) {
    return random_floats(name, DType::kF16, {16, 2}, random);
  };
  const auto expect_named = [](const std::string& message, const std::string& name) {
    EXPECT_NE(message.find("found weights of " + name + ", which are not supported"),
              std::string::npos)
        << message;
  };
  expect_named(message_of({random_bits("m.weight", DType::kU32, {16, 8}, random), half("m.scales"),
                           half("m.biases")}),
               "MLX");
  expect_named(message_of({random_bits("m.trellis", DType::kI16, {1, 1, 48}, random), half("m.suh"),
                           half("m.svh")}),
               "EXL3 (ExLlamaV3)");
  expect_named(message_of({random_bits("m.weight", DType::kI8, {16, 64}, random),
                           random_floats("m.SCB", DType::kF32, {16}, random)}),
               "bitsandbytes in 8 bits");
}

TEST_F(Importers, are_chosen_by_the_tensors) {
  use("awq", 32);
  EXPECT_EQ(importer_of(awq()), "awq");
  use("gptq", 32);
  EXPECT_EQ(importer_of(gptq()), "gptq");
  std::vector<TestTensor> with_index = gptq();
  std::vector<int32_t> groups(64, 0);
  std::fill(groups.begin() + 32, groups.end(), 1);
  with_index.push_back(int32_tensor("m.g_idx", {64}, groups));
  EXPECT_EQ(importer_of(with_index), "gptq");
  use("mxfp4", 32);
  EXPECT_EQ(importer_of({filled<uint8_t>("m_blocks", DType::kU8, {2, 3, 1, 16}, 1),
                         filled<uint8_t>("m_scales", DType::kU8, {2, 3, 1}, 1)}),
            "mxfp4");
  EXPECT_EQ(importer_of({filled<float>("m.weight", DType::kF32, {2, 3}, 1)}), "dense");
  EXPECT_EQ(importer_of({filled<float>("m", DType::kF32, {2, 3, 4}, 1)}), "dense");
}

TEST_F(Importers, each_takes_its_own_tensors_and_all_of_them) {
  const TestTensor one = filled<float>("m.weight_global_scale", DType::kF32, {1}, 1);
  const TestTensor packed = bytes("m.weight_packed", DType::kU8, {4, 16});
  const TestTensor nvfp4_scale = bytes("m.weight_scale", DType::kF8E4M3, {4, 2});
  use("awq", 32);
  EXPECT_EQ(seen(awq()), "awq");
  use("gptq", 32);
  EXPECT_EQ(seen(gptq()), "gptq");
  use("mxfp4", 32);
  EXPECT_EQ(seen({bytes("m_blocks", DType::kU8, {2, 3, 1, 16}),
                  bytes("m_scales", DType::kU8, {2, 3, 1})}),
            "mxfp4");
  EXPECT_EQ(seen({bytes("m.blocks", DType::kU8, {2, 3, 1, 16}),
                  bytes("m.scales", DType::kU8, {2, 3, 1})}),
            "mxfp4_original");
  said_by<CompressedState>(compressed_tensors_flavour).schemes = {
      {CompressedScheme::Format::kPackQuantized, 4, true, 32, false},
      {CompressedScheme::Format::kNvfp4, 4, true, 16, false},
      {CompressedScheme::Format::kMxfp4, 4, true, 32, false}};
  TestTensor shape = filled<int64_t>("m.weight_shape", DType::kI64, {2}, 4);
  shape.set<int64_t>(1, 32);
  EXPECT_EQ(seen({filled<int32_t>("m.weight_packed", DType::kI32, {4, 4}, 7), shape,
                  filled<float>("m.weight_scale", DType::kF32, {4, 1}, 1)}),
            "pack_quantized");
  EXPECT_EQ(
      seen({packed, nvfp4_scale, one, filled<float>("m.input_global_scale", DType::kF32, {1}, 1)}),
      "nvfp4_pack_quantized");
  EXPECT_EQ(seen({packed, nvfp4_scale}), "import.missing and others");
  EXPECT_EQ(seen({packed, bytes("m.weight_scale", DType::kU8, {4, 1})}), "mxfp4_pack_quantized");
  EXPECT_EQ(seen({filled<float>("m.weight", DType::kF32, {2, 3}, 1)}), "dense");
}

TEST_F(Importers, those_of_modelopt_take_its_tensors_and_all_of_them) {
  said_by<ModeloptState>(modelopt_flavour).weights = {
      ModeloptWeights::kNvfp4, ModeloptWeights::kMxfp4, ModeloptWeights::kInt4,
      ModeloptWeights::kInt8};
  const TestTensor factor = filled<float>("m.weight_scale_2", DType::kF32, {}, 1);
  EXPECT_EQ(
      seen({bytes("m.weight", DType::kU8, {4, 16}), bytes("m.weight_scale", DType::kF8E4M3, {4, 2}),
            factor, filled<float>("m.input_scale", DType::kF32, {}, 1)}),
      "modelopt_nvfp4");
  EXPECT_EQ(seen({bytes("m.weight", DType::kU8, {2, 32}),
                  filled<float>("m.weight_scale", DType::kF32, {4, 2}, 1),
                  filled<float>("m.pre_quant_scale", DType::kF32, {32}, 1)}),
            "modelopt_int4");
  EXPECT_EQ(seen({bytes("m.weight", DType::kI8, {4, 32}),
                  filled<float>("m.weight_scale", DType::kF32, {4}, 1),
                  filled<float>("m.input_scale", DType::kF32, {}, 1),
                  filled<float>("m.pre_quant_scale", DType::kF32, {32}, 1)}),
            "naive_quantized");
}

TEST_F(Importers, factors_of_inputs_that_nobody_multiplies_by_are_refused) {
  use("awq", 32);
  std::vector<TestTensor> tensors = awq();
  EXPECT_EQ(code_of(tensors), "");
  tensors.push_back(filled<float>("m.pre_quant_scale", DType::kF32, {32}, 2));
  EXPECT_EQ(code_of(tensors), "import.config");
  EXPECT_NE(message().find("\"m.pre_quant_scale\": expected no factors of inputs"),
            std::string::npos)
      << message();
}

TEST_F(Importers, a_wrong_label_is_refused_with_both_names) {
  use("awq", 32);
  EXPECT_EQ(code_of(gptq()), "import.config");
  EXPECT_NE(message().find("\"awq\""), std::string::npos) << message();
  EXPECT_NE(message().find("\"gptq\""), std::string::npos) << message();
  use("gptq", 32);
  EXPECT_EQ(code_of(awq()), "import.config");
  EXPECT_NE(message().find("\"awq\""), std::string::npos) << message();
  EXPECT_NE(message().find("\"gptq\""), std::string::npos) << message();
  config_ = {};
  EXPECT_EQ(code(), "import.config");
  EXPECT_NE(message().find("\"none\""), std::string::npos) << message();
}

TEST_F(Importers, a_module_with_tensors_of_two_flavours_is_refused_with_both_names) {
  use("awq", 32);
  std::vector<TestTensor> tensors = awq();
  tensors.push_back(bytes("m.weight_packed", DType::kU8, {4, 16}));
  EXPECT_EQ(code_of(tensors), "import.flavours");
  EXPECT_NE(message().find("those of \"awq\" and those of \"mxfp4_pack_quantized\""),
            std::string::npos)
      << message();
  EXPECT_TRUE(has_module(*source_, "m"));
  EXPECT_EQ(seen(tensors), "import.flavours and others");
  // Floats beside them are no flavour.
  tensors.back() = filled<float>("m.weight", DType::kF32, {2, 3}, 1);
  EXPECT_EQ(code_of(tensors), "");
}

TEST_F(Importers, a_square_matrix_is_told_by_its_words) {
  // K = N = 64 with one group: AWQ has 64 x 8 words, GPTQ 8 x 64.
  Random random(3);
  const TestTensor qzeros = random_bits("m.qzeros", DType::kI32, {1, 8}, random);
  const TestTensor scales = random_floats("m.scales", DType::kF16, {1, 64}, random);
  use("awq", -1);
  EXPECT_EQ(importer_of({random_bits("m.qweight", DType::kI32, {64, 8}, random), qzeros, scales}),
            "awq");
  use("gptq", -1);
  EXPECT_EQ(importer_of({random_bits("m.qweight", DType::kI32, {8, 64}, random), qzeros, scales}),
            "gptq");
}

TEST_F(Importers, names_what_was_looked_for) {
  open({filled<float>("other.weight", DType::kF32, {2, 3}, 1)});
  EXPECT_EQ(code(), "import.missing");
  for (const char* part :
       {"\"m\"", "m.qweight", "m.weight_packed", "m_blocks", "m.weight", "model.safetensors"}) {
    EXPECT_NE(message().find(part), std::string::npos) << message();
  }
}

TEST_F(Importers, one_matrix_is_not_several_experts) {
  open({filled<float>("m", DType::kF32, {2, 3, 4}, 1)});
  const auto matrix = import_matrix(context(), "m");
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().code, "import.shape");
  open({filled<float>("m", DType::kF32, {1, 3, 4}, 1)});
  EXPECT_TRUE(import_matrix(context(), "m").ok());
}

TEST_F(Importers, many_modules_are_those_one_by_one_in_their_order) {
  Random random(7);
  std::vector<TestTensor> tensors;
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) {
    names.push_back("m" + std::to_string(i));
    const auto rows = static_cast<uint64_t>(8 + i);
    tensors.push_back(random_floats(names.back() + ".weight", DType::kF16, {rows, 24}, random));
  }
  std::vector<std::string_view> modules(names.begin(), names.end());
  open(tensors);
  const auto matrices = import_matrices(context(), modules);
  ASSERT_TRUE(matrices.ok()) << matrices.error().message;
  ASSERT_EQ(matrices->size(), modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto expected = import_matrix(context(), modules[i]);
    ASSERT_TRUE(expected.ok());
    EXPECT_EQ((*matrices)[i].view.rows, expected->view.rows);
    EXPECT_TRUE(std::ranges::equal((*matrices)[i].view.codes, expected->view.codes)) << i;
  }
  modules[31] = "later";
  modules[17] = "first";
  const auto refused = import_matrices(context(), modules);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "import.missing");
  EXPECT_NE(refused.error().message.find("\"first\""), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(import_matrices(context(), {})->empty());
}

TEST_F(Importers, messages_name_the_file_and_the_tensor) {
  std::vector<TestTensor> tensors = awq();
  tensors[1] = filled<uint32_t>("m.qzeros", DType::kI32, {2, 3}, 0);
  use("awq", 32);
  EXPECT_EQ(code_of(tensors), "import.shape");
  EXPECT_EQ(message(), (dir_ / "model.safetensors").string() +
                           ": tensor \"m.qzeros\": expected shape [2, 2], found [2, 3]");
}

TEST_F(Importers, vectors_become_float32_exactly) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const std::size_t remainder : {0, 1}) {
      Random random(4);
      const TestTensor tensor = random_floats("v", dtype, {2, 5}, random);
      open_misaligned({tensor}, remainder);
      const auto values = import_vector(*source_, "v", {2, 5});
      ASSERT_TRUE(values.ok()) << values.error().message;
      ASSERT_EQ(values->size(), 10u);
      for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ((*values)[i], float_at(tensor, i));
    }
  }
}

TEST_F(Importers, vectors_are_checked) {
  open({filled<float>("v", DType::kF32, {4}, 1), filled<int32_t>("i", DType::kI32, {4}, 1)});
  const auto code_of_vector = [&](std::string_view name, const Shape& shape) {
    const auto values = import_vector(*source_, name, shape);
    return values.ok() ? std::string() : std::string(values.error().code);
  };
  EXPECT_EQ(code_of_vector("v", {4}), "");
  EXPECT_EQ(code_of_vector("v", {5}), "import.shape");
  EXPECT_EQ(code_of_vector("v", {4, 1}), "import.shape");
  EXPECT_EQ(code_of_vector("i", {4}), "dense.dtype");
  EXPECT_EQ(code_of_vector("w", {4}), "import.missing");
}

}  // namespace
}  // namespace subbyte
