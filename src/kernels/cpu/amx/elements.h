#pragma once
// How codes become floats and bf16: as with AVX-512 and BF16.

#include "kernels/cpu/amx/scales.h"
#include "kernels/cpu/amx/vec.h"
#include "kernels/cpu/avx512bf16/elements.h"
