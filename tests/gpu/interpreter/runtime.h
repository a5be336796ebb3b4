#pragma once

// CUDA's runtime, as far as this project calls it, on the memory of the host. Calls are answered as
// the documentation of CUDA says, with its errors for misuse; all work is done at once and in
// order, by the thread that asks for it.
#include <cuda_runtime_api.h>

#include <functional>
#include <mutex>

namespace subbyte::interpreter {

// One call at a time. CUDA objects register their kernels before main(), so that states are made
// when they are first asked for.
std::recursive_mutex& runtime_mutex();
using Lock = std::lock_guard<std::recursive_mutex>;

constexpr int kMostDevices = 8;
int num_devices();
int& current_device();
void push_device(int device);
bool pop_device();

/// Keeps an error for cudaGetLastError() and returns it.
cudaError_t failed(cudaError_t error);
/// Says what was wrong, and returns the error as failed() does.
[[gnu::format(printf, 2, 3)]] cudaError_t misused(cudaError_t error, const char* format, ...);

// --- memory

/// Stops unless it is memory that a copy may read or write: of an allocation, or of the host.
void check_range(const void* address, size_t bytes);
/// Whether memory is known to CUDA, and is that of a device.
bool is_known_memory(const void* address);
bool is_device_memory(const void* address);

// --- streams

/// Does something in a stream: at once, or, while it is captured, when its graph is launched.
cudaError_t enqueue(const char* what, cudaStream_t stream, std::function<void()> work);
bool is_captured(cudaStream_t stream);
/// The error of a call that no thread may make while a stream is captured.
cudaError_t check_capture(const char* what);
/// The error of a call that waits for the default stream.
cudaError_t check_default_stream(const char* what, cudaStream_t stream);
/// The error of a stream that is destroyed, or of another device.
cudaError_t check_stream(cudaStream_t stream);

}  // namespace subbyte::interpreter
