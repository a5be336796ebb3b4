#pragma once
// Canonical matrices in the memory of a GPU as numbers, to the bits of cpu::dequantize().

#include "device/staged_matrix.h"

namespace subbyte::device {

/// The weights as numbers [rows][cols] of f32, f16 or bf16. Waits for the stream, and may not be
/// captured, where inputs have an order or groups, whose values have to be looked at; rows that are
/// apart are copied to the memory of `gpu` first. Codes: argument,
/// cuda.format (vectors with a codebook on the host alone: PackedMatrix has them), cuda.*.
Status dequantize(const StridedMatrix& from, Format number, void* out, const Gpu& gpu);

}  // namespace subbyte::device
