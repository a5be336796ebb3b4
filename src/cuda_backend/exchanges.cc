// What a rank tells the others in a step (ops/exchange.h).

#include "cuda_backend/step_runner.h"

namespace subbyte {

Status CudaStepRunner::launch(const AllReduceOp&) {
  return Error{"linear.unsupported", "there are no other ranks"};
}

Status CudaStepRunner::launch(const AllGatherOp&) {
  return Error{"linear.unsupported", "there are no other ranks"};
}

}  // namespace subbyte
