#include "device/host_product.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "device/host_numbers.h"
#include "device/operands.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/check_linear.h"
#include "kernels/cpu/linear.h"
#include "matrix/float_rows.h"

namespace subbyte::device {
namespace {

// Numbers that a thread adds at a time: some twenty microseconds, as long as it takes to wake all
// threads.
constexpr int64_t kGrain = 1 << 17;
// Loops over so many numbers become loops of vectors, which those of unknown length do not.
constexpr int64_t kUnroll = 32;
constexpr int64_t kBlock = 512;  // results that are made at a time, on the stack

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
void sum_groups(Execution& execution, std::span<float> sums, std::span<const float> x,
                const HostWeights& weights) {
  const int64_t cols = weights.main.cols;
  const int64_t groups = weights.offsets.cols;
  const int64_t size = std::max<int64_t>(weights.group_size, 1);
  const std::span<const uint32_t> order = weights.order;
  const auto sum = execution.kernels().vectors->blocks->sum_groups;
  const int64_t rows = static_cast<int64_t>(sums.size()) / groups;
  execution.pool().parallel_for(rows, kGrain / cols, [&](int64_t begin, int64_t end, int) {
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
void add_offsets(const DonePart& part, const FloatProduct& p, const HostWeights& weights,
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

Status multiply_floats(Execution& execution, const FloatProduct& p, const HostWeights& weights,
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
  if (!weights.has_offsets()) return linear_group(execution, {&product, 1});
  const std::span<float> sums = pieces.take(p.m * weights.offsets.cols);
  const bool is_few = p.m <= kFewRows && !execution.batch_invariant();
  if (is_few && !weights.offsets_by_group.empty()) {
    sum_groups(execution, sums, p.x, weights);
    return linear_group(execution, {&product, 1}, 1,
                        [&](const DonePart& part) { add_offsets(part, p, weights, sums); });
  }
  SUBBYTE_CHECK(linear_group(execution, {&product, 1}));
  const std::span<float> added = pieces.take(p.m * weights.main.rows);
  sum_groups(execution, sums, p.x, weights);
  SUBBYTE_CHECK(exact_linear(execution, added, sums, p.m, weights.offsets));
  for (std::size_t i = 0; i < added.size(); ++i) p.y[i] += added[i];
  return {};
}

/// Row n of the weights as floats, offsets included.
void whole_row(const FloatRows& main, const FloatRows& offsets, const HostWeights& weights,
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
void multiply_special_rows(Execution& execution, const FloatProduct& p,
                           const HostWeights& weights) {
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
  execution.pool().parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
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

/// Computes results [first, first + count) of a row.
class Block {
 public:
  Block(const cpu::VectorKernels& kernels, const Product& product, const float* row,
        int64_t outputs, int64_t first, int64_t count)
      : kernels_(kernels),
        product_(product),
        row_(row),
        outputs_(outputs),
        first_(first),
        count_(count) {}

  float* compute() {
    switch (product_.activation) {
      case Activation::kNone:
        std::copy_n(row_ + first_, count_, gate_);
        break;
      case Activation::kRelu:
        for (int64_t i = 0; i < count_; ++i) {
          gate_[i] = row_[first_ + i] < 0 ? 0 : row_[first_ + i];  // NaN stays
        }
        break;
      case Activation::kGelu:
        std::copy_n(row_ + first_, count_, gate_);
        std::fill_n(up_, count_, 1.0F);
        kernels_.gelu_gate(gate_, up_, count_);
        break;
      case Activation::kSiluGate:
        split();
        kernels_.silu_gate(gate_, up_, count_);
        break;
      case Activation::kGeluGate:
        split();
        kernels_.gelu_gate(gate_, up_, count_);
        break;
      case Activation::kClampedGate:
        clamped();
        break;
    }
    return gate_;
  }

 private:
  void split() {
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t n = first_ + i;
      gate_[i] = row_[product_.gate_in_turns ? 2 * n : n];
      up_[i] = row_[product_.gate_in_turns ? 2 * n + 1 : n + outputs_];
    }
  }

  void clamped() {
    const SwiGLU& clamp = product_.clamp;
    float both[2 * kBlock];
    const float* from = row_ + 2 * first_;
    if (!product_.gate_in_turns) {
      for (int64_t i = 0; i < count_; ++i) {
        both[2 * i] = row_[first_ + i];
        both[2 * i + 1] = row_[first_ + i + outputs_];
      }
      from = both;
    }
    kernels_.clamped_swiglu(gate_, from, count_, clamp.alpha, clamp.limit, clamp.up_offset);
  }

  const cpu::VectorKernels& kernels_;
  const Product& product_;
  const float* row_;
  int64_t outputs_;
  int64_t first_;
  int64_t count_;
  alignas(64) float gate_[kBlock];
  alignas(64) float up_[kBlock];
};

/// One call.
class HostProduct {
 public:
  HostProduct(Execution& execution, const HostWeights& weights, const Product& product)
      : execution_(execution),
        weights_(weights),
        p_(product),
        rows_(weights.main.rows),
        cols_(weights.main.cols),
        outputs_(is_gate(product.activation) ? rows_ / 2 : rows_),
        total_(product.m * product.batch),
        width_(info(product.number).bits / 8) {}

  Status run() {
    SUBBYTE_CHECK(check_linear(execution_, weights_.main));
    const bool reads_x = p_.number == Format::kF32 && has_whole_x() && is_aligned(p_.x);
    const bool converts_bias = p_.bias != nullptr && bias_number() != Format::kF32;
    // The buffers are those of experts, which a product alone does not use.
    const int64_t of_offsets = total_ * (weights_.offsets.cols + rows_);
    Pieces pieces(execution_, (reads_x ? 0 : total_ * cols_) + rows_ +
                                  (weights_.has_offsets() ? of_offsets : 0));
    FloatProduct product = {{},    {},      bias(pieces, converts_bias), total_,
                            false, nullptr, element_of(p_.number)};
    if (has_whole_x() && is_aligned(p_.x)) product.x_numbers = static_cast<const std::byte*>(p_.x);
    const auto count = static_cast<std::size_t>(total_ * cols_);
    if (reads_x) {
      product.x = {static_cast<const float*>(p_.x), count};
    } else {
      const std::span<float> floats = pieces.take(total_ * cols_);
      const bool is_normal = load_x(floats);
      product.x = floats;
      product.x_is_bf16 = p_.number == Format::kBF16 && is_normal && !execution_.batch_invariant();
    }
    const bool in_place = writes_in_place() && !(reads_x && overlaps());
    float* const y = in_place ? static_cast<float*>(p_.y)
                              : execution_.floats(Execution::Slot::kGate, total_ * rows_);
    product.y = {y, static_cast<std::size_t>(total_ * rows_)};
    SUBBYTE_CHECK(multiply_floats(execution_, product, weights_, pieces));
    multiply_special_rows(execution_, product, weights_);
    if (!in_place) finish(y);
    return {};
  }

 private:
  bool is_aligned(const void* address) const {
    return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(width_) == 0;
  }
  Format bias_number() const {
    return p_.bias_number == Format::kNone ? p_.number : p_.bias_number;
  }
  bool has_whole_x() const {
    return p_.x_stride == cols_ && (p_.batch == 1 || p_.x_batch_stride == p_.m * cols_);
  }
  bool has_whole_y() const {
    return p_.y_stride == outputs_ && (p_.batch == 1 || p_.y_batch_stride == p_.m * outputs_);
  }
  bool writes_in_place() const {
    return p_.number == Format::kF32 && p_.activation == Activation::kNone &&
           p_.residual == nullptr && has_whole_y() && is_aligned(p_.y);
  }
  bool overlaps() const {
    const auto x = reinterpret_cast<uintptr_t>(p_.x);
    const auto y = reinterpret_cast<uintptr_t>(p_.y);
    return y < x + static_cast<uintptr_t>(total_ * cols_ * 4) &&
           x < y + static_cast<uintptr_t>(total_ * rows_ * 4);
  }
  /// The row of a tensor, in bytes from its begin.
  int64_t place(int64_t i, int64_t stride, int64_t batch_stride) const {
    return (i / p_.m * batch_stride + i % p_.m * stride) * width_;
  }

  std::span<const float> bias(Pieces& pieces, bool converts) const {
    if (p_.bias == nullptr) return {};
    const auto size = static_cast<std::size_t>(rows_);
    if (!converts && reinterpret_cast<uintptr_t>(p_.bias) % sizeof(float) == 0)
      return {static_cast<const float*>(p_.bias), size};
    const std::span<float> to = pieces.take(rows_);
    load_numbers(to.data(), static_cast<const std::byte*>(p_.bias), rows_, bias_number());
    return to;
  }

  /// Says that none is a subnormal bf16.
  bool load_x(std::span<float> to) const {
    const auto* x = static_cast<const std::byte*>(p_.x);
    if (has_whole_x() && is_aligned(x)) {
      return load_floats(execution_, to.data(), x, total_ * cols_, p_.number);
    }
    execution_.pool().parallel_for(total_, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        load_numbers(to.data() + i * cols_, x + place(i, p_.x_stride, p_.x_batch_stride), cols_,
                     p_.number);
      }
    });
    return false;
  }

  /// Writes y of sums that have their bias.
  void finish(const float* sums) const {
    auto* const y = static_cast<std::byte*>(p_.y);
    const bool is_plain = p_.activation == Activation::kNone && p_.residual == nullptr;
    if (is_plain && has_whole_y() && is_aligned(y)) {
      return store_floats(execution_, y, sums, total_ * rows_, p_.number);
    }
    const auto* residual = static_cast<const std::byte*>(p_.residual);
    const cpu::VectorKernels& kernels = *execution_.kernels().vectors;
    const auto store = kernels.blocks->store[static_cast<int>(element_of(p_.number))];
    const int64_t blocks = (outputs_ + kBlock - 1) / kBlock;
    execution_.pool().parallel_for(total_ * blocks, 4, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t row = i / blocks;
        const int64_t first = i % blocks * kBlock;
        const int64_t count = std::min(kBlock, outputs_ - first);
        Block block(kernels, p_, sums + row * rows_, outputs_, first, count);
        float* const results = block.compute();
        if (residual != nullptr) {
          float added[kBlock];
          load_numbers(
              added,
              residual + place(row, p_.residual_stride, p_.residual_batch_stride) + first * width_,
              count, p_.number);
          for (int64_t n = 0; n < count; ++n) results[n] += added[n];
        }
        std::byte* const to = y + place(row, p_.y_stride, p_.y_batch_stride) + first * width_;
        if (is_aligned(to)) {
          store(to, results, count);
        } else {
          alignas(64) std::byte aligned[kBlock * sizeof(float)];
          store(aligned, results, count);
          std::memcpy(to, aligned, static_cast<std::size_t>(count * width_));
        }
      }
    });
  }

  Execution& execution_;
  const HostWeights& weights_;
  const Product& p_;
  int64_t rows_;
  int64_t cols_;
  int64_t outputs_;
  int64_t total_;
  int64_t width_;
};

}  // namespace

Status multiply(Execution& execution, const HostWeights& weights, const Product& product) {
  if (product.m * product.batch == 0) return {};
  return HostProduct(execution, weights, product).run();
}

}  // namespace subbyte::device
