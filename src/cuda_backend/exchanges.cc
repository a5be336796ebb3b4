// What a rank exchanges with the others in a step (ops/exchange.h), through the memory of all; what
// a stage has of the one before, through that of the host.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "cuda_backend/step_runner.h"
#include "kernels/cuda/elementwise/gates.h"
#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/exchange/peer_sum.h"

namespace subbyte {
namespace {

constexpr int64_t kSumBytes = 16;  // that rows of a sum are multiples of
// To all others, of a sum that goes in one kernel with its norm; more goes in parts.
constexpr int64_t kMaxJoinedBytes = int64_t{1} << 20;

}  // namespace

Status CudaStepRunner::check_exchange(const StepPlan& plan, const Op& op) const {
  const bool exchanges =
      std::holds_alternative<AllReduceOp>(op.what) || std::holds_alternative<AllGatherOp>(op.what);
  if (!exchanges) return {};
  if (options_.peers.ranks < 2) {
    return Error{"linear.unsupported", op.name + ": there are no other ranks"};
  }
  const StepValue& y = plan.value(op.outputs.front());
  if (y.cols * value_bytes(y.type) % kSumBytes == 0) return {};
  return Error{"linear.unsupported", op.name +
                                         ": ranks exchange rows of multiples of 16 bytes, "
                                         "found " +
                                         std::to_string(y.cols * value_bytes(y.type))};
}

Status CudaStepRunner::launch(const AllReduceOp& op) {
  cuda::run_peer_sum({at(op.y), at(op.x), rows_of(op.y) * plan_->value(op.y).cols, element()},
                     options_.peers, stream_);
  return {};
}

/// In one kernel where all fits into one trip over the link.
Status CudaStepRunner::launch(const ReducedNorm& item) {
  const auto& norm = plan_op<AddNormOp>(item.op);
  const cuda::AddNormCall call = add_norm_call(norm);
  const int64_t bytes =
      call.num_rows * call.cols * value_bytes(ValueType::kActivation) * (options_.peers.ranks - 1);
  if (bytes <= kMaxJoinedBytes && cuda::serves_peer_sum_norm(call)) {
    cuda::run_peer_sum_norm(call, options_.peers, stream_);
    return {};
  }
  SUBBYTE_CHECK(launch(plan_op<AllReduceOp>(item.reduce)));
  return launch(norm);
}

/// The columns of a rank in their places and zeros in those of the others: the sum over the ranks
/// has the columns of all.
Status CudaStepRunner::launch(const AllGatherOp& op) {
  const bool is_head = std::get<LogitsOp>(plan_->ops.back().what).logits == op.y;
  if (is_head && choices_.has_candidates()) return {};
  const bool are_floats = op.type == ValueType::kFloat;
  const auto width = static_cast<std::size_t>(value_bytes(op.type));
  const auto rows = static_cast<std::size_t>(rows_of(op.y));
  const std::size_t row = static_cast<std::size_t>(op.cols) * width;
  const std::size_t own_row = static_cast<std::size_t>(plan_->value(op.x).cols) * width;
  cudaError_t error = cudaMemsetAsync(at(op.y), 0, rows * row, stream_);
  const std::byte* from = at(op.x);
  for (const ColumnRange& range : op.parts[static_cast<std::size_t>(options_.peers.rank)]) {
    const std::size_t bytes = static_cast<std::size_t>(range.count) * width;
    std::byte* const to = at(op.y) + static_cast<std::size_t>(range.first) * width;
    if (error != cudaSuccess) break;
    error =
        cudaMemcpy2DAsync(to, row, from, own_row, bytes, rows, cudaMemcpyDeviceToDevice, stream_);
    from += bytes;
  }
  if (error != cudaSuccess) return cuda_error("cuda.copy", "columns of a rank", error);
  cuda::run_peer_sum(
      {at(op.y), at(op.y), rows_of(op.y) * op.cols, are_floats ? Element::kF32 : element()},
      options_.peers, stream_);
  return {};
}

/// Rows of float32 go over, which kernels make of activations here and round to those there.
Status CudaStepRunner::take_sent() {
  sent_.clear();
  for (const SendOp* op : ops_of<SendOp>(*plan_)) {
    const StepValue& value = plan_->value(op->x);
    const int64_t count = rows_of(op->x) * value.cols;
    if (value.type == ValueType::kFloat) {
      sent_.push_back({floats(op->x), count});
    } else {
      SUBBYTE_TRY(std::byte* const memory, step_.take(count * int64_t{sizeof(float)}));
      sent_.push_back({reinterpret_cast<float*>(memory), count});
    }
  }
  return {};
}

const std::vector<SentValue>& CudaStepRunner::sent() const {
  auto to = sent_.begin();
  for (const SendOp* op : ops_of<SendOp>(*plan_)) {
    const auto& [numbers, count] = *to++;
    if (plan_->value(op->x).type == ValueType::kFloat || count == 0) continue;
    cuda::run_to_floats(numbers, at(op->x), element(), count, stream_);
  }
  return sent_;
}

/// In the order of the stream before all operations, and not as one of them, so that graphs and
/// programs have only what repeats. Who calls this has waited for the step before it.
Status CudaStepRunner::receive(const Batch& batch) {
  if (plan_->as<ReceiveOp>(0) == nullptr) return {};  // a plan begins with them
  const auto bytes = batch.received.size_bytes();
  SUBBYTE_CHECK(received_.grow(static_cast<int64_t>(bytes)));
  if (bytes > 0) std::memcpy(received_.data(), batch.received.data(), bytes);
  const std::byte* from = received_.data();
  for (const ReceiveOp* op : ops_of<ReceiveOp>(*plan_)) {
    const int64_t count = rows_of(op->y) * op->cols;
    const auto size = static_cast<std::size_t>(count) * sizeof(float);
    std::byte* to = at(op->y);
    if (op->type != ValueType::kFloat) {
      SUBBYTE_TRY(to, step_.take(static_cast<int64_t>(size)));
    }
    const cudaError_t error = cudaMemcpyAsync(to, from, size, cudaMemcpyHostToDevice, stream_);
    if (error != cudaSuccess) return cuda_error("cuda.copy", "copy to the GPU", error);
    from += size;
    if (op->type == ValueType::kFloat || count == 0) continue;
    cuda::run_add(at(op->y), reinterpret_cast<float*>(to), nullptr, 0, element(), count, stream_);
  }
  return {};
}

Status CudaStepRunner::launch(const ReceiveOp&) {
  return {};
}

Status CudaStepRunner::launch(const SendOp&) {
  return {};
}

}  // namespace subbyte
