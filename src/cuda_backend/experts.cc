#include "cuda_backend/experts.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>
#include <string>

#include "device/joined_matrices.h"
#include "kernels/cuda/experts/routed_memory.h"
#include "kernels/cuda/experts/w4a8.h"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/cuda/prepare_inputs.h"
#include "kernels/gpu/supported_format.h"
#include "matrix/recast.h"

namespace subbyte {
namespace {

Error unsupported(const std::string& message) {
  return {"linear.unsupported", message};
}

Error unsupported_format(const WeightFormat& format) {
  return unsupported(
      "experts of " + to_string(format) +
      ": the GPU runs experts in its packed formats (mxfp4, nvfp4, nf4, kbit, vq, integers of "
      "2, 3, 4 and 8 bits) and in f32, f16 and bf16; --device cpu runs these");
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

/// Packs some experts after the other, each of which has `parts` matrices: one, or gate and up.
///
///   take_parts()  one expert after the other: its matrices, dense ones as numbers of kernels
///   plan()        every thread some experts: what their packed form is decided by is read
///   copy, pack    all experts of a batch by one copy, and a launch for each
class ExpertPacker {
 public:
  ExpertPacker(std::vector<Matrix>& matrices, int64_t parts, cuda::RowOrder order,
               const WeightTarget& target)
      : matrices_(matrices), parts_(parts), order_(order), target_(target) {}

  Result<CudaExpertMatrices> run(std::span<const float> bias) {
    const MatrixView& first = matrices_.front().view;
    gathers_ = !first.input_order.empty();
    const int64_t experts = std::ssize(matrices_) / parts_;
    to_.count = static_cast<int32_t>(experts);
    to_.rows = first.rows * parts_;
    to_.cols = first.cols;
    const WeightFormat format =
        is_dense(first.format) ? gpu::packed_floats(target_.number) : first.format;
    auto bytes = gpu::packed_bytes(format, to_.rows, to_.cols, gathers_);
    if (!bytes.ok()) return unsupported_format(first.format);
    to_.expert_bytes = *bytes;
    SUBBYTE_TRY(to_.memory, target_.gpu.allocate(to_.expert_bytes * experts));
    for (int64_t e = 0; e < experts;) {
      SUBBYTE_TRY(const int64_t packed, pack_batch(e, experts));
      e += packed;
    }
    SUBBYTE_TRY(to_.gains, upload_bytes(std::as_bytes(std::span(gains_)), target_));
    if (parts_ == 2) {
      SUBBYTE_TRY(to_.up_gains, upload_bytes(std::as_bytes(std::span(up_gains_)), target_));
    }
    if (!bias.empty()) {
      SUBBYTE_TRY(to_.bias, upload_bias(bias, true, target_));
    }
    return std::move(to_);
  }

 private:
  /// An expert of a batch. All have as many bytes.
  struct Expert {
    std::vector<Matrix> parts;
    std::optional<device::JoinedMatrices> joined;
    Status planned;
  };

  /// Packs experts [first, ...) of which a copy has room, at least one; how many those are.
  Result<int64_t> pack_batch(int64_t first, int64_t experts) {
    std::vector<Expert> batch(1);
    SUBBYTE_TRY(batch.front().parts, take_parts(first));
    const int64_t staged = device::JoinedMatrices(batch.front().parts).staged_bytes();
    const int64_t room = std::max<int64_t>(device::Uploader::kSlotBytes / staged, 1);
    batch.resize(std::min(room, experts - first));
    const int64_t count = std::ssize(batch);
    for (int64_t i = 1; i < count; ++i) {
      SUBBYTE_TRY(batch[i].parts, take_parts(first + i));
    }
    SUBBYTE_TRY(std::byte* const staging, target_.uploader.staging(staged * count, target_.gpu));
    SUBBYTE_CHECK(plan(batch, staging, staged));
    std::vector<device::UploadPiece> pieces;
    for (int64_t i = 0; i < count; ++i) batch[i].joined->add_pieces(i * staged, pieces);
    SUBBYTE_CHECK(target_.uploader.copy_pieces(staging, pieces, staged * count, target_.gpu));
    for (int64_t i = 0; i < count; ++i) {
      SUBBYTE_CHECK(pack(batch[i], first + i));
    }
    // What importers made is many mappings, which all threads give back.
    target_.uploader.host().parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) batch[i] = {};
    });
    return count;
  }

  Status plan(std::vector<Expert>& batch, std::byte* staging, int64_t staged) {
    std::atomic<bool> is_full = false;  // threads of an executor let no exception out
    target_.uploader.host().parallel_for(
        std::ssize(batch), 1, [&](int64_t begin, int64_t end, int) {
          try {
            for (int64_t i = begin; i < end; ++i) {
              device::JoinedMatrices& joined = batch[i].joined.emplace(batch[i].parts);
              if (joined.staged_bytes() != staged) {
                batch[i].planned =
                    unsupported("experts: expected as many bytes for all, found others");
              } else {
                const Status planned = joined.stage_at(staging + i * staged, order_);
                if (!planned.ok()) batch[i].planned = unpackable(planned.error());
              }
            }
          } catch (const std::bad_alloc&) {
            is_full = true;
          }
        });
    if (is_full) throw std::bad_alloc();
    for (const Expert& expert : batch) SUBBYTE_CHECK(expert.planned);
    return {};
  }

  Status pack(const Expert& expert, int64_t index) {
    std::byte* const to = to_.memory.data() + index * to_.expert_bytes;
    SUBBYTE_CHECK(expert.joined->pack(to, target_.gpu));
    const gpu::PackedFormat& format = expert.joined->format();
    const auto arguments =
        cuda::weight_arguments(to, format, expert.joined->view().tensor_scale, target_.number);
    if (index == 0) {
      to_.format = format;
      to_.arguments = arguments;
    }
    if (format.codebook != to_.format.codebook) {
      return unsupported("experts: expected one codebook in all experts of a layer, found two");
    }
    // One factor for all, at which the largest scales of none are beyond f16.
    float& factor = to_.arguments.scale_factor;
    factor = std::min(factor, arguments.scale_factor);
    to_.largest_scale = std::max(to_.largest_scale, format.largest_scale);
    // The gains are what experts do not have in common.
    gains_.push_back(arguments.gain);
    up_gains_.push_back(cuda::weight_arguments(
                            nullptr, format, expert.parts.back().view.tensor_scale, target_.number)
                            .gain);
    return {};
  }

  /// The matrices of an expert, which are let go with its batch.
  Result<std::vector<Matrix>> take_parts(int64_t expert) {
    std::vector<Matrix> parts;
    for (int64_t i = 0; i < parts_; ++i) {
      Matrix& part = parts.emplace_back(std::move(matrices_[parts_ * expert + i]));
      const MatrixView& view = part.view;
      if (is_dense(view.format)) {
        SUBBYTE_TRY(
            part, gpu::as_packed_floats(std::move(part), target_.number, target_.uploader.host()));
      }
      if (view.input_order.empty() == gathers_) {
        return unsupported(
            "experts: expected an order of inputs in all experts of a layer, or in none, found "
            "both");
      }
      if (!std::ranges::equal(view.input_order, parts.front().view.input_order)) {
        return unsupported(
            "experts: expected one order of inputs in gate and up of an expert, found two");
      }
    }
    return parts;
  }

  std::vector<Matrix>& matrices_;
  int64_t parts_;
  cuda::RowOrder order_;
  const WeightTarget& target_;
  bool gathers_ = false;  // all have an order of inputs
  CudaExpertMatrices to_;
  std::vector<float> gains_, up_gains_;  // of each expert
};

/// Brings matrices to a format that holds all of them to the bit, such as groups that divide all.
Status make_alike(std::vector<Matrix>& matrices) {
  WeightFormat common = matrices.front().view.format;
  for (const Matrix& matrix : matrices) {
    const auto both = common_format(common, matrix.view.format, matrix.view.cols);
    if (!both) {
      return unsupported("experts: expected one format for all experts of a layer, found " +
                         to_string(common) + " and " + to_string(matrix.view.format));
    }
    common = *both;
  }
  for (Matrix& matrix : matrices) {
    if (matrix.view.format == common) continue;
    SUBBYTE_TRY(matrix, recast(std::move(matrix), {common, TensorFactor::kNone, true}));
  }
  return {};
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
        return unsupported_format(view.format);
      }
      SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), target.uploader.host()));
    }
    SUBBYTE_CHECK(check_vectors(matrices));
  }
  return ExpertPacker(matrices, parts, order, target).run(bias);
}

}  // namespace

Result<CudaExperts> upload_experts(ExpertMatrices experts, const WeightTarget& target) {
  SUBBYTE_CHECK(check_limits(experts));
  CudaExperts uploaded;
  uploaded.rules.experts = std::ssize(experts.down);
  uploaded.rules.top_k = experts.top_k;
  uploaded.swiglu = experts.swiglu;
  uploaded.weights_of_all = experts.route_weights == RouteWeights::kOfAll;
  const bool apart = experts.is_apart();
  SUBBYTE_TRY(
      uploaded.gate_up,
      upload_stack(experts.gate_up, apart ? 2 : 1, experts.gate_up_bias,
                   apart ? cuda::RowOrder::kGateAboveUp : cuda::RowOrder::kGateUpPairs, target));
  SUBBYTE_TRY(uploaded.down,
              upload_stack(experts.down, 1, experts.down_bias, cuda::RowOrder::kNatural, target));
  return uploaded;
}

Result<int64_t> expert_matrix_bytes(const MatrixShape& shape) {
  // The floats of both types of activations have as many bytes.
  const WeightFormat served =
      is_dense(shape.format)
          ? gpu::packed_floats(cuda::Number::kF16)
          : gpu::supported_format(shape.format, shape.rows, shape.cols, shape.act_order);
  auto bytes = gpu::packed_bytes(served, shape.rows, shape.cols, shape.act_order);
  if (!bytes.ok()) return unsupported_format(shape.format);
  const int64_t gains = device::aligned(shape.experts * int64_t{sizeof(float)});
  return device::aligned(shape.experts * *bytes) + gains;
}

int64_t CudaMoe::memory_bytes(const Experts& experts, int64_t tokens) const {
  if (tokens * experts.top_k == 0) return 0;
  const int64_t routes = tokens * (experts.top_k + 1);  // one may be joined
  return cuda::RoutedMemory(routes, routes, experts.inner, experts.hidden, rounds_inputs_).bytes;
}

Status CudaMoe::choose_kernels(CudaExperts& experts) const {
  if (rounds_inputs_ && (experts.gate_up.cols % 32 != 0 || experts.down.cols % 32 != 0)) {
    return unsupported("experts: expected inputs in 32s for activations in mxfp8, found " +
                       std::to_string(experts.gate_up.cols) + " of gate and up, " +
                       std::to_string(experts.down.cols) + " of down");
  }
  experts.rules.batch_invariant = batch_invariant_;
  experts.rules.has_large_m = true;
  for (const CudaExpertMatrices* matrices : {&experts.gate_up, &experts.down}) {
    experts.rules.has_large_m &= cuda::has_large_m(matrices->format, number_, device_);
  }
  experts.is_w4a8 = rounds_inputs_ && experts.rules.has_large_m &&
                    cuda::has_w4a8_products(experts.gate_up.format) &&
                    cuda::has_w4a8_products(experts.down.format);
  experts.joins_shared = !rounds_inputs_ && !batch_invariant_;
  for (const CudaExpertMatrices* matrices : {&experts.gate_up, &experts.down}) {
    for (const int64_t tokens :
         {int64_t{1}, int64_t{16}, 32 * experts.rules.experts, int64_t{1} << 20}) {
      const cuda::ExpertTiles tiles = cuda::expert_tiles(tokens, experts.rules);
      auto plan = cuda::plan_experts(matrices->format, number_, tiles, device_, batch_invariant_);
      if (!plan.ok()) return unsupported(std::move(plan).error().message);
    }
  }
  return {};
}

/// The rows of a product, and memory for them in another form.
struct CudaMoe::Inputs {
  const void* data = nullptr;         // of 16 bits
  const int32_t* token_of = nullptr;  // row of each route; nullptr: as many
  int64_t rows = 0;                   // of data
  int64_t cols = 0;
  std::byte* spare = nullptr;  // for rows of 16 bits
  uint8_t* codes = nullptr;    // for rows of 8 bits
  float* scales = nullptr;
};

Status CudaMoe::multiply(const cuda::ExpertTiles& tiles, const CudaExpertMatrices& matrices,
                         const Inputs& x, const CudaMatrix* shared, cuda::ExpertsCall call) const {
  SUBBYTE_TRY(const cuda::ExpertPlan plan,
              cuda::plan_experts(matrices.format, number_, tiles, device_, batch_invariant_));
  call.weights = matrices.arguments;
  call.format = &matrices.format;
  call.expert_bytes = matrices.expert_bytes;
  call.gains = reinterpret_cast<const float*>(matrices.gains.data());
  call.up_gains = reinterpret_cast<const float*>(matrices.up_gains.data());
  call.bias = matrices.bias.data();
  call.num_tiles = tiles.count;
  if (shared != nullptr) {
    const cuda::WeightArguments& weights = shared->arguments();
    call.shared = {weights.codes - matrices.arguments.codes, matrices.count, weights.gain,
                   weights.up_gain};
  }
  if (x.codes != nullptr) {
    cuda::run_quantize_rows(
        {x.codes, x.scales, x.data, x.token_of, call.x_count, x.cols, cuda::element_of(number_)},
        stream_);
    const cuda::RowsIn8Bits rows = {x.codes, x.scales, call.x_count, x.cols};
    return cuda::run_experts_w4a8(plan, call, rows, matrices.largest_scale, number_, stream_);
  }
  call.x = x.data;
  call.x_rows = x.token_of;
  call.x_stride = x.cols;
  const bool gathers = x.token_of != nullptr && cuda::reads_sorted_rows(tiles);
  if (gathers) {
    cuda::run_gather_rows({x.spare, x.data, x.token_of, call.x_count, x.cols}, stream_);
    call.x = x.spare;
    call.x_rows = nullptr;
  }
  if (rounds_inputs_) {
    const int64_t count = (gathers ? call.x_count : x.rows) * x.cols;
    cuda::run_round_to_mxfp8({x.spare, call.x, count, cuda::element_of(number_)}, stream_);
    call.x = x.spare;
  }
  if (gpu::prepares_inputs(matrices.format)) {
    const int64_t rows = gathers ? call.x_count : x.rows;
    SUBBYTE_CHECK(cuda::prepare_inputs(
        {&matrices.format, call.x, x.spare, x.cols, rows, number_, true}, stream_));
    call.x = x.spare;
  }
  return cuda::run_experts(plan, call, number_, stream_);
}

namespace {

void set_tokens(cuda::RouteCall& route, const cuda::ExpertTiles& tiles, int64_t tokens,
                const cuda::ExpertRules& rules) {
  route.tokens = tokens;
  route.experts = rules.experts;
  route.top_k = rules.top_k;
  route.tile_tokens = cuda::tokens_of(tiles.kernel);
  route.num_tiles = tiles.count;
}

}  // namespace

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
  router.route.experts = experts.rules.experts;
  router.route.top_k = experts.rules.top_k;
  router.route.shared_gate = shared.gate;
  return is_read_by_eight(experts.rules.experts, router.cols) &&
         cuda::serves_router(router, device_.compute_capability);
}

Result<cuda::RoutedSum> CudaMoe::run(const CudaRows& x, const float* logits,
                                     const CudaExperts& experts, const CudaSharedExpert& shared,
                                     cuda::RouterCall router) {
  const int64_t inner = experts.down.cols;
  cuda::ExpertRules rules = experts.rules;
  if (shared.gate != nullptr) {
    ++rules.experts;
    ++rules.top_k;
  }
  const int64_t routes = x.rows * rules.top_k;
  const cuda::ExpertTiles tiles = cuda::expert_tiles(x.rows, rules);
  const cuda::RoutedMemory places(routes, tiles.count, inner, x.cols, rounds_inputs_);
  SUBBYTE_CHECK(memory_.grow(places.bytes));
  std::byte* const memory = memory_.data();

  cuda::RouteCall route;
  places.place(route, memory);
  route.logits = logits;
  route.weights_of_all = experts.weights_of_all;
  route.shared_gate = shared.gate;
  set_tokens(route, tiles, x.rows, experts.rules);
  router.route = route;
  logits != nullptr ? cuda::run_route(route, stream_) : cuda::run_router(router, stream_);

  Inputs inputs = {x.data, route.token_of, x.rows, x.cols};
  inputs.spare = memory + places.outputs;  // which come after they have been read
  if (experts.is_w4a8 && tiles.kernel == cuda::KernelKind::kLargeM256) {
    inputs.codes = reinterpret_cast<uint8_t*>(memory + places.codes);
    inputs.scales = reinterpret_cast<float*>(memory + places.scales);
  }
  cuda::ExpertsCall gate_up;
  gate_up.x_count = routes;
  gate_up.y = memory + places.activated;
  gate_up.y_stride = inner;
  gate_up.tiles = route.tiles;
  gate_up.activation = cuda::Activation::kClampedSwiGLU;
  gate_up.swiglu = experts.swiglu;
  SUBBYTE_CHECK(multiply(tiles, experts.gate_up, inputs, shared.gate_up, gate_up));

  inputs.data = inputs.spare = memory + places.activated;
  inputs.token_of = nullptr;
  inputs.rows = routes;
  inputs.cols = inner;
  cuda::ExpertsCall down;
  down.x_count = routes;
  down.y = memory + places.outputs;
  down.y_stride = experts.down.rows;
  down.y_rows = route.order;
  down.follows_experts = !rounds_inputs_ && !gpu::prepares_inputs(experts.down.format);
  down.tiles = route.tiles;
  SUBBYTE_CHECK(multiply(tiles, experts.down, inputs, shared.down, down));

  return cuda::RoutedSum{memory + places.outputs, route.weights, rules.top_k};
}

}  // namespace subbyte
