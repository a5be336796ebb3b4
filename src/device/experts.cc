#include "device/experts.h"

#include <algorithm>

#include "device/operands.h"
#include "device/staged_matrix.h"
#include "kernels/cuda/experts/routed_memory.h"
#include "kernels/cuda/packed_facts.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte::device {

using gpu::RowOrder;

Result<std::shared_ptr<const PackedExperts>> PackedExperts::pack(const ExpertStack& stack,
                                                                 RowOrder order, gpu::Number number,
                                                                 const Gpu& gpu, Executor& host) {
  std::shared_ptr<PackedExperts> made(new PackedExperts);
  SUBBYTE_TRY(made->device_, cuda::query_device(gpu.index()));
  made->number_ = number;
  SUBBYTE_TRY(const bool is_packed, made->pack_on_gpu(stack, order, gpu));
  if (!is_packed) SUBBYTE_CHECK(made->pack_by_host(stack, order, gpu, host));
  SUBBYTE_CHECK(made->finish(gpu));
  return std::shared_ptr<const PackedExperts>(std::move(made));
}

/// False where the kernels have no such format, or where values are wrong, which the host refuses
/// in words.
Result<bool> PackedExperts::pack_on_gpu(const ExpertStack& stack, RowOrder order, const Gpu& gpu) {
  const StagedMatrix all = StagedMatrix::of(stack.all);
  const MatrixView first = all.part(0, stack.experts);
  if (!gpu::packed_bytes(first.format, first.rows, first.cols, false).ok()) return false;
  const Result<gpu::PackedFacts> facts = all.find_facts(gpu);
  if (!facts.ok()) return false;
  const Result<gpu::PackedFormat> format = gpu::packed_format(first, order, *facts);
  if (!format.ok()) return false;
  format_ = *format;
  SUBBYTE_TRY(memory_, gpu.allocate(format_.bytes * stack.experts));
  for (int64_t e = 0; e < stack.experts; ++e) {
    SUBBYTE_CHECK(cuda::pack_on_device(memory_.data() + e * format_.bytes,
                                       all.part(e, stack.experts), format_, gpu.stream()));
    add_gains(stack, e, format_);
  }
  return true;
}

Status PackedExperts::pack_by_host(const ExpertStack& stack, RowOrder order, const Gpu& gpu,
                                   Executor& host) {
  std::shared_ptr<std::byte[]> bytes;
  for (int64_t e = 0; e < stack.experts; ++e) {
    SUBBYTE_TRY(const MatrixView view, stack.on_host(e));
    SUBBYTE_TRY(const Matrix made, gpu::support(Matrix{view, {}}, host));
    if (is_dense(made.view.format)) {
      return refuse("format", "one that the kernels for GPUs have (docs/kernels/cuda.md)",
                    to_string(view.format));
    }
    SUBBYTE_TRY(const gpu::PackedFormat format, gpu::packed_format(made.view, order));
    if (e == 0) {
      format_ = format;
      bytes = allocate_bytes(static_cast<std::size_t>(format.bytes * stack.experts));
    }
    if (format.bytes != format_.bytes) {
      return refuse("weights", "experts that take as many bytes each", "others");
    }
    add_gains(stack, e, format);
    gpu::pack_on_host(bytes.get() + e * format.bytes, made.view, format);
  }
  SUBBYTE_TRY(memory_, gpu.allocate(format_.bytes * stack.experts));
  SUBBYTE_CHECK(gpu.copy(memory_.data(), bytes.get(), memory_.size()));
  return gpu.wait("packing the weights");
}

void PackedExperts::add_gains(const ExpertStack& stack, int64_t expert,
                              const gpu::PackedFormat& format) {
  const auto of = [&](double factor) {
    return cuda::weight_arguments(nullptr, format, factor, number_);
  };
  const cuda::WeightArguments arguments = of(stack.factor(expert));
  if (expert == 0) arguments_ = arguments;
  // One factor for all, at which the largest scales of none are beyond f16.
  arguments_.scale_factor = std::min(arguments_.scale_factor, arguments.scale_factor);
  gains_.push_back(arguments.gain);
  const std::optional<double> up = stack.up_factor(expert);
  if (up) up_gains_.push_back(of(*up).gain);
}

Status PackedExperts::finish(const Gpu& gpu) {
  const cuda::WeightArguments placed = cuda::weight_arguments(memory_.data(), format_, 1, number_);
  arguments_.codes = placed.codes;
  arguments_.scales = placed.scales;
  arguments_.zeros = placed.zeros;
  arguments_.gather = placed.gather;
  arguments_.vectors = placed.vectors;
  const auto copy = [&](Buffer& to, const std::vector<float>& from) -> Status {
    const int64_t bytes = 4 * std::ssize(from);
    SUBBYTE_TRY(to, gpu.allocate(bytes));
    return gpu.copy(to.data(), from.data(), bytes);
  };
  SUBBYTE_CHECK(copy(gains_there_, gains_));
  SUBBYTE_CHECK(copy(up_gains_there_, up_gains_));
  return gpu.wait("packing the weights");
}

Status PackedExperts::multiply(cuda::ExpertsCall call, const cuda::ExpertTiles& tiles,
                               const Gpu& gpu) const {
  SUBBYTE_TRY(const cuda::ExpertPlan plan,
              cuda::plan_experts(format_, number_, tiles, device_, false));
  call.weights = arguments_;
  call.format = &format_;
  call.expert_bytes = format_.bytes;
  call.gains = reinterpret_cast<const float*>(gains_there_.data());
  call.up_gains = reinterpret_cast<const float*>(up_gains_there_.data());
  call.num_tiles = tiles.count;
  return cuda::run_experts(plan, call, number_, gpu.stream());
}

namespace {

/// Places the routes in memory and finds them.
cuda::RouteCall find_routes(const Mixture& in, const cuda::RoutedMemory& places,
                            const cuda::ExpertTiles& tiles, std::byte* memory, Stream stream) {
  cuda::RouteCall call;
  call.tokens = in.tokens;
  call.experts = in.experts;
  call.top_k = in.top_k;
  call.tile_tokens = cuda::tokens_of(tiles.kernel);
  call.num_tiles = tiles.count;
  call.weights_of_all = in.of_all;
  places.place(call, memory);
  if (in.chosen == nullptr) {
    call.logits = in.weights;
    cuda::run_route(call, stream);
  } else {
    cuda::run_chosen_routes(call, in.chosen, in.chosen_is_64_bits, in.weights, stream);
  }
  return call;
}

cuda::ExpertTiles tiles_of(const Mixture& in, const PackedExperts& gate_up,
                           const PackedExperts& down) {
  cuda::ExpertRules rules = {.experts = in.experts, .top_k = in.top_k};
  rules.has_large_m = gate_up.has_large_m() && down.has_large_m();
  cuda::ExpertTiles tiles = cuda::expert_tiles(in.tokens, rules);
  // Experts that a caller has chosen may be the same, so that some tiles are empty.
  if (in.chosen != nullptr) tiles.are_all_used = false;
  return tiles;
}

}  // namespace

Status run_mixture(const Mixture& in, const PackedExperts& gate_up, const PackedExperts& down,
                   const Gpu& gpu) {
  if (in.tokens == 0) return {};
  const int64_t routes = in.tokens * in.top_k;
  const cuda::ExpertTiles tiles = tiles_of(in, gate_up, down);
  const cuda::RoutedMemory places(routes, tiles.count, in.inner, in.hidden);
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(places.bytes));
  std::byte* const at = memory.data();
  const cuda::RouteCall route = find_routes(in, places, tiles, at, gpu.stream());

  cuda::ExpertsCall first;
  first.x = in.x;
  first.x_rows = route.token_of;
  if (cuda::reads_sorted_rows(tiles)) {
    cuda::run_gather_rows({at + places.outputs, in.x, route.token_of, routes, in.hidden},
                          gpu.stream());
    first.x = at + places.outputs;
    first.x_rows = nullptr;
  }
  first.x_stride = in.hidden;
  first.x_count = first.x_rows != nullptr ? in.tokens : routes;
  first.y = at + places.activated;
  first.y_stride = in.inner;
  first.bias = in.gate_up_bias;
  first.tiles = route.tiles;
  first.activation = cuda::Activation::kClampedSwiGLU;
  first.swiglu = in.swiglu;
  SUBBYTE_CHECK(gate_up.multiply(first, tiles, gpu));

  cuda::ExpertsCall second;
  second.x = at + places.activated;
  second.x_stride = in.inner;
  second.x_count = routes;
  second.y = at + places.outputs;
  second.y_stride = in.hidden;
  second.y_rows = route.order;
  second.bias = in.down_bias;
  second.tiles = route.tiles;
  second.follows_experts = true;
  SUBBYTE_CHECK(down.multiply(second, tiles, gpu));
  cuda::run_add_routes({in.out,
                        {at + places.outputs, route.weights, in.top_k},
                        cuda::element_of(in.number),
                        in.tokens,
                        in.hidden},
                       gpu.stream());
  return gpu.check_launch("experts");
}

}  // namespace subbyte::device
