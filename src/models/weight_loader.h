#pragma once
// Loads the weights of a model by the list of its family, and keeps the accounts: what was read,
// what a token will read.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/checkpoint_names.h"
#include "models/model.h"
#include "models/model_weights.h"

namespace subbyte {

class WeightLoader {
 public:
  WeightLoader(const ImportContext& context, const ModelConfig& config, Backend& backend,
               const LoadOptions& options, Reads reads = Reads::kAll);

  /// Puts what find_tensors() found into the memory of the backend. Codes: those of the importers,
  /// quantize_table and Backend::upload; linear.unsupported for a table that GPUs do not look up;
  /// model.surplus for a head that is not the embedding it is tied to.
  Status load(std::span<const FoundTensor> tensors);

  const ModelWeights& weights() const { return weights_; }
  /// The model of what was loaded, with the accounts.
  std::unique_ptr<Model> finish(std::unique_ptr<CompiledStep> step, const LoadFacts& facts) const;

 private:
  /// The matrices of the experts of a layer, or their biases one after the other.
  struct ExpertLinears {
    std::vector<Matrix> matrices;
    std::vector<float> bias;
  };

  Status load_tensor(const FoundTensor& tensor);
  Status load_linear(const FoundTensor& tensor);
  Status load_latent(const FoundTensor& tensor);
  Status check_table(const FoundTensor& tensor) const;
  Status load_table(const FoundTensor& tensor);
  Status load_far_table(const FoundTensor& tensor, Matrix found);
  Status load_head(const FoundTensor& tensor);
  Status load_vector(const FoundTensor& tensor);
  Status load_experts(const FoundTensor& down);

  /// One matrix, or several whose outputs follow each other.
  Result<Weight> upload(const FoundTensor& tensor, std::vector<Matrix> matrices,
                        std::vector<float> bias);
  Result<Matrix> import_one(const FoundTensor& tensor, std::size_t idx);
  /// Those of all modules of the experts of a layer, which are small and many.
  Result<std::vector<Matrix>> import_modules(const FoundTensor& tensor);
  Result<std::vector<Matrix>> import_all(const FoundTensor& tensor, std::size_t idx);
  Result<Matrix> with_head_bits(Matrix matrix, const FileTensor& tensor);
  Result<std::vector<float>> numbers(const FileVector& vector);
  Result<std::vector<float>> bias_of(const FoundTensor& tensor);
  Result<ExpertLinears> experts_of(const FoundTensor& tensor);
  static std::vector<Matrix> gate_and_up(const FoundTensor& tensor, std::vector<Matrix> matrices);
  /// Zeros in the form that kernels of the host read such a matrix in; nothing may write to them.
  Matrix outline(WeightFormat format, int64_t rows, int64_t cols);
  Status check_tied(const FoundTensor& tensor, const FileTensor& other);

  /// Counts bytes of which a token reads a share.
  void count(int64_t bytes, double share);
  void count(const Weight& weight, double share);
  void report(uint64_t bytes);
  /// Gives the pages of what was read since the last call back to the system, where the backend has
  /// copied it.
  void release_read();

  ImportContext context_;
  const ModelConfig& config_;
  Backend* backend_;
  LoadOptions options_;
  Reads reads_;
  ModelWeights weights_;
  std::shared_ptr<std::byte[]> zeros_;  // of all outlines
  std::size_t zeros_bytes_ = 0;
  const FileTensor* table_ = nullptr;            // of the embedding
  std::vector<const FileTensor*> read_tensors_;  // of matrices that were not uploaded yet
  ExpertLinears gate_up_;                        // of the layer whose experts are being read
  uint64_t read_bytes_ = 0;
  double bytes_per_token_ = 0;
  int64_t weight_bytes_ = 0;
  Weight largest_;
};

}  // namespace subbyte
