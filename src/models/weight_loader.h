#pragma once
// Loads the weights of a model and keeps the accounts: what was read, what a token will read.

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoints/importer.h"
#include "models/model.h"

namespace subbyte {

inline constexpr std::string_view kTableModule = "model.embed_tokens";
inline constexpr std::string_view kHeadModule = "lm_head";

/// The matrices of a mixture of experts, of which a token uses some.
struct ExpertShape {
  int64_t experts = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t used = 0;
};

struct ExpertLinears {
  std::vector<Matrix> matrices;  // [experts] of [rows][cols]
  std::vector<float> bias;       // [experts][rows]
};

enum class Bias : uint8_t { kNone, kRequired };

/// One of the matrices that are joined.
struct JoinedModule {
  std::string name;
  int64_t rows = 0;
};

/// Tensors that some tools save and no model here reads: tables of the rotary embedding, which
/// follow from config.json, and scales for a key-value cache in FP8, which holds floats here.
bool is_ignored_tensor(std::string_view name);

class WeightLoader {
 public:
  WeightLoader(const ImportContext& context, Backend& backend, const LoadOptions& options,
               Reads reads = Reads::kAll);

  /// A linear layer with rows outputs and cols inputs; code model.weight_shape when it has others.
  Result<Weight> linear(std::string_view module, int64_t rows, int64_t cols,
                        Bias bias = Bias::kNone);

  /// Several with as many inputs as one: their outputs follow each other.
  Result<Weight> joined(const std::vector<JoinedModule>& modules, int64_t cols,
                        Bias bias = Bias::kNone);

  /// All experts of a layer with their biases, under the names of any flavour: a stack "experts.M"
  /// with "experts.M_bias", or modules "experts.E.M" with that or with "experts.E.M.bias".
  Result<ExpertLinears> experts(std::string_view module, const ExpertShape& shape,
                                Bias bias = Bias::kRequired);

  /// The same for a matrix that may also be there as two modules of each expert, which have its
  /// even and its odd rows. Code layout.format when these differ in more than their numbers.
  Result<ExpertLinears> alternating_experts(std::string_view module, std::string_view even,
                                            std::string_view odd, const ExpertShape& shape);

  /// The same of two modules of each expert, without biases.
  Result<ExpertLinears> paired_experts(std::string_view even, std::string_view odd,
                                       const ExpertShape& shape);

  /// A dense table whose rows are looked up, quantized as LoadOptions::head_bits says. Not counted
  /// among the bytes that a token reads.
  Result<Weight> table(std::string_view module, int64_t rows, int64_t cols);

  Result<Vector> vector(std::string_view name, int64_t size);
  /// A norm of the hidden states.
  Result<Norm> norm(std::string_view name, const ModelConfig& config);

  /// Puts experts into the memory of the backend. `where` stands in front of what it says.
  Result<Experts> upload(std::string_view where, ExpertMatrices experts);

  /// The head: the embedding once more when the model ties them, else quantized as
  /// LoadOptions::head_bits says. A head that the file holds quantized stays as it is.
  Result<Weight> head(const ModelConfig& config, const Weight& embedding);

  /// Hands the accounts to the finished model. Refuses tensors that the model does not use
  /// (model.surplus: they belong to another architecture or to layers that config.json does not
  /// count) and a quantization method that no tensor has (import.config).
  Status finish(Model& model) const;

 private:
  static Status check_shape(std::string_view module, const MatrixView& view, int64_t rows,
                            int64_t cols);
  Result<std::vector<float>> numbers(std::string_view name, int64_t size);
  Result<std::vector<float>> matrix_as_numbers(std::string_view name, int64_t rows, int64_t cols);
  Result<Weight> upload(std::string_view module, Matrix matrix, std::vector<float> bias = {});
  Status take_bias(std::string_view module, int64_t rows, Bias bias, std::vector<float>& to);
  /// Counts bytes of which a token reads a share.
  void count(int64_t bytes, double share);
  void count(const Weight& weight, double share);
  void report(uint64_t bytes);
  Result<ModuleInfo> use_module(std::string_view module);
  Result<Matrix> matrix(std::string_view module, int64_t rows, int64_t cols);
  Result<std::vector<Matrix>> stack(std::string_view module, const ExpertShape& shape);
  Result<Matrix> paired_expert(const std::string& even, const std::string& odd,
                               const ExpertShape& shape);
  Result<std::vector<float>> expert_bias(std::string_view module, const ExpertShape& shape);
  /// Zeros in the form that kernels of the host read such a matrix in; nothing may write to them.
  Matrix outline(WeightFormat format, int64_t rows, int64_t cols);
  Result<Matrix> import_one(std::string_view module, const ModuleInfo& info);
  Result<std::vector<Matrix>> import_all(std::string_view module, const ModuleInfo& info);
  Result<Matrix> alternate(const Matrix& even, const Matrix& odd);
  Result<Matrix> with_head_bits(Matrix matrix, std::string_view module);
  Status refuse_bias(std::string_view module) const;
  Status check_tied_head();
  /// Gives the pages of what was read since the last call back to the system, where the backend has
  /// copied it.
  void release_read();

  ImportContext context_;
  Backend* backend_;
  LoadOptions options_;
  Reads reads_;
  std::shared_ptr<std::byte[]> zeros_;  // of all outlines
  std::size_t zeros_bytes_ = 0;
  const FileTensor* table_ = nullptr;            // of the embedding
  std::vector<const FileTensor*> read_tensors_;  // of matrices that were not uploaded yet
  std::set<std::string, std::less<>> used_tensors_;
  std::set<std::string_view> used_importers_;
  uint64_t read_bytes_ = 0;
  double bytes_per_token_ = 0;
  int64_t weight_bytes_ = 0;
  Weight largest_;
};

}  // namespace subbyte
