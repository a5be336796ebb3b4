#include "kernels/cuda/linear_call.h"

#include <string>

namespace subbyte::cuda {
namespace {

Error wrong_call(const std::string& what) {
  return {"cuda.shape", "linear: " + what};
}

}  // namespace

Status check_call(const Plan& plan, const LinearCall& call, const void* workspace) {
  const bool is_gated = call.activation != Activation::kNone;
  if (is_gated && call.weights.row_order == RowOrder::kNatural) {
    return wrong_call(
        "an activation needs weights packed with gate and up side by side "
        "(RowOrder::kGateAboveUp or kGateUpPairs), found RowOrder::kNatural");
  }
  if (plan.m != call.m) {
    return wrong_call("expected the " + std::to_string(plan.m) + " tokens of the plan, found " +
                      std::to_string(call.m));
  }
  const int64_t outputs = is_gated ? call.weights.rows / 2 : call.weights.rows;
  const bool is_short = call.x_stride < call.weights.cols || call.y_stride < outputs ||
                        (call.residual != nullptr && call.residual_stride < outputs);
  if (is_short && call.m > 1) {
    return wrong_call("expected strides of at least " + std::to_string(call.weights.cols) +
                      " (x) and " + std::to_string(outputs) + " (y, residual), found " +
                      std::to_string(call.x_stride) + ", " + std::to_string(call.y_stride) +
                      " and " + std::to_string(call.residual_stride));
  }
  if (call.x == nullptr || call.y == nullptr ||
      (plan.workspace_bytes > 0 && workspace == nullptr)) {
    return wrong_call("expected x, y and " + std::to_string(plan.workspace_bytes) +
                      " bytes of workspace, found a null pointer");
  }
  return {};
}

LinearArguments linear_arguments(const LinearCall& call) {
  LinearArguments a = {};
  a.weights = call.weights;
  a.x = call.x;
  a.y = call.y;
  a.bias = call.bias;
  a.residual = call.residual;
  a.x_stride = call.x_stride;
  a.y_stride = call.y_stride;
  a.residual_stride = call.residual_stride;
  a.m = static_cast<int32_t>(call.m);
  a.activation = call.activation;
  a.unary = call.unary;
  a.swiglu = call.swiglu;
  a.is_dependent = call.dependent_launch;
  a.is_aligned = call.weights.gather == nullptr && call.weights.cols % 8 == 0 &&
                 call.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(call.x) % 16 == 0;
  return a;
}

}  // namespace subbyte::cuda
