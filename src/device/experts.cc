#include "device/experts.h"

#include "kernels/cuda/elementwise/gates.h"
#include "kernels/cuda/experts/routed_memory.h"
#include "kernels/cuda/experts/w4a8.h"
#include "kernels/cuda/prepare_inputs.h"
#include "kernels/cuda/quantize/quantize.h"

namespace subbyte::device {
namespace {

/// The rows of a product, and memory for them in another form.
struct ExpertInputs {
  const void* data = nullptr;         // of 16 bits
  const int32_t* token_of = nullptr;  // row of each route; nullptr: as many
  int64_t rows = 0;                   // of data
  int64_t cols = 0;
  std::byte* spare = nullptr;  // for rows of 16 bits
  uint8_t* codes = nullptr;    // for rows of 8 bits
  float* scales = nullptr;
};

Status multiply(const Mixture& in, const cuda::ExpertTiles& tiles, const PackedExperts& experts,
                const ExpertInputs& x, const PackedMatrix* shared, cuda::ExpertsCall call,
                const Gpu& gpu) {
  const Stream stream = gpu.stream();
  SUBBYTE_TRY(const cuda::ExpertPlan plan, experts.plan(tiles, in.batch_invariant));
  experts.set(call);
  call.num_tiles = tiles.count;
  if (shared != nullptr) {
    const cuda::WeightArguments& weights = shared->arguments(in.number);
    call.shared = {weights.codes - experts.arguments().codes, static_cast<int32_t>(experts.count()),
                   weights.gain, weights.up_gain};
  }
  if (x.codes != nullptr) {
    cuda::run_quantize_rows(
        {x.codes, x.scales, x.data, x.token_of, call.x_count, x.cols, cuda::element_of(in.number)},
        stream);
    const cuda::RowsIn8Bits rows = {x.codes, x.scales, call.x_count, x.cols};
    return cuda::run_experts_w4a8(plan, call, rows, experts.largest_scale(), in.number, stream);
  }
  call.x = x.data;
  call.x_rows = x.token_of;
  call.x_stride = x.cols;
  const bool gathers = x.token_of != nullptr && cuda::reads_sorted_rows(tiles);
  if (gathers) {
    cuda::run_gather_rows({x.spare, x.data, x.token_of, call.x_count, x.cols}, stream);
    call.x = x.spare;
    call.x_rows = nullptr;
  }
  const int64_t rows = gathers ? call.x_count : x.rows;
  if (in.rounds_inputs) {
    cuda::run_round_to_mxfp8({x.spare, call.x, rows * x.cols, cuda::element_of(in.number)}, stream);
    call.x = x.spare;
  }
  if (gpu::prepares_inputs(experts.format())) {
    SUBBYTE_CHECK(cuda::prepare_inputs(
        {&experts.format(), call.x, x.spare, x.cols, rows, in.number, true}, stream));
    call.x = x.spare;
  }
  return cuda::run_experts(plan, call, in.number, stream);
}

/// Finds the routes, where `route` says.
void find_routes(const Mixture& in, const cuda::RouteCall& route, Stream stream) {
  if (in.weights == nullptr) {
    cuda::RouterCall router = *in.router;
    router.route = route;
    cuda::run_router(router, stream);
  } else if (in.chosen == nullptr) {
    cuda::run_route(route, stream);
  } else {
    cuda::run_chosen_routes(route, in.chosen, in.chosen_is_64_bits, in.weights, stream);
  }
}

cuda::ExpertTiles tiles_of(const Mixture& in, const PackedExperts& gate_up,
                           const PackedExperts& down) {
  const int64_t shared = in.shared_gate_up != nullptr ? 1 : 0;
  cuda::ExpertRules rules = {.experts = gate_up.count() + shared, .top_k = in.top_k + shared};
  rules.batch_invariant = in.batch_invariant;
  rules.has_large_m =
      gate_up.has_large_m() && down.has_large_m() && (in.up == nullptr || in.up->has_large_m());
  rules.has_panel =
      gate_up.has_panel() && down.has_panel() && (in.up == nullptr || in.up->has_panel());
  cuda::ExpertTiles tiles = cuda::expert_tiles(in.tokens, rules);
  // Experts that a caller has chosen may be the same, so that some tiles are empty.
  if (in.chosen != nullptr) tiles.are_all_used = false;
  return tiles;
}

cuda::RouteCall route_of(const Mixture& in, const cuda::ExpertTiles& tiles,
                         const PackedExperts& experts, const cuda::RoutedMemory& places,
                         std::byte* at) {
  cuda::RouteCall route;
  places.place(route, at);
  if (in.chosen == nullptr) route.logits = in.weights;
  route.tokens = in.tokens;
  route.experts = experts.count();
  route.top_k = in.top_k;
  route.tile_tokens = cuda::tokens_of(tiles.kernel);
  route.num_tiles = tiles.count;
  route.has_clusters = experts.has_clusters();
  route.has_shared = in.shared_gate_up != nullptr;
  route.shared_gate = in.shared_gate;
  route.rule = in.rule;
  route.biases = in.biases;
  route.factors = in.factors;
  if (in.rule.weights_inputs) route.of_inputs = reinterpret_cast<float*>(at + places.of_inputs);
  return route;
}

/// Products of gate and up, apart, side by side, and what becomes of both.
Status multiply_apart(const Mixture& in, const cuda::ExpertTiles& tiles, const PackedExperts& gate,
                      const ExpertInputs& x, cuda::ExpertsCall call, void* gate_up,
                      const Gpu& gpu) {
  cuda::GateCall activation;
  activation.y = call.y;
  activation.gate_up = gate_up;
  activation.activation = in.activation;
  activation.swiglu = in.swiglu;
  activation.element = cuda::element_of(in.number);
  activation.rows = call.x_count;
  activation.cols = gate.rows();
  call.y = gate_up;
  call.y_stride = 2 * gate.rows();
  SUBBYTE_CHECK(multiply(in, tiles, gate, x, nullptr, call, gpu));
  call.y = static_cast<uint16_t*>(gate_up) + gate.rows();
  call.bias = in.up_bias;
  // Rows that lie in their spare memory have been rounded there.
  Mixture second = in;
  second.rounds_inputs = in.rounds_inputs && x.data != x.spare;
  SUBBYTE_CHECK(multiply(second, tiles, *in.up, x, nullptr, call, gpu));
  cuda::run_gate(activation, gpu.stream());
  return {};
}

/// The activated rows of all routes.
Status multiply_gate_up(const Mixture& in, const cuda::ExpertTiles& tiles,
                        const PackedExperts& gate_up, const ExpertInputs& x, cuda::ExpertsCall call,
                        void* apart, const Gpu& gpu) {
  call.bias = in.gate_up_bias;
  if (in.up != nullptr) return multiply_apart(in, tiles, gate_up, x, call, apart, gpu);
  call.activation = in.activation;
  call.swiglu = in.swiglu;
  SUBBYTE_CHECK(multiply(in, tiles, gate_up, x, in.shared_gate_up, call, gpu));
  if (in.activation != cuda::Activation::kNone) return {};
  cuda::run_squared_relu(call.y, cuda::element_of(in.number), call.x_count * gate_up.rows(),
                         gpu.stream());
  return {};
}

}  // namespace

bool is_w4a8(const PackedExperts& gate_up, const PackedExperts& down) {
  return gate_up.has_large_m() && down.has_large_m() && cuda::has_w4a8_products(gate_up.format()) &&
         cuda::has_w4a8_products(down.format());
}

Result<cuda::RoutedSum> run_routes(const Mixture& in, const PackedExperts& gate_up,
                                   const PackedExperts& down, const Gpu& gpu, Buffer& memory) {
  const int64_t hidden = gate_up.cols();
  const int64_t inner = down.cols();
  const int64_t routes_of_token = in.top_k + (in.shared_gate_up != nullptr ? 1 : 0);
  const int64_t routes = in.tokens * routes_of_token;
  const cuda::ExpertTiles tiles = tiles_of(in, gate_up, down);
  const cuda::RoutedMemory places(routes, tiles.count, inner, hidden, in.rounds_inputs,
                                  in.up != nullptr);
  SUBBYTE_TRY(memory, gpu.allocate(places.bytes));
  std::byte* const at = memory.data();

  const cuda::RouteCall route = route_of(in, tiles, gate_up, places, at);
  find_routes(in, route, gpu.stream());

  ExpertInputs x = {in.x, route.token_of, in.tokens, hidden};
  x.spare = at + places.outputs;  // which come after they have been read
  if (in.rule.weights_inputs) {
    cuda::run_gather_rows({x.spare, in.x, route.token_of, routes, hidden, route.of_inputs,
                           route.order, cuda::element_of(in.number)},
                          gpu.stream());
    x = {x.spare, nullptr, routes, hidden, x.spare};
  }
  const bool is_in_8_bits = is_w4a8(gate_up, down) && (in.up == nullptr || is_w4a8(*in.up, down));
  if (in.rounds_inputs && tiles.kernel == cuda::KernelKind::kLargeM256 && is_in_8_bits) {
    x.codes = reinterpret_cast<uint8_t*>(at + places.codes);
    x.scales = reinterpret_cast<float*>(at + places.scales);
  }
  cuda::ExpertsCall first;
  first.x_count = routes;
  first.y = at + places.activated;
  first.y_stride = inner;
  first.tiles = route.tiles;
  SUBBYTE_CHECK(multiply_gate_up(in, tiles, gate_up, x, first, at + places.gate_up, gpu));
  const bool is_one_kernel = in.activation != cuda::Activation::kNone && in.up == nullptr;

  x.data = x.spare = at + places.activated;
  x.token_of = nullptr;
  x.rows = routes;
  x.cols = inner;
  cuda::ExpertsCall second;
  second.x_count = routes;
  second.y = at + places.outputs;
  second.y_stride = hidden;
  second.y_rows = route.order;
  second.bias = in.down_bias;
  second.tiles = route.tiles;
  second.follows_experts =
      !in.rounds_inputs && !gpu::prepares_inputs(down.format()) && is_one_kernel;
  SUBBYTE_CHECK(multiply(in, tiles, down, x, in.shared_down, second, gpu));
  return cuda::RoutedSum{at + places.outputs, route.weights, routes_of_token};
}

Status run_mixture(const Mixture& in, const PackedExperts& gate_up, const PackedExperts& down,
                   void* out, const Gpu& gpu) {
  if (in.tokens == 0) return {};
  Buffer memory;
  SUBBYTE_TRY(const cuda::RoutedSum routes, run_routes(in, gate_up, down, gpu, memory));
  cuda::run_add_routes({out, routes, cuda::element_of(in.number), in.tokens, gate_up.cols()},
                       gpu.stream());
  return gpu.check_launch("experts");
}

}  // namespace subbyte::device
