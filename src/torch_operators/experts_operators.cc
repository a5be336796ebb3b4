// A mixture of experts, from the logits of a router to the result.

#include "cpu_backend/experts.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/experts.h"
#include "torch_operators/gpu.h"
#include "torch_operators/product.h"
#include "torch_operators/weights.h"

namespace subbyte::torch_operators {
namespace {

/// The matrices of all experts, one tensor of each kind with the experts as first dimension.
struct Stacked {
  explicit Stacked(Call& call)
      : codes(call.tensor()),
        scales(call.tensor()),
        zeros(call.optional_tensor()),
        words(call.text()) {}

  Status check(int64_t experts, int64_t rows, int64_t cols) const;
  /// All experts one below the other, where they lie.
  Result<MatrixView> all_rows(int64_t rows, int64_t cols) const;
  /// Rows [first, first + rows) of an expert in host memory, with factor `factor` of those.
  Result<MatrixView> rows_of_expert(int64_t expert, int64_t first, int64_t rows, int64_t cols,
                                    const std::optional<Tensor>& factors, int64_t factor) const;
  /// The same, ready for products.
  Result<Matrix> part(Machine& machine, int64_t expert, int64_t first, int64_t rows, int64_t cols,
                      const std::optional<Tensor>& factors, int64_t factor) const;

  Tensor codes;
  Tensor scales;
  std::optional<Tensor> zeros;
  std::string words;
};

/// Bytes of some rows of an expert in [experts][rows][..].
std::span<const std::byte> rows_of(const Tensor& tensor, int64_t expert, int64_t first,
                                   int64_t rows) {
  const int64_t of_expert = tensor.num_bytes() / tensor.size(0);
  const int64_t of_row = of_expert / tensor.size(1);
  return tensor.host().span<const std::byte>().subspan(
      static_cast<std::size_t>(expert * of_expert + first * of_row),
      static_cast<std::size_t>(rows * of_row));
}

Status Stacked::check(int64_t experts, int64_t rows, int64_t cols) const {
  SUBBYTE_TRY(const WordedFormat worded, parse_format(words));
  const WeightFormat& format = worded.format;
  if (is_dense(format) || is_offset(format.zero)) {
    return refuse("format", "codes with scales and no offsets", words);
  }
  SUBBYTE_CHECK(check_sizes(codes, {experts, rows, (cols * info(format.element).bits + 7) / 8}));
  SUBBYTE_TRY(const int64_t held, cols_of(worded, codes.size(2)));
  if (held != cols) return refuse(codes, "rows of " + std::to_string(cols) + " codes");
  const int64_t group = format.group_size == 0 ? cols : format.group_size;
  const int64_t groups = (cols - 1) / group + 1;
  const FormatInfo& scale = info(format.scale);
  if (scale.bits != 8) SUBBYTE_CHECK(check_dtype(scales, {dtype_of(scale.id)}));
  if (scale.bits == 8 && scales.num_bytes() != scales.count()) return refuse(scales, "bytes");
  SUBBYTE_CHECK(check_sizes(scales, {experts, rows, groups}));
  if ((format.zero == Zero::kNone) == zeros.has_value()) {
    return refuse("zeros", zeros ? "none" : "zero points", zeros ? "some" : "none");
  }
  if (!zeros) return {};
  SUBBYTE_CHECK(check_dtype(*zeros, {format.zero == Zero::kU16 ? numbers().u16 : numbers().u8}));
  return check_sizes(*zeros, {experts, rows, groups});
}

Result<MatrixView> Stacked::all_rows(int64_t rows, int64_t cols) const {
  MatrixView all;
  SUBBYTE_TRY(const WordedFormat worded, parse_format(words));
  all.format = worded.format;
  all.rows = codes.size(0) * rows;
  all.cols = cols;
  all.codes = codes.span();
  all.scales = scales.span();
  if (zeros) all.zeros = zeros->span();
  return all;
}

double factor_of(const Tensor& factors, int64_t i) {
  const auto at = static_cast<std::size_t>(i);
  const Tensor& host = factors.host();
  return host.dtype() == numbers().f32 ? double{host.span<float>()[at]} : host.span<double>()[at];
}

Result<MatrixView> Stacked::rows_of_expert(int64_t expert, int64_t first, int64_t rows,
                                           int64_t cols, const std::optional<Tensor>& factors,
                                           int64_t factor) const {
  MatrixView view;
  SUBBYTE_TRY(const WordedFormat worded, parse_format(words));
  view.format = worded.format;
  view.rows = rows;
  view.cols = cols;
  view.codes = rows_of(codes, expert, first, rows);
  view.scales = rows_of(scales, expert, first, rows);
  if (zeros) view.zeros = rows_of(*zeros, expert, first, rows);
  if (factors) view.tensor_scale = factor_of(*factors, factor);
  return view;
}

Result<Matrix> Stacked::part(Machine& machine, int64_t expert, int64_t first, int64_t rows,
                             int64_t cols, const std::optional<Tensor>& factors,
                             int64_t factor) const {
  SUBBYTE_TRY(const MatrixView view, rows_of_expert(expert, first, rows, cols, factors, factor));
  // Copies that products may need are kept by their tensors, so each part has a name of its own.
  const std::array<const Tensor*, 3> sources = {&codes, &scales, zeros ? &*zeros : nullptr};
  SUBBYTE_TRY(device::HostWeights ready,
              make_ready(machine, view, sources, {"experts", {expert, first}, {}}));
  return Matrix{ready.main, std::move(ready.owners)};
}

/// The arguments of `experts`, or with `routed` those of `routed_experts`, which has chosen experts
/// and their weights in the place of logits and rules.
struct Mixture {
  Mixture(Call& call, bool routed)
      : x(call.tensor()),
        logits(call.tensor()),
        chosen(routed ? std::optional(call.tensor()) : std::nullopt),
        gate_up(call),
        down(call),
        top_k(!routed             ? call.integer()
              : logits.dim() == 2 ? logits.size(1)
                                  : 0),
        in_turns(call.boolean()),
        of_all(!routed && call.boolean()),
        gate_up_factors(call.optional_tensor()),
        down_factors(call.optional_tensor()),
        gate_up_bias(call.optional_tensor()),
        down_bias(call.optional_tensor()) {
    swiglu.alpha = static_cast<float>(call.number());
    swiglu.limit = static_cast<float>(call.optional_number().value_or(INFINITY));
    swiglu.up_offset = static_cast<float>(call.number());
  }

  int64_t tokens() const { return x.size(0); }
  int64_t hidden() const { return x.size(1); }
  int64_t experts() const { return gate_up.codes.size(0); }
  int64_t inner() const { return gate_up.codes.size(1) / 2; }

  Status check() const;
  Result<ExpertMatrices> matrices(Machine& machine) const;
  Status multiply_on_gpu(Tensor& out) const;
  Status check_gpu_limits() const;
  Result<std::shared_ptr<const device::PackedExperts>> packed_on_gpu(
      const Stacked& stack, const std::optional<Tensor>& factors, gpu::RowOrder order,
      const device::ExpertStack& matrices, const device::Gpu& gpu) const;
  Status run_on_gpu(const device::PackedExperts& first, const device::PackedExperts& second,
                    Tensor& out, const device::Gpu& gpu) const;
  /// Gate and up have a factor each.
  bool is_apart() const { return gate_up_factors && gate_up_factors->dim() == 2; }

  Routing rule() const { return {.normalises = !of_all}; }
  Result<std::vector<Route>> routes() const;

  Tensor x;
  Tensor logits;  // or the weights of those that were chosen
  std::optional<Tensor> chosen;
  Stacked gate_up;
  Stacked down;
  int64_t top_k;
  bool in_turns;
  bool of_all;
  std::optional<Tensor> gate_up_factors;
  std::optional<Tensor> down_factors;
  std::optional<Tensor> gate_up_bias;
  std::optional<Tensor> down_bias;
  SwiGLU swiglu;
};

Result<std::vector<Route>> Mixture::routes() const {
  std::vector<Route> routes(static_cast<std::size_t>(tokens() * top_k));
  std::vector<float> numbers_of(static_cast<std::size_t>(logits.count()));
  load_numbers(numbers_of.data(), logits.data(), logits.count(), logits.format());
  if (!chosen) {
    route_top_k(routes, numbers_of, experts(), top_k, {rule()});
    return routes;
  }
  const bool is_long = chosen->dtype() == numbers().i64;
  for (std::size_t i = 0; i < routes.size(); ++i) {
    const int64_t expert =
        is_long ? chosen->data<int64_t>()[i] : int64_t{chosen->data<int32_t>()[i]};
    if (expert < 0 || expert >= experts()) {
      return refuse(*chosen, "experts below " + std::to_string(experts()) + ", found " +
                                 std::to_string(expert) + " among those");
    }
    routes[i] = {static_cast<int32_t>(expert), numbers_of[i]};
  }
  return routes;
}

Status Mixture::check() const {
  if (experts() < 1 || hidden() < 1 || inner() < 1 || gate_up.codes.size(1) % 2 != 0) {
    return refuse(gate_up.codes, "[experts, twice the inner size, bytes]");
  }
  if (top_k < 1 || top_k > experts()) {
    return refuse("top_k", "1 to " + std::to_string(experts()), std::to_string(top_k));
  }
  SUBBYTE_CHECK(gate_up.check(experts(), 2 * inner(), hidden()));
  SUBBYTE_CHECK(down.check(experts(), hidden(), inner()));
  if (!gate_up_factors) return {};
  if (gate_up_factors->dim() == 1 || in_turns) return check_sizes(*gate_up_factors, {experts()});
  return check_sizes(*gate_up_factors, {experts(), 2});
}

std::vector<float> floats_of(const std::optional<Tensor>& tensor) {
  std::vector<float> floats(tensor ? static_cast<std::size_t>(tensor->count()) : 0);
  if (tensor) load_numbers(floats.data(), tensor->data(), tensor->count(), tensor->format());
  return floats;
}

Result<ExpertMatrices> Mixture::matrices(Machine& machine) const {
  ExpertMatrices all;
  for (int64_t e = 0; e < experts(); ++e) {
    const int64_t parts = in_turns ? 1 : 2;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t rows = 2 * inner() / parts;
      SUBBYTE_TRY(Matrix matrix, gate_up.part(machine, e, part * rows, rows, hidden(),
                                              gate_up_factors, is_apart() ? 2 * e + part : e));
      all.gate_up.push_back(std::move(matrix));
    }
    SUBBYTE_TRY(Matrix matrix, down.part(machine, e, 0, hidden(), inner(), down_factors, e));
    all.down.push_back(std::move(matrix));
  }
  all.gate_up_bias = floats_of(gate_up_bias);
  all.down_bias = floats_of(down_bias);
  all.top_k = top_k;
  all.swiglu = swiglu;
  return all;
}

Status Mixture::multiply_on_gpu(Tensor& out) const {
  const auto gate_up_of = [&](int64_t e) {
    return gate_up.rows_of_expert(e, 0, 2 * inner(), hidden(), gate_up_factors,
                                  is_apart() ? 2 * e : e);
  };
  const auto gate_factor_of = [&](int64_t e) {
    return gate_up_factors ? factor_of(*gate_up_factors, is_apart() ? 2 * e : e) : 1.0;
  };
  const auto up_factor_of = [&](int64_t e) -> std::optional<double> {
    if (!is_apart()) return std::nullopt;
    return factor_of(*gate_up_factors, 2 * e + 1);
  };
  const auto down_of = [&](int64_t e) {
    return down.rows_of_expert(e, 0, hidden(), inner(), down_factors, e);
  };
  const auto down_factor_of = [&](int64_t e) {
    return down_factors ? factor_of(*down_factors, e) : 1.0;
  };
  const auto none = [](int64_t) { return std::optional<double>(); };
  const auto order = in_turns ? gpu::RowOrder::kGateUpPairs : gpu::RowOrder::kGateAboveUp;
  SUBBYTE_CHECK(check_gpu_limits());
  if (tokens() == 0) return {};
  SUBBYTE_TRY(const device::Gpu gpu, gpu_of(x));
  SUBBYTE_TRY(const MatrixView all_gate_up, gate_up.all_rows(2 * inner(), hidden()));
  SUBBYTE_TRY(const MatrixView all_down, down.all_rows(hidden(), inner()));
  SUBBYTE_TRY(
      const auto first,
      packed_on_gpu(gate_up, gate_up_factors, order,
                    {all_gate_up, experts(), gate_up_of, gate_factor_of, up_factor_of}, gpu));
  SUBBYTE_TRY(const auto second,
              packed_on_gpu(down, down_factors, gpu::RowOrder::kNatural,
                            {all_down, experts(), down_of, down_factor_of, none}, gpu));
  return run_on_gpu(*first, *second, out, gpu);
}

Result<std::shared_ptr<const device::PackedExperts>> Mixture::packed_on_gpu(
    const Stacked& stack, const std::optional<Tensor>& factors, gpu::RowOrder order,
    const device::ExpertStack& matrices, const device::Gpu& gpu) const {
  const Recipe recipe = {
      "experts of GPUs",
      {experts(), static_cast<int64_t>(order), static_cast<int64_t>(number_of(x))},
      stack.words};
  const std::array sources = {&stack.codes, &stack.scales, stack.zeros ? &*stack.zeros : nullptr,
                              factors ? &*factors : nullptr};
  return keep_shared<device::PackedExperts>(
      recipe, sources, [&]() -> Result<std::shared_ptr<const device::PackedExperts>> {
        SUBBYTE_TRY(Machine machine, Machine::borrow());
        return device::PackedExperts::pack(matrices, order, number_of(x), gpu, machine.executor());
      });
}

Status Mixture::check_gpu_limits() const {
  if (x.format() == Format::kF32) return refuse(x, "f16 or bf16 on a GPU");
  if (hidden() % 8 != 0 || inner() % 8 != 0) {
    return refuse(x, "inputs and an inner size in 8s on a GPU");
  }
  if (top_k <= cuda::kMaxTopK && experts() <= cuda::kMaxExperts) return {};
  return refuse("experts", "at most 32 of 4096 on a GPU",
                std::to_string(top_k) + " of " + std::to_string(experts()));
}

Status Mixture::run_on_gpu(const device::PackedExperts& first, const device::PackedExperts& second,
                           Tensor& out, const device::Gpu& gpu) const {
  const Tensor weights = as_type(logits, numbers().f32);
  const auto bias_of = [&](const std::optional<Tensor>& bias) {
    return bias ? std::optional(as_type(*bias, x.dtype())) : std::nullopt;
  };
  const std::optional<Tensor> of_gate_up = bias_of(gate_up_bias);
  const std::optional<Tensor> of_down = bias_of(down_bias);
  device::Mixture mixture;
  mixture.x = x.data();
  mixture.weights = weights.data<const float>();
  if (chosen) {
    mixture.chosen = chosen->data();
    mixture.chosen_is_64_bits = chosen->dtype() == numbers().i64;
  }
  mixture.gate_up_bias = of_gate_up ? of_gate_up->data() : nullptr;
  mixture.down_bias = of_down ? of_down->data() : nullptr;
  mixture.tokens = tokens();
  mixture.top_k = top_k;
  mixture.rule = rule();
  mixture.number = number_of(x);
  mixture.swiglu = swiglu;
  return device::run_mixture(mixture, first, second, out.data(), gpu);
}

template <bool kRouted>
Status experts(Call& call) {
  const Mixture in(call, kRouted);
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(Tensor out, call.result());
  if (!in.x.on_cpu()) {
    SUBBYTE_CHECK(in.multiply_on_gpu(out));
  } else if (in.tokens() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow(in.x.count() * in.inner() * in.top_k));
    SUBBYTE_TRY(const ExpertMatrices matrices, in.matrices(machine));
    const int64_t count = in.x.count();
    float* const floats = machine.execution().floats(Execution::Slot::kGate, 2 * count);
    const std::span<float> x(floats, static_cast<std::size_t>(count));
    const std::span<float> y(floats + count, static_cast<std::size_t>(count));
    load_floats(machine.execution(), x.data(), in.x.data(), count, in.x.format());
    SUBBYTE_TRY(const std::vector<Route> routes, in.routes());
    SUBBYTE_CHECK(moe(machine.execution(), y, x, routes, matrices));
    store_floats(machine.execution(), out.data(), y.data(), count, in.x.format());
  }
  return call.add(std::move(out));
}

// The formats say how many bytes and groups there are.
#define SUBBYTE_STACKS                                                                          \
  "Tensor gate_up_codes{u8 [E=, I=, _]}, Tensor gate_up_scales{any [E, I, _]}, "                \
  "Tensor? gate_up_zeros{any [E, I, _]}, str gate_up_format, Tensor down_codes{u8 [E, H, _]}, " \
  "Tensor down_scales{any [E, H, _]}, Tensor? down_zeros{any [E, H, _]}, str down_format, "
#define SUBBYTE_REST                                                                            \
  "Tensor? gate_up_factors{anywhere f32|f64}=None, "                                            \
  "Tensor? down_factors{anywhere f32|f64 [E]}=None, Tensor? gate_up_bias{floats [E, I]}=None, " \
  "Tensor? down_bias{floats [E, H]}=None, float alpha=1.0, float? limit=None, "                 \
  "float up_offset=0.0"
#define SUBBYTE_EXPERTS                                                             \
  "Tensor x{floats [T=, H=]}, Tensor router_logits{floats [T, E]}, " SUBBYTE_STACKS \
  "int top_k, bool in_turns=False, bool of_all=False, " SUBBYTE_REST
#define SUBBYTE_ROUTED                                                 \
  "Tensor x{floats [T=, H=]}, Tensor expert_weights{floats [T, k=]}, " \
  "Tensor expert_ids{i64|i32 [T, k]}, " SUBBYTE_STACKS "bool in_turns=False, " SUBBYTE_REST
#define SUBBYTE_OUT ", *, Tensor(a!) out{x [T, H]}) -> ()"

constexpr Operator kOperators[] = {
    {"experts(" SUBBYTE_EXPERTS ") -> Tensor{x [T, H]}", experts<false>},
    {"experts_out(" SUBBYTE_EXPERTS SUBBYTE_OUT, experts<false>},
    {"routed_experts(" SUBBYTE_ROUTED ") -> Tensor{x [T, H]}", experts<true>},
    {"routed_experts_out(" SUBBYTE_ROUTED SUBBYTE_OUT, experts<true>},
};

}  // namespace

std::span<const Operator> experts_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
