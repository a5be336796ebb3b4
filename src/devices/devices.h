#pragma once
// The machines that models run on, under one interface (ops/backend.h). Programs make a backend
// here and name no kernel and no thread pool.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/backend.h"

namespace subbyte {

/// The precision of activations in matrix products; lower is faster.
/// kMxfp8: as kF32 but for the inputs of experts, which become MXFP8 (W4A8 with experts of 4 bits).
/// kFp8: as kF32 but for the inputs of many tokens beside weights in E4M3 with scales for 128
/// inputs, which become E4M3 with a factor for 128 of a token (W8A8), on GPUs of compute capability
/// 9.0 alone.
enum class Activations : uint8_t { kF32, kBF16, kInt8, kMxfp8, kFp8 };

struct DeviceOptions {
  /// "cpu"; "cuda" or "cuda:N", a GPU of NVIDIA; "auto": the first GPU if there is one that can be
  /// used, else the CPU (auto_device.h, which has more: the CPU for models that a GPU refuses).
  std::string_view device = "auto";
  int num_threads = 0;       // 0: one for each processor that this process may run on
  bool pin_threads = false;  // each thread stays on a processor of its own; not with a GPU
  /// The threads of the calling program instead of own ones; must outlive the backend. Then
  /// num_threads stays 0 and pin_threads false. Results are the same.
  Executor* executor = nullptr;
  std::string_view isa = {};  // CPU kernels of this name; empty: the best that this machine has
  /// On a GPU they have 16 bits: bf16 where that is asked for, f16 instead of f32; int8 is refused.
  Activations activations = Activations::kF32;
  /// A token's results are the same bits however many tokens are computed with it; what that costs
  /// stands in docs/kernels/accuracy.md and, on a GPU, in docs/cuda_backend.md.
  bool batch_invariant = false;
  /// Steps of at most so many single tokens run as one kernel where a GPU has it; 0: none.
  int step_kernel_tokens = 8;
  /// Other steps of single tokens as CUDA graphs.
  bool step_graphs = true;
};

/// Codes: isa.unknown, isa.unsupported; execution.options when an executor is given and threads are
/// asked for as well, or other numbers of them than 0 to 4096; device.unknown for another name,
/// device.unsupported for options that a GPU does not have; cuda.device when there is no such GPU,
/// cuda.memory.
Result<std::unique_ptr<Backend>> make_backend(const DeviceOptions& options = {});

/// Tells whether this machine has a GPU of NVIDIA, with a driver, that this build could ask for.
bool has_gpu();

/// The index of the first GPU that the kernels run on. Code cuda.device, which says why there is
/// none.
Result<int> first_usable_gpu();

/// The options that a GPU does not have, as a sentence; empty: none.
std::string unsupported_by_gpu(const DeviceOptions& options);

struct DeviceInfo {
  std::string device;  // "cpu", "cuda:0"
  std::string description;
  std::string kernels;        // that serve a GPU; the description of the CPU names its own
  int64_t memory_bytes = 0;   // of a GPU
  double read_bandwidth = 0;  // bytes per second, measured; 0: it was not
};

struct DeviceList {
  std::vector<DeviceInfo> devices;  // the CPU first
  std::string no_gpu;               // why there is none; empty when there are some
};

/// Lists the devices of this machine. `measures`: with the bandwidth of each memory, read from 256
/// MiB, or as much as is beyond the caches, up to 2 GiB: about a second a device. Codes: those of
/// the CPU.
Result<DeviceList> list_devices(const DeviceOptions& options = {}, bool measures = false);

/// The name of the processor, "unknown processor" where the system does not say.
std::string processor_name();

/// Threads of the host alone, for work without a model.
std::unique_ptr<Executor> make_host(int num_threads = 0, bool pin_threads = false);

}  // namespace subbyte
