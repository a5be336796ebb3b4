#pragma once
// Where the time of a step goes: the kernel tells a clock how far a warp is. NoClock is nothing;
// bench/cuda/step_clock.cu has one that writes the time down.

namespace subbyte::cuda {

enum class StepPhase {
  kBegins,
  kThere,       // the first inputs, or the head of an attention
  kStaged,      // inputs are in shared memory, as far as this warp brings them
  kMultiplies,  // they all are; attention: all heads are
  kMultiplied,  // this warp has left its partials
  kAdds,        // all have
  kEnds,
  kWaited,  // of the time from kMultiplies to kMultiplied: for weights
};
inline constexpr int kStepPhases = 8;

struct NoClock {
  __device__ void begin(int) const {}
  __device__ void at(StepPhase) const {}
  __device__ void waits() const {}
  __device__ void goes_on() const {}
};

}  // namespace subbyte::cuda
