#pragma once
// Small model directories in any format: random matrices, written by an exporter beside tensors
// that no tool quantizes, and what is read back held against the matrices themselves.

#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoints/config/exported_config.h"
#include "checkpoints/importer.h"
#include "support/random_matrix.h"
#include "support/temp_dir.h"
#include "support/test_tensors.h"

namespace subbyte {

/// One module; several matrices are the experts of a stack.
struct ModelModule {
  std::string name;
  std::vector<testing::RandomMatrix> matrices;
};

struct QuantizedModel {
  std::string exporter;  // or f32, bf16, f16
  std::vector<ModelModule> modules;
};

inline Matrix unowned(const MatrixView& view) {
  Matrix matrix;
  matrix.view = view;
  return matrix;
}

inline DType dense_dtype(std::string_view name) {
  return name == "f32" ? DType::kF32 : name == "bf16" ? DType::kBF16 : DType::kF16;
}

/// What stays as it is beside quantized weights; of the same type as the weights beside others.
inline std::vector<TestTensor> kept_tensors(std::string_view exporter) {
  const bool dense = find_exporter(exporter) == nullptr;
  const auto type = [&](DType dtype) { return dense ? dense_dtype(exporter) : dtype; };
  Random random(99);
  return {random_floats("model.embed_tokens.weight", type(DType::kBF16), {10, 16}, random),
          random_floats("model.norm.weight", type(DType::kF16), {16}, random),
          random_floats("model.layers.0.mlp.router.weight", type(DType::kF32), {3, 16}, random)};
}

inline std::vector<TestTensor> tensors_of(const ModelModule& module, const Exporter* exporter,
                                          DType dense) {
  if (exporter == nullptr) {
    const MatrixView& view = module.matrices.front().view;
    const std::string bytes(reinterpret_cast<const char*>(view.codes.data()), view.codes.size());
    return {{module.name + ".weight",
             dense,
             {static_cast<uint64_t>(view.rows), static_cast<uint64_t>(view.cols)},
             bytes}};
  }
  ThreadPool pool(1);
  std::vector<Matrix> matrices;
  for (const auto& matrix : module.matrices) matrices.push_back(unowned(matrix.view));
  const auto written = exporter->write_experts != nullptr
                           ? exporter->write_experts(matrices, module.name, pool)
                           : exporter->write(matrices.front().view, module.name, pool);
  EXPECT_TRUE(written.ok()) << written.error().message;
  std::vector<TestTensor> tensors;
  for (const ExportedTensor& tensor : *written) {
    tensors.push_back({module.name + std::string(tensor.suffix),
                       tensor.dtype,
                       tensor.shape,
                       {reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}});
  }
  return tensors;
}

/// Writes config.json and model.safetensors.
inline void write_model(const QuantizedModel& model, const TempDir& folder,
                        const std::string& directory) {
  const Exporter* exporter = find_exporter(model.exporter);
  std::vector<TestTensor> tensors = kept_tensors(model.exporter);
  ExportedModel exported = {{}, {"lm_head", "model.layers.0.mlp.router"}, {}};
  for (const ModelModule& module : model.modules) {
    for (TestTensor& tensor : tensors_of(module, exporter, dense_dtype(model.exporter))) {
      tensors.push_back(std::move(tensor));
    }
    ExportShape shape = shape_of(module.matrices.front().view);
    shape.experts = static_cast<int64_t>(module.matrices.size());
    exported.modules.push_back({module.name, shape});
  }
  json::Value config = {{"model_type", "any"}, {"torch_dtype", "bfloat16"}};
  if (exporter != nullptr) config["quantization_config"] = exporter->config(exported).section;
  folder.write(directory + "/config.json", config.text());
  const Status written = write_tensors(folder / (directory + "/model.safetensors"), tensors);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

/// A directory that is open.
struct OpenModel {
  TensorSource tensors;
  QuantizationConfig config;

  static Result<OpenModel> open(const std::filesystem::path& directory) {
    const std::string where = (directory / "config.json").string();
    SUBBYTE_TRY(const auto value, json::parse_file(where, 1 << 20));
    SUBBYTE_TRY(const auto object, json::Object::of(value, where));
    SUBBYTE_TRY(auto config, read_quantization_config(object, directory));
    SUBBYTE_TRY(auto tensors, TensorSource::open(directory));
    return OpenModel{std::move(tensors), std::move(config)};
  }

  /// Matrix `expert` of a stack, whether it is one tensor or has a name of its own.
  Result<Matrix> matrix(const std::string& name, int64_t expert, int64_t experts) const {
    static ThreadPool pool(2);
    const ImportContext context = {tensors, config, pool};
    auto whole = import_experts(context, name);
    if (whole.ok() || experts == 1) {
      if (!whole.ok()) return whole.error();
      return std::move((*whole)[expert]);
    }
    const std::size_t stack = name.find("experts.") + 8;
    return import_matrix(context,
                         name.substr(0, stack) + std::to_string(expert) + "." + name.substr(stack));
  }
};

/// The bits of the weights in the order of the inputs.
inline std::vector<uint64_t> weight_bits(const MatrixView& view) {
  std::vector<uint64_t> bits(view.rows * view.cols);
  for (int64_t n = 0; n < view.rows; ++n) {
    for (int64_t k = 0; k < view.cols; ++k) {
      const int64_t input = view.input_order.empty() ? k : view.input_order[k];
      bits[n * view.cols + input] = std::bit_cast<uint64_t>(weight_at(view, n, k));
    }
  }
  return bits;
}

/// Every weight of the model is in the directory, to the bit, and so are the kept tensors.
inline void expect_weights_of(const QuantizedModel& model, const std::filesystem::path& directory,
                              bool kept = true) {
  const auto opened = OpenModel::open(directory);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  for (const ModelModule& module : model.modules) {
    const auto experts = static_cast<int64_t>(module.matrices.size());
    for (int64_t e = 0; e < experts; ++e) {
      const auto matrix = opened->matrix(module.name, e, experts);
      ASSERT_TRUE(matrix.ok()) << matrix.error().message;
      EXPECT_TRUE(weight_bits(matrix->view) == weight_bits(module.matrices[e].view))
          << module.name << " " << e;
    }
  }
  for (const TestTensor& tensor : kept_tensors(model.exporter)) {
    if (!kept) break;
    const FileTensor* found = opened->tensors.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(found->bytes, std::as_bytes(std::span(tensor.bytes))));
  }
}

}  // namespace subbyte
