#pragma once
// The machine that something runs on.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "subbyte/executor.h"
#include "subbyte/status.h"

SUBBYTE_BEGIN_NAMESPACE

/// The precision of activations in products; lower is faster.
enum class Activations : uint8_t {
  kF32,    // on a GPU f16
  kBF16,   // rounded to bf16 where the machine multiplies that fast
  kInt8,   // 8 bits with a scale for each 32 inputs, where that is fast; not on a GPU
  kMxfp8,  // the inputs of experts become MXFP8 (W4A8 with experts of 4 bits), all else as kF32
  kFp8,    // inputs of many tokens beside weights in E4M3 with scales for 128 inputs become E4M3
           // with a factor for 128 of a token (W8A8), on GPUs of compute capability 9.0 and of
           // models that were made for it; all else as kF32
  kWide    // on a GPU bf16, which f16 may be too narrow for; on the CPU as kF32
};

/// Where and how to compute.
struct DeviceOptions {
  /// "cpu"; "cuda" or "cuda:N", a GPU of NVIDIA; "auto": the first GPU that can be used and takes
  /// the model, else the CPU.
  std::string device = "auto";
  int num_threads = 0;       // 0: one for each processor that this process may run on
  bool pin_threads = false;  // each thread stays on a processor of its own; not with a GPU
  /// Threads instead of own ones; num_threads stays 0 and pin_threads false then. Results are the
  /// same.
  std::shared_ptr<Executor> threads = {};
  /// CPU kernels of this name ("avx2", "avx512", ...); empty: the best that this machine has.
  std::string isa = {};
  Activations activations = Activations::kF32;
  /// A token's results are the same bits however many tokens are computed with it, which costs
  /// speed (docs/kernels/accuracy.md, docs/cuda_backend.md).
  bool batch_invariant = false;
  /// Steps of at most so many single tokens run as one kernel where a GPU has it; 0: none.
  int step_kernel_tokens = 8;
  /// Other steps of single tokens as CUDA graphs.
  bool step_graphs = true;
  /// Ranks that divide every weight and the cache among them, and compute each token together: as
  /// many GPUs from that of `device` on, at most 8, or groups of the CPU's threads.
  int tensor_parallel_size = 1;
  /// Stages with layers and a cache of their own, through which each token goes one after the
  /// other: as many GPUs from that of `device` on, or groups of the CPU's threads.
  int pipeline_parallel_size = 1;
  /// Layers on the GPU, the last ones, of which lm_head is one; those before are the CPU's. -1:
  /// all, wherever `device` says; kGpuLayersThatFit: all, or as many as its memory has room for.
  int gpu_layers = -1;
};

inline constexpr int kGpuLayersThatFit = -2;

/// A machine that DeviceOptions::device may name.
struct DeviceInfo {
  std::string device;         // "cpu", "cuda:0"
  std::string description;    // for people, with the kernels that the CPU takes
  std::string kernels;        // that serve a GPU
  int64_t memory_bytes = 0;   // of a GPU
  double read_bandwidth = 0;  // bytes per second, measured; 0: it was not
};

/// The devices of this machine, the CPU first.
struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string no_gpu;  // why there is no GPU; empty where there is one
};

/// Lists the devices of this machine. `measures`: with the bandwidth of each memory, read from 256
/// MiB, or as much as is beyond the caches, up to 2 GiB: up to a second a device. Codes: those of
/// the CPU (isa.unsupported).
Result<DeviceList> list_devices(const DeviceOptions& options = {}, bool measures = false);

SUBBYTE_END_NAMESPACE
