// The kernels of one instruction set: the mainloops of generic/ over the vectors of this folder.
#include "kernels/cpu/scalar/elements.h"

namespace subbyte::cpu::scalar {

extern const VectorKernels kVectorKernels;  // scalar_vectors.cc

namespace {

// One after the other: each uses what those before it define.
#include "kernels/cpu/generic/mainloops.inl.h"
//
#include "kernels/cpu/generic/vector_dispatch.inl.h"
//
#include "kernels/cpu/generic/kernel_list.inl.h"

}  // namespace

extern const Kernels kKernels;
constinit const Kernels kKernels = make_kernels("scalar", 0);

}  // namespace subbyte::cpu::scalar
