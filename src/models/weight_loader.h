#pragma once
// Loads the weights of a model and keeps the accounts: what was read, what a token will read.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"
#include "models/model.h"

namespace subbyte {

struct Linear {
  Matrix matrix;
  std::vector<float> bias;  // [rows] or empty
};

enum class Bias : uint8_t { kNone, kRequired };

/// Tensors that some tools save and no model here reads: tables of the rotary embedding, which
/// follow from config.json, and scales for a key-value cache in FP8, which holds floats here.
bool is_ignored_tensor(std::string_view name);

class WeightLoader {
 public:
  WeightLoader(const ImportContext& context, const Execution& execution,
               const LoadOptions& options);

  /// A linear layer with rows outputs and cols inputs; code model.weight_shape when it has others.
  Result<Linear> linear(std::string_view module, int64_t rows, int64_t cols,
                        Bias bias = Bias::kNone);

  /// All experts of a layer; a token uses `used` of them.
  Result<std::vector<Matrix>> experts(std::string_view module, int64_t experts, int64_t rows,
                                      int64_t cols, int64_t used);

  /// A dense table whose rows are looked up, quantized as LoadOptions::head_bits says. Not counted
  /// among the bytes that a token reads.
  Result<Matrix> table(std::string_view module, int64_t rows, int64_t cols);

  /// A vector, or a matrix taken as one: `size` numbers.
  Result<std::vector<float>> vector(std::string_view name, int64_t size);
  Result<std::vector<float>> matrix_as_vector(std::string_view name, int64_t rows, int64_t cols);

  /// The head: the embedding once more when the model ties them, else quantized as
  /// LoadOptions::head_bits says. A head that the file holds quantized stays as it is.
  Result<Linear> head(const ModelConfig& config, const Matrix& embedding);

  /// Hands the accounts to the finished model. Refuses tensors that nobody asked for
  /// (model.surplus: they belong to another architecture or to layers that config.json does not
  /// count) and a quantization method that no tensor has (import.config).
  Status finish(Model& model) const;

 private:
  Status check(std::string_view module, const MatrixView& view, int64_t rows, int64_t cols) const;
  void count(const MatrixView& view, double share);
  void report(uint64_t bytes);
  Result<ModuleInfo> use_module(std::string_view module);
  Result<Matrix> matrix(std::string_view module, int64_t rows, int64_t cols);
  Result<Matrix> with_head_bits(Matrix matrix, std::string_view module);
  Status refuse_bias(std::string_view module) const;
  Status check_tied_head();

  ImportContext context_;
  const Execution* execution_;
  LoadOptions options_;
  const Tensor* table_ = nullptr;  // of the embedding
  std::set<std::string, std::less<>> used_tensors_;
  std::set<std::string_view> used_importers_;
  uint64_t read_bytes_ = 0;
  double bytes_per_token_ = 0;
  int64_t weight_bytes_ = 0;
  std::span<const std::byte> largest_;
};

}  // namespace subbyte
