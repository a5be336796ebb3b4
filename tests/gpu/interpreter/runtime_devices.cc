// Devices, their attributes, and errors.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "report.h"
#include "runtime.h"

namespace subbyte::interpreter {
namespace {

// Those of an H200, but for the memory, which is the host's.
constexpr int kNumSms = 132;
constexpr int kSharedOfBlock = 227 * 1024;
constexpr int kSharedOfSm = 228 * 1024;
constexpr int kClockKilohertz = 1980000;
constexpr int kMemoryKilohertz = 3201000;
constexpr int kMemoryBits = 6144;
constexpr int kL2Bytes = 60 << 20;

thread_local cudaError_t last_error = cudaSuccess;

std::vector<int>& devices() {
  thread_local std::vector<int> stack = {0};
  return stack;
}

bool exists(int device) {
  return device >= 0 && device < num_devices();
}

int attribute(cudaDeviceAttr which) {
  switch (which) {
    case cudaDevAttrMultiProcessorCount:
      return kNumSms;
    case cudaDevAttrComputeCapabilityMajor:
      return 9;
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return kSharedOfBlock;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return kSharedOfSm;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 * 1024;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return 2048;
    case cudaDevAttrL2CacheSize:
      return kL2Bytes;
    case cudaDevAttrClockRate:
      return kClockKilohertz;
    case cudaDevAttrMemoryClockRate:
      return kMemoryKilohertz;
    case cudaDevAttrGlobalMemoryBusWidth:
      return kMemoryBits;
    case cudaDevAttrCooperativeLaunch:
      return 1;
    case cudaDevAttrUnifiedAddressing:
      return 1;
    default:
      stop("attribute %d of a device is not known", static_cast<int>(which));
  }
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

int num_devices() {
  const char* number = std::getenv("SUBBYTE_INTERPRETED_GPUS");
  return number == nullptr ? 1 : std::clamp(std::atoi(number), 0, kMostDevices);
}

int& current_device() {
  return devices().back();
}

void push_device(int device) {
  devices().push_back(device);
}

bool pop_device() {
  if (devices().size() < 2) return false;
  devices().pop_back();
  return true;
}

cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t misused(cudaError_t error, const char* format, ...) {
  char text[1000];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  remark("%s", text);
  return failed(error);
}

}  // namespace subbyte::interpreter

using namespace subbyte::interpreter;

extern "C" {

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

const char* cudaGetErrorString(cudaError_t error) {
  thread_local char text[40];
  std::snprintf(text, sizeof text, "CUDA error %d", static_cast<int>(error));
  return text;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = num_devices();
  return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  current_device() = device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  *properties = {};
  size_t free = 0;
  static_cast<void>(cudaMemGetInfo(&free, &properties->totalGlobalMem));
  std::strcpy(properties->name, "interpreted H200");
  properties->major = attribute(cudaDevAttrComputeCapabilityMajor);
  properties->minor = attribute(cudaDevAttrComputeCapabilityMinor);
  properties->multiProcessorCount = kNumSms;
  properties->sharedMemPerBlock = 48 * 1024;
  properties->sharedMemPerBlockOptin = kSharedOfBlock;
  properties->sharedMemPerMultiprocessor = kSharedOfSm;
  properties->reservedSharedMemPerBlock = 1024;
  properties->regsPerBlock = 65536;
  properties->regsPerMultiprocessor = 65536;
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsPerMultiProcessor = 2048;
  properties->l2CacheSize = kL2Bytes;
  properties->memoryBusWidth = kMemoryBits;
  properties->cooperativeLaunch = 1;
  properties->clusterLaunch = 1;
  properties->unifiedAddressing = 1;
  properties->asyncEngineCount = 3;
  properties->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  *value = attribute(which);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  if (!exists(device)) return failed(cudaErrorInvalidDevice);
  std::snprintf(id, static_cast<size_t>(bytes), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  static std::set<std::pair<int, int>> enabled;
  const Lock lock(runtime_mutex());
  const bool is_new = enabled.insert({current_device(), peer}).second;
  return is_new ? cudaSuccess : failed(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceSynchronize() {
  return check_capture("cudaDeviceSynchronize");
}

}  // extern "C"
