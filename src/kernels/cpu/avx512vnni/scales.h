#pragma once
// Scales and zero points: those of AVX-512.

#include "kernels/cpu/avx512/scales.h"
