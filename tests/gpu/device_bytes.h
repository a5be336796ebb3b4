#pragma once
// Device memory between canaries, and calls that must succeed.

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace subbyte::testing {

inline void expect_ok(cudaError_t error) {
  ASSERT_EQ(error, cudaSuccess) << cudaGetErrorString(error);
}

class DeviceBytes {
 public:
  static constexpr std::size_t kCanary = 1024;

  /// Filled with `poison`.
  explicit DeviceBytes(std::size_t size, int poison = 0xFF) : size_(size) {
    expect_ok(cudaMalloc(reinterpret_cast<void**>(&memory_), size + 2 * kCanary));
    expect_ok(cudaMemset(memory_, 0xA5, size + 2 * kCanary));
    expect_ok(cudaMemset(data(), poison, size));
    finish();
  }
  explicit DeviceBytes(std::span<const std::byte> bytes) : DeviceBytes(bytes.size()) {
    expect_ok(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    finish();
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(memory_); }

  std::byte* data() const { return memory_ + kCanary; }
  std::size_t size() const { return size_; }

  std::vector<std::byte> read() const {
    std::vector<std::byte> bytes(size_);
    expect_ok(cudaMemcpy(bytes.data(), data(), size_, cudaMemcpyDeviceToHost));
    return bytes;
  }
  bool canaries_are_whole() const {
    std::vector<std::byte> all(size_ + 2 * kCanary);
    expect_ok(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < kCanary; ++i) {
      if (all[i] != std::byte{0xA5} || all[all.size() - 1 - i] != std::byte{0xA5}) return false;
    }
    return true;
  }

 private:
  /// Waits until the memory is written: both calls may return before that, and streams that do not
  /// block would not wait for it.
  static void finish() { expect_ok(cudaStreamSynchronize(nullptr)); }

  std::byte* memory_ = nullptr;
  std::size_t size_;
};

}  // namespace subbyte::testing
