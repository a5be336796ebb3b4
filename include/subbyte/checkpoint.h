#pragma once
// The files of a model: its tensors, and its linear layers as matrices, in whatever flavour (AWQ,
// GPTQ, compressed-tensors, MXFP4, NVFP4, NF4, FP8, kbit, floats).

#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "subbyte/executor.h"
#include "subbyte/matrix.h"
#include "subbyte/modules.h"

namespace subbyte {
struct CheckpointParts;  // of the library's own layers
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// An open checkpoint, which copies share. Several threads may use it at a time, unless it has an
/// executor of the caller's that does not allow that.
class Checkpoint {
 public:
  /// Opens a model: a directory, a safetensors file, a model file of OrinMLLM, or
  /// "org/name[@revision]" in the cache of Hugging Face. Headers and configuration are read and
  /// checked, weights are not. `threads` (nullptr: the library's own) read matrices.
  /// Codes: model.not_found, file.*, safetensors.*, index.*, json.*, quantization.*, orin.*.
  static Result<Checkpoint> open(const std::filesystem::path& model,
                                 std::shared_ptr<Executor> threads = nullptr);

  /// The files with tensors.
  const std::vector<std::filesystem::path>& files() const;
  /// All tensors by name, as long as this or a copy.
  const TensorMap& tensors() const;
  /// Code: import.missing.
  Result<FileTensor> tensor(std::string_view name) const;
  /// A small tensor of floating-point numbers, such as a norm or a bias, as f32. Codes:
  /// import.missing, dense.dtype.
  Result<std::vector<float>> numbers(std::string_view name) const;

  /// All linear layers, in the order of their first tensors.
  std::vector<FoundModule> modules() const;
  /// The matrix of a linear layer. Its bytes are those of the file where that has the same layout,
  /// and copies otherwise; it may outlive the checkpoint. Codes: import.*, those of the flavour;
  /// import.shape where there are several experts under that name.
  Result<Matrix> matrix(std::string_view module) const;
  /// The matrices of all experts under one name.
  Result<std::vector<Matrix>> experts(std::string_view module) const;

  /// Checks that no file was written to since it was opened. Code: file.changed.
  Status verify_unchanged() const;

 private:
  Checkpoint(std::shared_ptr<const CheckpointParts> files, std::shared_ptr<Executor> threads)
      : files_(std::move(files)), threads_(std::move(threads)) {}
  std::shared_ptr<const CheckpointParts> files_;
  std::shared_ptr<Executor> threads_;
};

SUBBYTE_END_NAMESPACE
