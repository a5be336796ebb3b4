#pragma once
// The bytes of a packed module, from its matrices and back.

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "subbyte/executor.h"
#include "transform/packing/packed_module.h"

namespace subbyte {

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
