#pragma once
// The kernel of a step for integers with scales of two levels, of 2 to 6 bits: files of GGUF have
// several types of them, and their products are one program.

namespace subbyte::cuda {

/// The kernel for activations of f16 or bf16.
const void* superblocks_step(bool is_f16, bool is_full);

}  // namespace subbyte::cuda
