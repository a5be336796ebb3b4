#include "bench/cuda/step_clock.h"

#include "bench/cuda/graph_timer.h"
#include "kernels/cuda/step/kernel.cuh"

namespace subbyte::bench {
namespace {

using namespace cuda;

/// Writes down when each warp was where.
class WritingClock {
 public:
  __device__ WritingClock(uint64_t* times, int num_operations)
      : times_(times +
               (blockIdx.x * kStepWarps + threadIdx.x / kLanes) * num_operations * kStepPhases) {}

  __device__ void begin(int operation) {
    at_ = times_ + operation * kStepPhases;
    waited_ = 0;
    at(StepPhase::kBegins);
  }
  __device__ void at(StepPhase phase) {
    if (threadIdx.x % kLanes != 0) return;
    at_[static_cast<int>(phase)] = clock64();
    if (phase == StepPhase::kMultiplied) at_[static_cast<int>(StepPhase::kWaited)] = waited_;
  }
  __device__ void waits() { since_ = clock64(); }
  __device__ void goes_on() { waited_ += clock64() - since_; }

 private:
  uint64_t* const times_;
  uint64_t* at_ = nullptr;
  uint64_t since_ = 0;
  uint64_t waited_ = 0;
};

__global__ void __launch_bounds__(kStepCtaThreads, 1)
    step_with_clock(const __grid_constant__ StepProgram p, uint64_t* times) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) uint8_t shared[];
  run_step_cta<F16, false, StepKind<Integers<F16, 4>, 1>>(p, shared,
                                                          WritingClock(times, p.num_operations));
#endif
}

}  // namespace

void load_step_with_clock() {
  cudaFuncAttributes attributes;
  must(cudaFuncGetAttributes(&attributes, step_with_clock), "kernel");
}

void run_step_with_clock(const StepProgram& program, int multiprocessors, uint64_t* times,
                         void* stream) {
  must(cudaFuncSetAttribute(step_with_clock, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            program.shared.bytes),
       "shared memory");
  StepProgram copy = program;
  void* arguments[] = {&copy, &times};
  must(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(step_with_clock),
                                   dim3(multiprocessors), dim3(kStepCtaThreads), arguments,
                                   program.shared.bytes, static_cast<cudaStream_t>(stream)),
       "step");
}

}  // namespace subbyte::bench
