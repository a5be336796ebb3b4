#pragma once
// A module of a packed directory: its tensors, of its matrices and back, and what the header of the
// file says of it, a line of JSON under "MODULE.packed":
//
//   {"layout": "marlin", "version": 1, "tile": "16x64", "shape": [4096, 4096], "element": "u4",
//    "scale": "f16", "zero": "u8", "group_size": 128, "symmetric": true, "flavour": "gptq_v2",
//    "tensors": [".g_idx", ".qweight", ".qzeros", ".scales"]}
//
//   shape       [N, K], or [E, N, K] of experts, whose tensors begin with E
//   modules     true where the experts were modules of their own: "...experts.E.gate_proj"
//   symmetric   zero points are in the middle and not stored
//   act_order   inputs are sorted by group
//   activations, scale_factor   of NVFP4 for Marlin
//   factors     of the matrices (MatrixView::tensor_scale), where one is not 1
//   flavour     the exporter that writes the tensors again, and the suffixes of those that it does;
//               what it would write otherwise is in the packed files as it was
//   bias        the suffix of a bias that is in Marlin's order, ".bias" or "_bias", and its dtype

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "checkpoints/exporter.h"
#include "subbyte/executor.h"
#include "transform/packing/pack_layout.h"

namespace subbyte {

inline constexpr int kPackVersion = 1;
/// Follows the module's name in the names of packed tensors and of lines of metadata.
inline constexpr std::string_view kPackedSuffix = ".packed";

struct PackedBias {
  std::string suffix;  // of the source
  DType dtype = DType::kF16;
};

struct PackedModule {
  std::string name;
  const PackLayout* layout = nullptr;
  PackedShape shape;
  int64_t experts = 0;          // of a stack; 0: one matrix
  bool from_modules = false;    // each expert was a module
  std::vector<double> factors;  // of each matrix; empty: all are 1
  const Exporter* flavour = nullptr;
  std::vector<std::string> suffixes;
  std::optional<PackedBias> bias;

  int64_t num_matrices() const { return experts == 0 ? 1 : experts; }
  double factor(std::size_t index) const { return factors.empty() ? 1 : factors[index]; }
  /// The modules that it was made of, and will be again.
  std::vector<std::string> sources() const;
  /// Shape of the matrices of one source, as the exporter wants it.
  ExportShape export_shape() const;
};

/// The tensors of a packed directory that this module has; the bias is the last.
std::vector<TensorDeclaration> packed_tensors(const PackedModule& module);

/// The tensors of one source that the exporter writes again, with their places in what it writes.
struct SourceTensors {
  std::vector<TensorDeclaration> tensors;
  std::vector<std::size_t> indices;
};
/// Code pack.metadata when the exporter does not write one of the suffixes.
Result<SourceTensors> source_tensors(const PackedModule& module, std::string_view source);

/// The biases of the sources, in their order.
std::vector<TensorDeclaration> source_biases(const PackedModule& module);

std::string to_line(const PackedModule& module);
/// `where` is the file. Codes: pack.metadata, pack.version, those of PackLayout::check.
Result<PackedModule> parse_line(std::string_view name, std::string_view line,
                                std::string_view where);

/// The bytes of packed_tensors(), but for those of a bias; each expert by one thread. Codes: those
/// of PackLayout::pack, with the name of the module.
Result<std::vector<std::vector<std::byte>>> pack_matrices(const PackedModule& module,
                                                          std::span<const Matrix> matrices,
                                                          Executor& pool);

/// The matrices of such bytes, whose sizes are right. Codes: those of PackLayout::unpack,
/// pack.not_exact when packing them again gives other bytes, as padding that is not 0 does.
Result<std::vector<Matrix>> unpack_matrices(const PackedModule& module,
                                            std::span<const std::span<const std::byte>> tensors,
                                            Executor& pool);

/// Biases [num_matrices][rows] in Marlin's order and back.
std::vector<std::byte> pack_biases(const PackedModule& module, std::span<const std::byte> biases);
std::vector<std::byte> unpack_biases(const PackedModule& module, std::span<const std::byte> packed);

}  // namespace subbyte
