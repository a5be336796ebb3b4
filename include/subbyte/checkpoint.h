#pragma once
// The files of a model: its tensors, and its linear layers as matrices, in whatever flavour (AWQ,
// GPTQ, compressed-tensors, MXFP4, NVFP4, NF4, FP8, kbit, floats).

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "subbyte/device.h"
#include "subbyte/matrix.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

/// A tensor as it lies in a mapped file.
struct Tensor {
  std::string name;
  std::string type;             // of safetensors: "BF16", "I32", "F8_E4M3"
  std::vector<uint64_t> shape;  // the last dimension is contiguous
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes
};

/// A linear layer, known without reading its weights.
struct Module {
  std::string name;     // "model.layers.0.self_attn.q_proj"
  std::string flavour;  // "awq", "gptq", "mxfp4", "dense", ...
  WeightFormat format;
  int64_t experts = 1;  // matrices under this name
  int64_t rows = 0;     // N, outputs (of each expert)
  int64_t cols = 0;     // K, inputs
  bool act_order = false;
  uint64_t bytes = 0;          // in the files
  std::optional<Error> error;  // why it cannot be read; then only the name counts
};

/// An open checkpoint. Several threads may use it at a time, unless it has an executor of the
/// caller's that does not allow that.
class Checkpoint {
 public:
  /// Opens a model: a directory, a safetensors file, a model file of OrinMLLM, or
  /// "org/name[@revision]" in the cache of Hugging Face. Headers and configuration are read and
  /// checked, weights are not. `threads` (nullptr: the library's own) read matrices.
  /// Codes: model.not_found, file.*, safetensors.*, index.*, json.*, quantization.*, orin.*.
  static Result<Checkpoint> open(const std::filesystem::path& model,
                                 std::shared_ptr<Executor> threads = nullptr);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  /// The files with tensors.
  const std::vector<std::filesystem::path>& files() const;
  /// All tensors by name.
  std::vector<Tensor> tensors() const;
  /// Code: import.missing.
  Result<Tensor> tensor(std::string_view name) const;
  /// A small tensor of floating-point numbers, such as a norm or a bias, as f32. Codes:
  /// import.missing, dense.dtype.
  Result<std::vector<float>> numbers(std::string_view name) const;

  /// All linear layers, in the order of their first tensors.
  std::vector<Module> modules() const;
  /// The matrix of a linear layer. Its bytes are those of the file where that has the same layout,
  /// and copies otherwise; it may outlive the checkpoint. Codes: import.*, those of the flavour;
  /// import.shape where there are several experts under that name.
  Result<Matrix> matrix(std::string_view module) const;
  /// The matrices of all experts under one name.
  Result<std::vector<Matrix>> experts(std::string_view module) const;

  /// Checks that no file was written to since it was opened. Code: file.changed.
  Status verify_unchanged() const;

 private:
  struct State;
  explicit Checkpoint(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

SUBBYTE_END_NAMESPACE
