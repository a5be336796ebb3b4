// Writes one line for each kernel that a program runs, in the order in which the driver reports
// them: begin and end in nanoseconds, GPU, grid, threads of a CTA, registers, dynamic shared
// memory, name. A library that the CUDA driver loads into the program (CUDA_INJECTION64_PATH); the
// lines go to the file that KERNEL_TRACE names. See gpu_trace.sh.

#include <cupti.h>
#include <cxxabi.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr size_t kAlignment = 8;  // of CUPTI's records
std::FILE* g_file = nullptr;

void write_kernel(const CUpti_ActivityKernel9& kernel) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(kernel.name, nullptr, nullptr, &status), std::free);
  std::fprintf(g_file, "%llu|%llu|%u|%d,%d,%d|%d|%d|%d|%s\n",
               static_cast<unsigned long long>(kernel.start),
               static_cast<unsigned long long>(kernel.end), kernel.deviceId, kernel.gridX,
               kernel.gridY, kernel.gridZ, kernel.blockX, kernel.registersPerThread,
               kernel.dynamicSharedMemory, name ? name.get() : kernel.name);
}

void CUPTIAPI on_request(uint8_t** buffer, size_t* size, size_t* most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *most_records = 0;  // as many as there is room for
}

void CUPTIAPI on_complete(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    write_kernel(*reinterpret_cast<const CUpti_ActivityKernel9*>(record));
  }
  std::free(buffer);
}

void finish() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::fclose(g_file);
}

}  // namespace

/// Called by the driver before the program's first call of it. 1: go on.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("KERNEL_TRACE");
  g_file = path != nullptr ? std::fopen(path, "w") : nullptr;
  if (g_file == nullptr) {
    std::fputs("kernel_trace: KERNEL_TRACE names no file that can be written\n", stderr);
    return 0;
  }
  cuptiActivityRegisterCallbacks(on_request, on_complete);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::atexit(finish);
  return 1;
}
