#include "kernels/cuda/attention/attend_tokens.h"

#include <algorithm>

#include "kernels/cuda/common/launch.cuh"
#include "kernels/cuda/step/attention.cuh"
#include "kernels/cuda/step/next_operation.cuh"

namespace subbyte::cuda {
namespace {

template <class Number>
__global__ void __launch_bounds__(kStepThreads)
    attend_tokens(const __grid_constant__ StepProgram p, const __grid_constant__ StepAttention a) {
#if __CUDA_ARCH__ >= 900  // where there is a kernel of a step (StepLayout::supports)
  extern __shared__ __align__(128) uint8_t shared[];
  begin_operation();
  copy_words(shared + p.shared.places, p.places, p.m);
  __syncthreads();
  NoClock clock;
  StepAttend<Number, false, NoClock>(p, a, shared, clock).run([] {});
#endif
}

template <class Number>
void launch_tokens(const StepProgram& p, const StepAttention& a, int ctas, Stream stream) {
  const Grid grid = {dim3(static_cast<unsigned>(ctas)), kStepThreads, p.shared.bytes};
  launch_large<attend_tokens<Number>>(grid, stream, p, a);
}

}  // namespace

void run_attend_tokens(const StepProgram& program, const StepAttention& attention, Element element,
                       int multiprocessors, Stream stream) {
  const int ctas = std::min(multiprocessors, program.m * attention.kv_heads * program.max_splits);
  if (element == Element::kF16) {
    return launch_tokens<gpu::F16>(program, attention, ctas, stream);
  }
  launch_tokens<gpu::BF16>(program, attention, ctas, stream);
}

}  // namespace subbyte::cuda
