#include "cuda_backend/experts.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <string>

#include "cuda_backend/weight_bytes.h"
#include "device/joined_matrices.h"
#include "kernels/cuda/experts/routed_memory.h"
#include "kernels/cuda/experts/w4a8.h"
#include "kernels/cuda/prepare_inputs.h"
#include "kernels/cuda/quantize/quantize.h"
#include "kernels/gpu/supported_format.h"
#include "matrix/recast.h"

namespace subbyte {
namespace {

Error unsupported(const std::string& message) {
  return {"linear.unsupported", message};
}

bool are_dense(const std::vector<Matrix>& matrices) {
  return std::ranges::all_of(matrices,
                             [](const Matrix& matrix) { return is_dense(matrix.view.format); });
}

Status check_limits(const ExpertMatrices& experts) {
  SUBBYTE_CHECK(check_shapes(experts));
  const auto count = std::ssize(experts.down);
  if (count <= cuda::kMaxExperts && experts.top_k <= cuda::kMaxTopK) return {};
  return unsupported("experts: expected at most " + std::to_string(cuda::kMaxTopK) + " of " +
                     std::to_string(cuda::kMaxExperts) + ", found " +
                     std::to_string(experts.top_k) + " of " + std::to_string(count));
}

/// The format that holds all matrices to the bit, such as one of groups that divide all.
Result<WeightFormat> format_of_all(std::span<const Matrix> matrices) {
  WeightFormat common = matrices.front().view.format;
  for (const Matrix& matrix : matrices) {
    const auto both = common_format(common, matrix.view.format, matrix.view.cols);
    if (!both) {
      return unsupported("experts: expected one format for all experts of a layer, found " +
                         to_string(common) + " and " + to_string(matrix.view.format));
    }
    common = *both;
  }
  return common;
}

Status make_alike(std::vector<Matrix>& matrices) {
  SUBBYTE_TRY(const WeightFormat common, format_of_all(matrices));
  for (Matrix& matrix : matrices) {
    if (matrix.view.format == common) continue;
    SUBBYTE_TRY(matrix, recast(std::move(matrix), {common, TensorFactor::kNone, true}));
  }
  return {};
}

/// Gate, or up, of each expert, or their biases, of what has both of each in turns, `size` of one.
template <class T>
std::vector<T> every_second(std::span<T> both, std::size_t first, std::size_t size) {
  std::vector<T> one;
  for (std::size_t i = first * size; i < both.size(); i += 2 * size) {
    for (T& value : both.subspan(i, size)) one.push_back(std::move(value));
  }
  return one;
}

/// Says whether gate and up are to be two products: one packed form has one format.
bool have_two_formats(const ExpertMatrices& experts) {
  return experts.is_apart() && !are_dense(experts.gate_up) && !format_of_all(experts.gate_up).ok();
}

/// Experts with vectors have one codebook, as large_m has one table for all of them, and inputs
/// that can be prepared in place.
Status check_vectors(const std::vector<Matrix>& matrices) {
  const MatrixView& first = matrices.front().view;
  if (info(first.format.element).vector_size == 1) return {};
  if (first.cols % cuda::kPreparedGrain != 0) {
    return unsupported("experts of " + to_string(first.format) +
                       ": expected inputs in 16s, found " + std::to_string(first.cols));
  }
  const bool are_equal = std::ranges::all_of(matrices, [&](const Matrix& matrix) {
    return std::ranges::equal(matrix.view.codebook, first.codebook);
  });
  if (are_equal) return {};
  return unsupported("experts: expected one codebook in all experts of a layer, found two");
}

Result<CudaExpertMatrices> upload_stack(std::vector<Matrix>& matrices, int64_t parts,
                                        std::span<const float> bias, cuda::RowOrder order,
                                        const WeightTarget& target) {
  if (!are_dense(matrices)) {
    SUBBYTE_CHECK(make_alike(matrices));
    for (Matrix& matrix : matrices) {
      const MatrixView& view = matrix.view;
      if (is_dense(gpu::supported_format(view))) {
        return unsupported_experts(view.format);
      }
      SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), target.uploader.host()));
    }
    SUBBYTE_CHECK(check_vectors(matrices));
  }
  auto weights = device::PackedExperts::upload(matrices, parts, order, target.number, target.gpu,
                                               target.uploader);
  if (!weights.ok()) return unpackable(std::move(weights).error());
  CudaExpertMatrices made = {*std::move(weights), {}};
  SUBBYTE_TRY(made.bias, upload_bias(bias, true, target));
  return made;
}

/// Gate and up of two formats, each by itself.
Status upload_apart(ExpertMatrices& experts, const WeightTarget& target, CudaExperts& uploaded) {
  const auto inner = static_cast<std::size_t>(experts.down.front().view.cols);
  for (const auto& [stack, place] : {std::pair(&uploaded.gate_up, 0), {&uploaded.up, 1}}) {
    auto matrices = every_second(std::span(experts.gate_up), place, 1);
    const auto bias = every_second(std::span(experts.gate_up_bias), place, inner);
    SUBBYTE_TRY(*stack, upload_stack(matrices, 1, bias, cuda::RowOrder::kNatural, target));
    if (!gpu::prepares_inputs(stack->weights->format())) continue;
    return unsupported("experts: expected one format for gate and up of vectors, found two");
  }
  return {};
}

Status upload_gate_up(ExpertMatrices& experts, const WeightTarget& target, CudaExperts& uploaded) {
  if (have_two_formats(experts)) return upload_apart(experts, target, uploaded);
  const bool apart = experts.is_apart();
  const auto order = !is_gated(experts.gate) ? cuda::RowOrder::kNatural
                     : apart                 ? cuda::RowOrder::kGateAboveUp
                                             : cuda::RowOrder::kGateUpPairs;
  SUBBYTE_TRY(uploaded.gate_up,
              upload_stack(experts.gate_up, apart ? 2 : 1, experts.gate_up_bias, order, target));
  return {};
}

}  // namespace

Result<CudaExperts> upload_experts(ExpertMatrices experts, const WeightTarget& target) {
  SUBBYTE_CHECK(check_limits(experts));
  CudaExperts uploaded;
  uploaded.top_k = experts.top_k;
  uploaded.gate = experts.gate;
  uploaded.swiglu = experts.swiglu;
  SUBBYTE_CHECK(upload_gate_up(experts, target, uploaded));
  SUBBYTE_TRY(uploaded.down,
              upload_stack(experts.down, 1, experts.down_bias, cuda::RowOrder::kNatural, target));
  return uploaded;
}

int64_t CudaMoe::memory_bytes(const Experts& experts, int64_t tokens) const {
  if (tokens * experts.top_k == 0) return 0;
  const int64_t routes = tokens * (experts.top_k + 1);  // one may be joined
  return cuda::RoutedMemory(routes, routes, experts.inner, experts.hidden, rounds_inputs_,
                            experts.has_two_formats)
      .bytes;
}

Status CudaMoe::choose_kernels(CudaExperts& experts) const {
  const device::PackedExperts& gate_up = *experts.gate_up.weights;
  const device::PackedExperts& up = experts.is_apart() ? *experts.up.weights : gate_up;
  const device::PackedExperts& down = *experts.down.weights;
  if (rounds_inputs_ && (gate_up.cols() % 32 != 0 || down.cols() % 32 != 0)) {
    return unsupported("experts: expected inputs in 32s for activations in mxfp8, found " +
                       std::to_string(gate_up.cols()) + " of gate and up, " +
                       std::to_string(down.cols()) + " of down");
  }
  experts.joins_shared = !rounds_inputs_ && !batch_invariant_ && !experts.is_apart();
  cuda::ExpertRules rules = {.experts = down.count(), .top_k = experts.top_k};
  rules.batch_invariant = batch_invariant_;
  rules.has_large_m = gate_up.has_large_m() && up.has_large_m() && down.has_large_m();
  // Each kernel once: small_m8, small_m16 (8 tokens of an expert), and those of more.
  const int64_t few = std::max<int64_t>(9, 8 * rules.experts / rules.top_k + 1);
  for (const device::PackedExperts* matrices : {&gate_up, &up, &down}) {
    for (const int64_t tokens : {int64_t{1}, few, 32 * rules.experts, int64_t{1} << 20}) {
      auto plan = matrices->plan(cuda::expert_tiles(tokens, rules), batch_invariant_);
      if (!plan.ok()) return unsupported(std::move(plan).error().message);
    }
  }
  return {};
}

namespace {

/// Eight multiprocessors have to read a router. Where its rows do not keep all of them busy, or
/// are more than they read in the time of the launches that are saved, more read it faster.
bool is_read_by_eight(int64_t experts, int64_t cols) {
  constexpr int64_t kBusyExperts = 256;
  constexpr int64_t kMostBytes = 1 << 20;
  constexpr int64_t kFewBytes = 64 << 10;
  const int64_t bytes = experts * cols * 2;
  return bytes <= (experts >= kBusyExperts ? kMostBytes : kFewBytes);
}

}  // namespace

bool CudaMoe::serves(cuda::RouterCall router, const CudaExperts& experts,
                     const CudaSharedExpert& shared) const {
  router.route.tokens = 1;
  router.route.experts = experts.down.weights->count();
  router.route.top_k = experts.top_k;
  router.route.has_shared = shared.is_there();
  router.route.shared_gate = shared.gate;
  return is_read_by_eight(experts.down.weights->count(), router.cols) &&
         cuda::serves_router(router, device_.compute_capability);
}

Result<cuda::RoutedSum> CudaMoe::run(const CudaRows& x, const float* logits,
                                     const CudaExperts& experts, const Router& router,
                                     const CudaSharedExpert& shared,
                                     const cuda::RouterCall& kernel) {
  device::Mixture mixture;
  mixture.x = x.data;
  mixture.weights = logits;
  mixture.router = &kernel;
  mixture.rule = router.rule;
  mixture.biases = floats_of(router.biases);
  mixture.factors = floats_of(router.factors);
  mixture.shared_gate = shared.gate;
  if (shared.is_there()) {
    mixture.shared_gate_up = shared.gate_up->weights.get();
    mixture.shared_down = shared.down->weights.get();
  }
  mixture.gate_up_bias = experts.gate_up.bias.data();
  mixture.up = experts.up.weights.get();
  mixture.up_bias = experts.up.bias.data();
  mixture.down_bias = experts.down.bias.data();
  mixture.tokens = x.rows;
  mixture.top_k = experts.top_k;
  mixture.number = number_;
  mixture.activation = activation_of(experts);
  mixture.swiglu = experts.swiglu;
  mixture.batch_invariant = batch_invariant_;
  mixture.rounds_inputs = rounds_inputs_;
  const auto gpu = device::Gpu::current(experts.down.weights->index(), stream_, memory_);
  device::Buffer memory;
  return device::run_routes(mixture, *experts.gate_up.weights, *experts.down.weights, gpu, memory);
}

}  // namespace subbyte
