#include "torch_operators/product.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "cpu_backend/linear.h"
#include "kernels/cpu/block_kernels.h"
#include "matrix/float_rows.h"
#include "torch_operators/epilogue.h"
#include "torch_operators/products_on_gpu.h"

namespace subbyte::torch_operators {
namespace {

// Numbers that a thread converts at a time, or adds: some twenty microseconds, as long as it takes
// to wake all threads of torch, which it does for any loop that is divided.
constexpr int64_t kGrain = 1 << 17;

/// Has no branches, so that the loop becomes one of vectors: a product rebiases the exponent, which
/// makes subnormal numbers what they are, too; infinity and NaN keep the exponent of all ones.
float of_f16(uint16_t bits) {
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7FFFu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const uint32_t special = (bits & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | special | sign);
}

}  // namespace

namespace {

// Loops over so many numbers become loops of vectors, which those of unknown length do not.
constexpr int64_t kUnroll = 32;

template <typename Convert>
void convert(float* to, const uint16_t* bits, int64_t count, const Convert& number_of) {
  int64_t i = 0;
  for (; i + kUnroll <= count; i += kUnroll) {
    for (int64_t j = 0; j < kUnroll; ++j) to[i + j] = number_of(bits[i + j]);
  }
  for (; i < count; ++i) to[i] = number_of(bits[i]);
}

}  // namespace

void load_numbers(float* to, const std::byte* from, int64_t count, Format format) {
  if (format == Format::kF32) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * sizeof(float));
    return;
  }
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  if (format == Format::kF16) {
    convert(to, bits, count, of_f16);
  } else {
    convert(to, bits, count,
            [](uint16_t half) { return std::bit_cast<float>(static_cast<uint32_t>(half) << 16); });
  }
}

namespace {

Element element_of(Format format) {
  return format == Format::kF32   ? Element::kF32
         : format == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

}  // namespace

bool load_floats(Machine& machine, float* to, const std::byte* from, int64_t count, Format format) {
  const int64_t width = info(format).bits / 8;
  const auto load = machine.kernels().vectors->blocks->load[static_cast<int>(element_of(format))];
  std::atomic<bool> is_normal = true;
  machine.executor().parallel_for(count, kGrain, [&](int64_t begin, int64_t end, int) {
    if (!load(to + begin, from + begin * width, end - begin)) is_normal = false;
  });
  return is_normal;
}

void store_floats(Machine& machine, std::byte* to, const float* from, int64_t count,
                  Format format) {
  const int64_t width = info(format).bits / 8;
  const auto store = machine.kernels().vectors->blocks->store[static_cast<int>(element_of(format))];
  machine.executor().parallel_for(count, kGrain, [&](int64_t begin, int64_t end, int) {
    store(to + begin * width, from + begin, end - begin);
  });
}

std::vector<int64_t> product_sizes(const Tensor& x, int64_t rows) {
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  if (!sizes.empty()) sizes.back() = rows;
  return sizes;
}

Status check_product(const Tensor& x, const MatrixView& weights,
                     const std::optional<Tensor>& bias) {
  SUBBYTE_CHECK(check_floats(x));
  if (x.dim() < 1 || x.size(-1) != weights.cols) {
    return refuse(x, "a last dimension of " + std::to_string(weights.cols));
  }
  if (!bias) return {};
  SUBBYTE_CHECK(check_floats(*bias));
  return check_sizes(*bias, {weights.rows});
}

namespace {

/// Cuts a buffer into pieces, each at a multiple of 64 bytes.
class Pieces {
 public:
  Pieces(Execution& execution, int64_t floats)
      : next_(execution.floats(Execution::Slot::kExperts, floats + kPieces * kLine)) {}
  std::span<float> take(int64_t count) {
    float* const piece = next_;
    next_ += (count + kLine - 1) / kLine * kLine;
    return {piece, static_cast<std::size_t>(count)};
  }

 private:
  static constexpr int64_t kLine = 16;
  static constexpr int64_t kPieces = 4;
  float* next_;
};

/// sums[m][g] = factor times the inputs of group g of row m.
void sum_groups(Machine& machine, std::span<float> sums, std::span<const float> x,
                const ReadyWeights& weights) {
  const int64_t cols = weights.main.cols;
  const int64_t groups = weights.offsets.cols;
  const int64_t size = std::max<int64_t>(weights.group_size, 1);
  const std::span<const uint32_t> order = weights.order;
  const auto sum = machine.kernels().vectors->blocks->sum_groups;
  const int64_t rows = static_cast<int64_t>(sums.size()) / groups;
  machine.executor().parallel_for(rows, kGrain / cols, [&](int64_t begin, int64_t end, int) {
    std::vector<float> gathered(order.size());
    for (int64_t m = begin; m < end; ++m) {
      const float* row = x.data() + m * cols;
      if (!order.empty()) {
        std::ranges::transform(order, gathered.begin(), [row](uint32_t k) { return row[k]; });
        row = gathered.data();
      }
      float* const to = sums.data() + m * groups;
      const int64_t whole = cols / size;
      sum(to, row, whole, size, weights.factor);
      if (whole < groups) sum(to + whole, row + whole * size, 1, cols % size, weights.factor);
    }
  });
}

struct FloatProduct {
  std::span<float> y;
  std::span<const float> x;
  std::span<const float> bias;
  int64_t m;
  bool x_is_bf16;
  const std::byte* x_numbers;
  Element x_element;
};

/// Adds offsets times sums of groups to a part of the results.
void add_offsets(const DonePart& part, const FloatProduct& p, const ReadyWeights& weights,
                 std::span<const float> sums) {
  const int64_t rows = weights.main.rows;
  const int64_t groups = weights.offsets.cols;
  for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
    float* const y = p.y.data() + m * rows;
    const float* const of_row = sums.data() + m * groups;
    for (int64_t n = part.begin; n < part.end; n += kUnroll) {
      const int64_t count = std::min(kUnroll, part.end - n);
      std::array<float, kUnroll> added = {};  // of its own, so that it may be a vector
      for (int64_t g = 0; g < groups; ++g) {
        const float* const z = weights.offsets_by_group.data() + g * rows + n;
        if (count == kUnroll) {
          for (std::size_t j = 0; j < kUnroll; ++j) added[j] += of_row[g] * z[j];
        } else {
          for (int64_t j = 0; j < count; ++j)
            added[static_cast<std::size_t>(j)] += of_row[g] * z[j];
        }
      }
      for (int64_t j = 0; j < count; ++j) y[n + j] += added[static_cast<std::size_t>(j)];
    }
  }
}

// Up to so many rows offsets are added by the thread that has just multiplied: a product of its own
// would wake all threads once more.
constexpr int64_t kFewRows = 16;

Status multiply_floats(Machine& machine, const FloatProduct& p, const ReadyWeights& weights,
                       Pieces& pieces) {
  LinearProduct product;
  product.y = p.y;
  product.x = p.x;
  product.m = p.m;
  product.weights = &weights.main;
  product.bias = p.bias;
  product.x_is_bf16 = p.x_is_bf16;
  product.x_numbers = p.x_numbers;
  product.x_element = p.x_element;
  if (!weights.has_offsets()) return linear_group(machine.execution(), {&product, 1});
  const std::span<float> sums = pieces.take(p.m * weights.offsets.cols);
  if (p.m <= kFewRows && !weights.offsets_by_group.empty()) {
    sum_groups(machine, sums, p.x, weights);
    return linear_group(machine.execution(), {&product, 1}, 1,
                        [&](const DonePart& part) { add_offsets(part, p, weights, sums); });
  }
  SUBBYTE_CHECK(linear_group(machine.execution(), {&product, 1}));
  const std::span<float> added = pieces.take(p.m * weights.main.rows);
  sum_groups(machine, sums, p.x, weights);
  SUBBYTE_CHECK(linear(machine.execution(), added, sums, p.m, weights.offsets));
  for (std::size_t i = 0; i < added.size(); ++i) p.y[i] += added[i];
  return {};
}

}  // namespace

namespace {

/// Row n of the weights as floats, offsets included.
void whole_row(const FloatRows& main, const FloatRows& offsets, const ReadyWeights& weights,
               int64_t n, std::vector<float>& row, std::vector<float>& of_groups) {
  main.row(n, row.data());
  if (!weights.has_offsets()) return;
  offsets.row(n, of_groups.data());
  const std::span<const uint32_t> order = weights.order;
  const int64_t size = std::max<int64_t>(weights.group_size, 1);
  for (int64_t k = 0; k < weights.main.cols; ++k) {
    const std::size_t input = order.empty() ? static_cast<std::size_t>(k) : order[k];
    row[input] +=
        of_groups[static_cast<std::size_t>(k / size)] * static_cast<float>(weights.factor);
  }
}

/// Computes rows of x with infinities and NaN anew, by the definition of a product: kernels, which
/// take numbers apart and add zero points by themselves, make all of their results NaN or infinite.
void multiply_special_rows(Machine& machine, const FloatProduct& p, const ReadyWeights& weights) {
  const int64_t cols = weights.main.cols;
  const int64_t rows = weights.main.rows;
  const auto x_row = [&](int64_t m) {
    return p.x.subspan(static_cast<std::size_t>(m * cols), static_cast<std::size_t>(cols));
  };
  std::vector<int64_t> special;
  for (int64_t m = 0; m < p.m; ++m) {
    if (std::isfinite(p.y[static_cast<std::size_t>(m * rows)])) continue;
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (!std::ranges::all_of(x_row(m), is_finite)) special.push_back(m);
  }
  if (special.empty()) return;
  const FloatRows main(weights.main);
  const FloatRows offsets(weights.offsets);
  machine.executor().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<std::size_t>(cols));
    std::vector<float> of_groups(static_cast<std::size_t>(weights.offsets.cols));
    for (int64_t n = begin; n < end; ++n) {
      whole_row(main, offsets, weights, n, row, of_groups);
      for (const int64_t m : special) {
        const std::span<const float> x = x_row(m);
        double sum = p.bias.empty() ? 0 : p.bias[static_cast<std::size_t>(n)];
        for (std::size_t k = 0; k < row.size(); ++k) sum += double{row[k]} * x[k];
        p.y[static_cast<std::size_t>(m * rows + n)] = static_cast<float>(sum);
      }
    }
  });
}

}  // namespace

Status multiply(Machine& machine, const Tensor& x, const ReadyWeights& weights,
                const std::optional<Tensor>& bias, Tensor& out, const Epilogue* epilogue) {
  const int64_t rows = weights.main.rows;
  const int64_t m = x.count() / weights.main.cols;
  if (m == 0 || rows == 0) return {};
  const Format format = x.format();
  const bool f32 = format == Format::kF32;
  const bool in_place = f32 && epilogue == nullptr;
  Execution& execution = machine.execution();
  SUBBYTE_CHECK(check_linear(execution, weights.main));
  const bool convert_bias = bias && bias->format() != Format::kF32;
  // The buffers are those of experts, which a product alone does not use.
  Pieces pieces(execution, (f32 ? 0 : x.count()) + (convert_bias ? rows : 0) +
                               (weights.has_offsets() ? m * (weights.offsets.cols + rows) : 0));
  FloatProduct product = {{}, {}, {}, m, false, x.data(), element_of(format)};
  if (convert_bias) {
    const std::span<float> to = pieces.take(rows);
    load_numbers(to.data(), bias->data(), rows, bias->format());
    product.bias = to;
  } else if (bias) {
    product.bias = bias->span<const float>();
  }
  float* const y =
      in_place ? out.data<float>() : execution.floats(Execution::Slot::kGate, m * rows);
  product.y = {y, static_cast<std::size_t>(m * rows)};
  product.x = x.span<const float>();
  if (!f32) {
    const std::span<float> floats = pieces.take(x.count());
    const bool is_normal = load_floats(machine, floats.data(), x.data(), x.count(), format);
    product.x = floats;
    product.x_is_bf16 = format == Format::kBF16 && is_normal;
  }
  SUBBYTE_CHECK(multiply_floats(machine, product, weights, pieces));
  multiply_special_rows(machine, product, weights);
  if (epilogue != nullptr) {
    finish(machine, *epilogue, y, m, rows, out);
  } else if (!in_place) {
    store_floats(machine, out.data(), y, out.count(), format);
  }
  return {};
}

Status multiply_kept(const Tensor& x, const Recipe& recipe, std::span<const Tensor* const> sources,
                     FunctionRef<Result<Matrix>()> make, const std::optional<Tensor>& bias,
                     Tensor& out) {
  if (out.count() == 0) return {};
  for (const Tensor* source : sources) {
    if (source != nullptr) SUBBYTE_CHECK(check_device(*source, x));
  }
  if (bias) SUBBYTE_CHECK(check_device(*bias, x));
  if (!x.on_cpu()) {
    return multiply_on_gpu(x, 0, x.count() / x.size(-1), recipe, sources, make, bias, out);
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow(x.count() * out.size(-1)));
  SUBBYTE_TRY(const auto matrix, keep(recipe, sources, make));
  SUBBYTE_TRY(const ReadyWeights ready, make_ready(machine, matrix->view, sources, recipe));
  return multiply(machine, x, ready, bias, out);
}

}  // namespace subbyte::torch_operators
