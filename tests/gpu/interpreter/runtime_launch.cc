// Kernels: how objects that nvcc compiled register them, and their launches.
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "interpreter.h"
#include "report.h"
#include "runtime.h"

namespace subbyte::interpreter {
namespace {

constexpr int kMostShared = 227 * 1024;  // of a CTA
constexpr int kSharedOfSm = 228 * 1024;  // of which each CTA takes kSharedReserved more
constexpr int kSharedReserved = 1024;
constexpr int kSharedByDefault = 48 * 1024;  // without cudaFuncSetAttribute()
constexpr int kThreadsOfSm = 2048;
constexpr uint64_t kNumSms = 132;
constexpr uint64_t kMostCtasOfSm = 32;

/// What an object has of code: a fat binary, whose text of PTX is read when a kernel is launched.
struct FatBinary {
  const char* wrapper = nullptr;
  std::vector<ModulePointer> modules;
};

struct Kernel {
  std::string name;
  FatBinary* binary = nullptr;
  ModulePointer module;  // once it was looked for
  KernelFacts facts;
  int allowed_shared[kMostDevices] = {};
};

struct Configuration {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
};

std::map<const void*, Kernel>& kernels() {
  static auto& all = *new std::map<const void*, Kernel>;
  return all;
}

/// The wrapper has a pointer to the binary in its second 8 bytes (fatbinary_section.h of CUDA). A
/// binary begins with a magic number and a version, then 2 bytes with the size of this header and 8
/// with that of what follows. PTX that is not compressed is in there as text that ends with a 0.
std::string_view contents_of(const char* wrapper) {
  const char* binary;
  std::memcpy(&binary, wrapper + 8, sizeof binary);
  uint16_t header;
  uint64_t bytes;
  std::memcpy(&header, binary + 6, sizeof header);
  std::memcpy(&bytes, binary + 8, sizeof bytes);
  return {binary + header, bytes};
}

void read_modules(FatBinary& binary) {
  if (!binary.modules.empty()) return;
  const std::string_view contents = contents_of(binary.wrapper);
  size_t at = 0;
  while ((at = contents.find("\n.version ", at)) != std::string_view::npos) {
    const size_t end = std::min(contents.find('\0', at), contents.size());
    binary.modules.push_back(make_module(contents.substr(at, end - at)));
    at = end;
  }
}

/// The registered kernel of a function of the host, with its PTX, or null.
Kernel* find_kernel(const void* host) {
  const auto found = kernels().find(host);
  if (host == nullptr || found == kernels().end()) return nullptr;
  Kernel& kernel = found->second;
  if (kernel.module != nullptr) return &kernel;
  read_modules(*kernel.binary);
  for (const ModulePointer& module : kernel.binary->modules) {
    if (has_kernel(*module, kernel.name)) kernel.module = module;
  }
  if (kernel.module == nullptr) stop("no PTX of %s, compress-mode=none?", kernel.name.c_str());
  kernel.facts = facts_of(*kernel.module, kernel.name);
  return &kernel;
}

cudaError_t no_kernel() {
  return misused(cudaErrorInvalidDeviceFunction, "a function that is no kernel");
}

int ctas_of_sm(uint64_t threads, uint64_t shared) {
  const uint64_t by_threads = kThreadsOfSm / threads;
  const uint64_t by_shared = kSharedOfSm / (shared + kSharedReserved);
  return static_cast<int>(std::min({by_threads, by_shared, kMostCtasOfSm}));
}

/// What CUDA refuses of a launch, or null.
const char* problem_with(const Kernel& kernel, const Launch& launch, bool cooperative) {
  const Dim& grid = launch.grid;
  const Dim& cluster = launch.cluster;
  const uint64_t threads = launch.block.count();
  const uint64_t shared = launch.dynamic_shared + uint64_t(kernel.facts.shared_bytes);
  const auto allowed = static_cast<size_t>(kernel.allowed_shared[current_device()]);
  if (grid.count() == 0 || threads == 0) return "nothing to do";
  if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) return "its grid";
  if (threads > uint64_t(kernel.facts.max_threads) || launch.block.z > 64) return "its threads";
  if (shared > kMostShared) return "its shared memory";
  if (shared > kSharedByDefault && launch.dynamic_shared > allowed) return "its shared memory";
  if (cluster.count() > 8) return "its cluster";
  if (kernel.facts.cluster > 1 && cluster.count() != uint64_t(kernel.facts.cluster)) {
    return "a cluster that it was not compiled for";
  }
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0) {
    return "clusters that do not divide its grid";
  }
  if (cooperative && grid.count() > kNumSms * uint64_t(ctas_of_sm(threads, shared))) {
    return "more CTAs than are there at once";
  }
  return nullptr;
}

Arguments copied_arguments(const Kernel& kernel, void** arguments) {
  Arguments copies;
  for (size_t i = 0; i < kernel.facts.parameter_bytes.size(); ++i) {
    const auto* bytes = static_cast<const uint8_t*>(arguments[i]);
    copies.emplace_back(bytes, bytes + kernel.facts.parameter_bytes[i]);
  }
  return copies;
}

Dim dim_of(const dim3& size) {
  return {size.x, size.y, size.z};
}

cudaError_t launch_kernel(const void* host, Launch launch, bool cooperative, void** arguments,
                          cudaStream_t stream) {
  const Lock lock(runtime_mutex());
  Kernel* kernel = find_kernel(host);
  if (kernel == nullptr) return no_kernel();
  if (const cudaError_t error = check_stream(stream)) return error;
  if (launch.cluster.count() == 1) launch.cluster.x = uint32_t(kernel->facts.cluster);
  if (const char* problem = problem_with(*kernel, launch, cooperative)) {
    return misused(cudaErrorInvalidConfiguration, "%s is launched with %s", kernel->name.c_str(),
                   problem);
  }
  return enqueue("a kernel", stream,
                 [kernel, launch, copies = copied_arguments(*kernel, arguments)] {
                   run_kernel(*kernel->module, kernel->name, launch, copies);
                 });
}

std::vector<Configuration>& configurations() {
  static thread_local std::vector<Configuration> stack;
  return stack;
}

}  // namespace
}  // namespace subbyte::interpreter

using namespace subbyte::interpreter;

extern "C" {

// --- what nvcc calls: crt/host_runtime.h of CUDA

void** __cudaRegisterFatBinary(void* wrapper) {
  auto* binary = new FatBinary{static_cast<const char*>(wrapper), {}};
  return reinterpret_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}

void __cudaRegisterFunction(void** binary, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  const Lock lock(runtime_mutex());
  Kernel& kernel = kernels()[host];
  kernel.name = name;
  kernel.binary = reinterpret_cast<FatBinary*>(binary);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  configurations().push_back({grid, block, shared, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  const Configuration configuration = configurations().back();
  configurations().pop_back();
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  std::memcpy(stream, &configuration.stream, sizeof configuration.stream);
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t stream) {
  return launch_kernel(kernel, {dim_of(grid), dim_of(block), {}, shared}, false, arguments, stream);
}

// --- what programs call

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host,
                                void** arguments) {
  Launch launch{dim_of(config->gridDim), dim_of(config->blockDim), {}, config->dynamicSmemBytes};
  bool cooperative = false;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension) {
      const auto& size = attribute.val.clusterDim;
      launch.cluster = {size.x, size.y, size.z};
    }
    if (attribute.id == cudaLaunchAttributeCooperative) {
      cooperative = attribute.val.cooperative != 0;
    }
  }
  return launch_kernel(host, launch, cooperative, arguments, config->stream);
}

cudaError_t cudaFuncSetAttribute(const void* host, cudaFuncAttribute which, int value) {
  const Lock lock(runtime_mutex());
  Kernel* kernel = find_kernel(host);
  if (kernel == nullptr) return no_kernel();
  if (which != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value + kernel->facts.shared_bytes > kMostShared) {
    return misused(cudaErrorInvalidValue, "%s wants %d bytes of shared memory",
                   kernel->name.c_str(), value);
  }
  kernel->allowed_shared[current_device()] = value;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* host) {
  const Lock lock(runtime_mutex());
  const Kernel* kernel = find_kernel(host);
  if (kernel == nullptr) return no_kernel();
  *attributes = {};
  attributes->maxThreadsPerBlock = kernel->facts.max_threads;
  attributes->sharedSizeBytes = static_cast<size_t>(kernel->facts.shared_bytes);
  attributes->numRegs = 64;
  attributes->binaryVersion = 90;
  attributes->ptxVersion = 90;
  return cudaSuccess;
}

}  // extern "C"
