// What every instruction set multiplies with, one after the other: each file uses what those before
// it define. Included inside the namespace of an instruction set, after its elements.h.

#include "kernels/cpu/generic/concepts.inl.h"
//
#include "kernels/cpu/generic/scaling.inl.h"
//
#include "kernels/cpu/generic/pack.inl.h"
//
#include "kernels/cpu/generic/results.inl.h"
//
#include "kernels/cpu/generic/products.inl.h"
//
#include "kernels/cpu/generic/gemv.inl.h"
//
#include "kernels/cpu/generic/gemm.inl.h"
//
#include "kernels/cpu/generic/dispatch_table.inl.h"
