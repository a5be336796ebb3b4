#pragma once

#include "machine.h"

namespace subbyte::interpreter {

// Instructions of all 32 lanes of a warp.

void multiply(Warp& warp, const Instruction& instruction);            // mma
void multiply_warpgroup(Warp& warp, const Instruction& instruction);  // wgmma.mma_async
void load_fragments(Warp& warp, const Instruction& instruction);      // ldmatrix
void store_fragments(Warp& warp, const Instruction& instruction);     // stmatrix
void transpose_matrix(Warp& warp, const Instruction& instruction);    // movmatrix

}  // namespace subbyte::interpreter
