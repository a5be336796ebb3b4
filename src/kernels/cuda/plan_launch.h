#pragma once
// A launch as a plan says: what all products have in common.

#include "kernels/cuda/linear.h"

namespace subbyte::cuda {

/// Launches a kernel with the CTAs, threads, clusters and shared memory of `plan`; it is allowed
/// that much. `dependent`: it may begin before the kernel before it on the stream has ended. `what`
/// begins the message. Code cuda.launch.
Status launch_plan(const char* what, const void* kernel, const Plan& plan, void** arguments,
                   bool dependent, Stream stream);

}  // namespace subbyte::cuda
