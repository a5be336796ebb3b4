#pragma once

// Interprets kernels as the PTX that nvcc compiles them to. The runtime beside it, which programs
// are linked with in place of CUDA's, calls it, and says which memory there is.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace subbyte::interpreter {

struct Dim {
  uint32_t x = 1, y = 1, z = 1;

  uint64_t count() const { return uint64_t{x} * y * z; }
};

/// A tensor of cuTensorMapEncodeTiled.
struct TensorMap {
  uint64_t address = 0;
  int rank = 0;
  int element_bytes = 0;
  uint64_t size[5] = {};
  uint64_t stride[5] = {};  // bytes from a number of a dimension to the next; of [0]: unused
  uint32_t box[5] = {};
  int swizzle = 0;  // CUtensorMapSwizzle
};

struct Launch {
  Dim grid, block, cluster;
  size_t dynamic_shared = 0;
};

using Arguments = std::vector<std::vector<uint8_t>>;

struct KernelFacts {
  int max_threads = 1024;
  int cluster = 1;
  int shared_bytes = 0;
  std::vector<size_t> parameter_bytes;
};

struct Module;
using ModulePointer = std::shared_ptr<Module>;

ModulePointer make_module(std::string_view ptx);
bool has_kernel(const Module& module, const std::string& name);
KernelFacts facts_of(Module& module, const std::string& name);
void run_kernel(Module& module, const std::string& name, const Launch& launch,
                const Arguments& arguments);

// --- what the runtime knows

/// Stops unless a kernel may read or write these bytes.
void check_memory(uint64_t address, size_t bytes);
/// The tensor whose map is at an address, or null.
const TensorMap* tensor_at(uint64_t address);

}  // namespace subbyte::interpreter
