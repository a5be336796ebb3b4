// Groups of products against the same products one by one, which linear_test.cc compares with an
// oracle: every bit must be the same.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/float16.h"
#include "cpu_backend/gates.h"
#include "kernels/cpu/linear_pass.h"
#include "support/float_bits.h"
#include "support/isa_test.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::bits_of;
using testing::Contents;
using testing::random_inputs;
using testing::random_matrix;
using testing::RandomMatrix;

constexpr WeightFormat kU4 = {Format::kU4, Format::kF16, Zero::kU8, 32};
constexpr WeightFormat kU8 = {Format::kU8, Format::kF16, Zero::kU16, 128};
constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kBf16 = {Format::kBF16, Format::kNone, Zero::kNone, 0};

/// Products with what they read and write.
class Products {
 public:
  /// `input`: the number of an input of add_input(), of which the product takes all rows.
  void add(const WeightFormat& format, int64_t rows, std::size_t input, bool bias = false,
           std::vector<uint32_t> input_order = {}) {
    add(format, rows, input, std::vector<int64_t>{}, bias, std::move(input_order));
  }

  /// x_rows: the rows of the input that the product takes.
  void add(const WeightFormat& format, int64_t rows, std::size_t input, std::vector<int64_t> x_rows,
           bool bias = false, std::vector<uint32_t> input_order = {}) {
    One& one = all_.emplace_back();
    const int64_t cols = inputs_[input].cols;
    one.matrix = random_matrix(format, rows, cols, Contents::kReal, all_.size());
    one.order = std::move(input_order);
    one.matrix.view.input_order = one.order;
    one.x_rows = std::move(x_rows);
    one.input = input;
    if (bias) one.bias = random_inputs(1, rows, Contents::kReal, 100 + all_.size());
    const int64_t m =
        one.x_rows.empty() ? std::ssize(inputs_[input].x) / cols : std::ssize(one.x_rows);
    one.m = m;
    one.y.assign(m * rows, NAN);
  }

  std::size_t add_input(int64_t m, int64_t cols) {
    inputs_.push_back({random_inputs(m, cols, Contents::kReal, 50 + inputs_.size()), cols});
    return inputs_.size() - 1;
  }

  /// For linear_group(), all y's being NaN.
  std::vector<LinearProduct> group() {
    std::vector<LinearProduct> products;
    for (One& one : all_) {
      std::ranges::fill(one.y, NAN);
      products.push_back(
          {one.y, inputs_[one.input].x, one.m, &one.matrix.view, one.bias, one.x_rows});
    }
    return products;
  }

  /// The y's of one call of linear() each, with rows of x that are copied.
  std::vector<std::vector<float>> one_by_one(Execution& run) const {
    std::vector<std::vector<float>> results;
    for (const One& one : all_) {
      const auto& [x, cols] = inputs_[one.input];
      std::vector<float> own = one.x_rows.empty() ? x : std::vector<float>{};
      for (const int64_t row : one.x_rows) {
        own.insert(own.end(), x.begin() + row * cols, x.begin() + (row + 1) * cols);
      }
      EXPECT_TRUE(check_linear(run, one.matrix.view).ok());
      results.emplace_back(one.m * one.matrix.view.rows, NAN);
      EXPECT_TRUE(linear(run, results.back(), own, one.m, one.matrix.view, one.bias).ok());
    }
    return results;
  }

  std::span<float> y(std::size_t i) { return all_[i].y; }
  std::size_t size() const { return all_.size(); }

 private:
  struct Input {
    std::vector<float> x;
    int64_t cols;
  };
  struct One {
    RandomMatrix matrix;
    std::vector<uint32_t> order;
    std::vector<int64_t> x_rows;
    std::size_t input = 0;
    int64_t m = 0;
    std::vector<float> bias;
    std::vector<float> y;
  };
  std::vector<Input> inputs_;
  std::deque<One> all_;  // elements do not move: views point at their orders
};

/// A permutation of n columns; `step` and n are coprime.
std::vector<uint32_t> permutation(uint32_t n, uint32_t step) {
  std::vector<uint32_t> order(n);
  for (uint32_t i = 0; i < n; ++i) order[i] = (i * step + 5) % n;
  return order;
}

/// What can and what cannot share its packed activations, in products of any number of grains.
Products mixed_products(int64_t m) {
  Products products;
  const std::size_t x = products.add_input(m, 264);
  const std::size_t other = products.add_input(m, 264);
  const std::size_t wide = products.add_input(m, 1160);
  products.add(kU4, 101, x, true);
  products.add(kMxfp4, 64, x);
  products.add(kBf16, 7, x, true);  // packed in another order
  products.add(kU4, 333, wide);
  products.add(kU8, 33, other, true);
  products.add(kU4, 40, x, false, permutation(264, 37));
  products.add(kU4, 32, x, true, permutation(264, 37));  // an equal order in other memory
  products.add(kU4, 65, x, false, permutation(264, 41));
  products.add(kMxfp4, 1, wide, true, permutation(1160, 37));
  products.add(kBf16, 96, wide);
  return products;
}

class LinearGroup : public subbyte::testing::IsaTest {
 protected:
  static std::unique_ptr<Execution> make(int threads,
                                         cpu::Precision precision = cpu::Precision::kF32,
                                         bool batch_invariant = false) {
    auto made = Execution::create({.num_threads = threads,
                                   .isa = GetParam(),
                                   .precision = precision,
                                   .batch_invariant = batch_invariant});
    EXPECT_TRUE(made.ok());
    return std::move(*made);
  }

  /// With 1, 2 and 8 threads, twice each: the second time buffers hold what the first has left.
  static void expect_as_one_by_one(Products& products,
                                   cpu::Precision precision = cpu::Precision::kF32,
                                   bool batch_invariant = false) {
    const auto expected = products.one_by_one(*make(1, precision, batch_invariant));
    for (const int threads : {1, 2, 8}) {
      const auto run = make(threads, precision, batch_invariant);
      for (int repeat = 0; repeat < 2; ++repeat) {
        ASSERT_TRUE(linear_group(*run, products.group()).ok());
        for (std::size_t i = 0; i < products.size(); ++i) {
          ASSERT_EQ(bits_of(products.y(i)), bits_of(expected[i]))
              << "product " << i << ", " << threads << " threads";
        }
      }
    }
  }
};

TEST_P(LinearGroup, is_the_same_bits_as_one_product_after_the_other) {
  for (const int64_t m : {1, 3, 40}) {
    Products products = mixed_products(m);
    for (const auto precision :
         {cpu::Precision::kF32, cpu::Precision::kBF16, cpu::Precision::kInt8}) {
      for (const bool batch_invariant : {false, true}) {
        SCOPED_TRACE("M " + std::to_string(m) + ", precision " +
                     std::to_string(static_cast<int>(precision)) +
                     (batch_invariant ? ", batch invariant" : ""));
        expect_as_one_by_one(products, precision, batch_invariant);
      }
    }
  }
}

/// Of x of 16 bits each thread makes its own floats where they are few: those of x are not read.
TEST_P(LinearGroup, threads_pack_what_x_was_made_of) {
  constexpr int64_t kCols = 264, kRows = 333, kFew = (1 << 16) / kCols;
  const RandomMatrix matrix = random_matrix(kU4, kRows, kCols, Contents::kReal, 5);
  const std::vector<uint32_t> order = permutation(kCols, 37);
  for (const Element element : {Element::kF32, Element::kF16, Element::kBF16}) {
    for (const int64_t m : {int64_t{1}, int64_t{4}, int64_t{17}, kFew, kFew + 1}) {
      std::vector<float> x = random_inputs(m, kCols, Contents::kReal, 6);
      std::vector<uint16_t> numbers;
      for (float& number : x) {
        if (element == Element::kF32) continue;
        const bool is_f16 = element == Element::kF16;
        numbers.push_back(is_f16 ? to_float16(number).bits : to_bfloat16(number).bits);
        number = is_f16 ? to_float(Float16{numbers.back()}) : to_float(BFloat16{numbers.back()});
      }
      for (const bool ordered : {false, true}) {
        MatrixView view = matrix.view;
        if (ordered) view.input_order = order;
        std::vector<float> expected(m * kRows, NAN);
        ASSERT_TRUE(linear(*make(1), expected, x, m, view).ok());
        for (const int threads : {1, 2, 8}) {
          const bool is_read = threads == 1 || element == Element::kF32 || m > kFew;
          const std::vector<float> given = is_read ? x : std::vector<float>(x.size(), NAN);
          std::vector<float> y(m * kRows, NAN);
          LinearProduct product = {y, given, m, &view};
          product.x_element = element;
          product.x_numbers = element == Element::kF32
                                  ? reinterpret_cast<const std::byte*>(given.data())
                                  : reinterpret_cast<const std::byte*>(numbers.data());
          ASSERT_TRUE(linear_group(*make(threads), {&product, 1}).ok());
          ASSERT_EQ(bits_of(y), bits_of(expected)) << threads << " threads, M " << m;
        }
      }
    }
  }
}

TEST_P(LinearGroup, products_may_take_some_rows_of_x) {
  Products products;
  const std::size_t x = products.add_input(50, 264);
  std::vector<int64_t> many(40);
  for (int64_t i = 0; i < 40; ++i) many[i] = (i * 7 + 3) % 50;
  products.add(kU4, 70, x, {3, 0, 3});
  products.add(kU4, 70, x, {3, 0, 3}, true);  // equal rows in other memory
  products.add(kU4, 70, x, {3, 0, 4});
  products.add(kU4, 70, x, {49}, false, permutation(264, 37));
  products.add(kMxfp4, 33, x, many, true);
  products.add(kMxfp4, 33, x);
  products.add(kBf16, 20, x, many, false, permutation(264, 41));
  for (const auto precision :
       {cpu::Precision::kF32, cpu::Precision::kBF16, cpu::Precision::kInt8}) {
    expect_as_one_by_one(products, precision);
  }
}

TEST_P(LinearGroup, no_products_and_products_of_one_row_are_groups_too) {
  EXPECT_TRUE(linear_group(*make(2), {}).ok());
  Products products;
  products.add_input(1, 8);
  for (int i = 0; i < 3; ++i) products.add(kBf16, 1, 0);
  expect_as_one_by_one(products);
}

TEST_P(LinearGroup, after_is_called_once_for_rows_of_a_set_that_are_there) {
  constexpr int64_t kRows[] = {333, 16, 64};  // of the products of each set
  Products products;
  products.add_input(3, 264);
  for (const int64_t rows : kRows) {
    products.add(kU4, rows, 0);
    products.add(kBf16, rows, 0, true);
  }
  const auto expected = products.one_by_one(*make(1));
  for (const int threads : {1, 2, 8}) {
    std::vector<std::atomic<int>> calls[] = {std::vector<std::atomic<int>>(kRows[0]),
                                             std::vector<std::atomic<int>>(kRows[1]),
                                             std::vector<std::atomic<int>>(kRows[2])};
    std::atomic<int> wrong = 0;
    const auto after = [&](const DonePart& part) {
      const auto [set, begin, end, first_m, num_m] = part;
      if (first_m != 0 || num_m != 3) ++wrong;
      if (begin % 8 != 0 || (end % 8 != 0 && end != kRows[set])) ++wrong;
      for (int64_t n = begin; n < end; ++n) {
        ++calls[set][n];
        for (int64_t at = n; at < 3 * kRows[set]; at += kRows[set]) {
          for (int64_t i = 2 * set; i < 2 * set + 2; ++i) {
            if (products.y(i)[at] != expected[i][at]) ++wrong;
          }
        }
      }
    };
    ASSERT_TRUE(linear_group(*make(threads), products.group(), 2, after).ok());
    EXPECT_EQ(wrong, 0) << threads << " threads";
    for (const auto& rows : calls) {
      for (const auto& count : rows) ASSERT_EQ(count, 1) << threads << " threads";
    }
  }
}

TEST_P(LinearGroup, rows_are_claimed_so_that_a_slow_task_gets_fewer) {
  // Grains of 8 rows: 5, 1, 3, 4 and 3. The first task to call is done when the others are.
  Products products;
  products.add_input(1, 64);
  for (const int64_t rows : {40, 1, 24, 32, 22}) products.add(kU4, rows, 0);
  const auto expected = products.one_by_one(*make(1));
  const auto run = make(2);
  std::atomic<int64_t> done = 0;
  std::atomic<bool> first = true;
  std::atomic<int64_t> of_the_slow = 0;
  const auto after = [&](const DonePart& part) {
    const bool slow = first.exchange(false);
    if (slow) of_the_slow = part.end - part.begin;
    done += part.end - part.begin;
    while (slow && done < 40 + 1 + 24 + 32 + 22 - 3 * 8) std::this_thread::yield();
  };
  ASSERT_TRUE(linear_group(*run, products.group(), 1, after).ok());
  EXPECT_LE(of_the_slow, 4 * 8);
  for (std::size_t i = 0; i < products.size(); ++i) {
    EXPECT_EQ(bits_of(products.y(i)), bits_of(expected[i]));
  }
}

TEST_P(LinearGroup, a_gate_in_the_same_pass_is_the_gate_after_the_products) {
  constexpr int64_t kInner = 333;
  for (const int64_t m : {1, 3, 40}) {
    Products products;
    products.add_input(m, 264);
    products.add(kU4, kInner, 0);
    products.add(kU4, kInner, 0, true);
    auto expected = products.one_by_one(*make(1));
    silu_gate(make(1)->kernels(), expected[0], expected[1], kInner, {0, 0, kInner, 0, m});
    for (const int threads : {1, 2, 8}) {
      const auto run = make(threads);
      const auto gate = [&](const DonePart& part) {
        silu_gate(run->kernels(), products.y(0), products.y(1), kInner, part);
      };
      ASSERT_TRUE(linear_group(*run, products.group(), 2, gate).ok());
      EXPECT_EQ(bits_of(products.y(0)), bits_of(expected[0])) << "M " << m;
      EXPECT_EQ(bits_of(products.y(1)), bits_of(expected[1])) << "M " << m;
    }
  }
}

TEST_P(LinearGroup, alternating_gates_in_the_same_pass_are_the_gates_after_the_products) {
  constexpr int64_t kInner = 155;
  constexpr SwiGLU kSwiGLU = {1.702f, 7, 1};
  for (const int64_t m : {1, 3, 40}) {
    Products products;
    products.add_input(m, 264);
    for (int i = 0; i < 3; ++i) products.add(kMxfp4, 2 * kInner, 0, true);
    const auto gate_up = products.one_by_one(*make(1));
    for (const int threads : {1, 2, 8}) {
      const auto run = make(threads);
      std::vector<std::vector<float>> found(3, std::vector<float>(m * kInner, NAN));
      const auto gate = [&](const DonePart& part) {
        const auto i = part.set;
        gate_in_turns(run->kernels(), Gate::kSilu, kSwiGLU, found[i], products.y(i), kInner, part);
      };
      ASSERT_TRUE(linear_group(*run, products.group(), 1, gate).ok());
      for (int i = 0; i < 3; ++i) {
        std::vector<float> expected(m * kInner);
        gate_in_turns(run->kernels(), Gate::kSilu, kSwiGLU, expected, gate_up[i], kInner,
                      {i, 0, 2 * kInner, 0, m});
        EXPECT_EQ(bits_of(found[i]), bits_of(expected)) << "M " << m << ", product " << i;
      }
    }
  }
}

TEST_P(LinearGroup, many_activations_are_cut_for_many_threads_without_a_trace) {
  // Few rows of weights and 8 threads: blocks of activations, which no layout of packs divides.
  for (const auto precision :
       {cpu::Precision::kF32, cpu::Precision::kBF16, cpu::Precision::kInt8}) {
    for (const int64_t m : {255, 256, 391, 700}) {
      Products products;
      products.add_input(m, 264);
      products.add_input(m, 128);
      products.add(kU4, 40, 0, true);
      products.add(kBf16, 40, 0);
      products.add(kU8, 40, 1);
      products.add(kMxfp4, 40, 0);
      const auto expected = products.one_by_one(*make(1, precision));
      const auto run = make(8, precision);
      std::array<std::atomic<int64_t>, 2> done = {};
      const auto after = [&](const DonePart& part) {
        done[part.set] += (part.end - part.begin) * part.num_m;
      };
      ASSERT_TRUE(linear_group(*run, products.group(), 2, after).ok());
      for (const auto& count : done) EXPECT_EQ(count, 40 * m);
      for (std::size_t i = 0; i < products.size(); ++i) {
        EXPECT_EQ(bits_of(products.y(i)), bits_of(expected[i])) << "M " << m << ", product " << i;
      }
    }
  }
}

TEST_P(LinearGroup, results_may_lie_side_by_side_in_wider_rows) {
  Products products;
  products.add_input(5, 264);
  products.add(kU4, 48, 0, true);
  products.add(kBf16, 19, 0);
  const auto expected = products.one_by_one(*make(1));
  constexpr int64_t kStride = 48 + 19 + 3;
  std::vector<float> joined(5 * kStride, 12345);
  std::vector<LinearProduct> group = products.group();
  group[0].y = joined;
  group[1].y = std::span(joined).subspan(48);
  for (LinearProduct& product : group) product.y_stride = kStride;
  ASSERT_TRUE(linear_group(*make(2), group).ok());
  for (int64_t m = 0; m < 5; ++m) {
    const auto row = std::span(joined).subspan(m * kStride, kStride);
    EXPECT_TRUE(std::ranges::equal(row.first(48), std::span(expected[0]).subspan(m * 48, 48)));
    EXPECT_TRUE(
        std::ranges::equal(row.subspan(48, 19), std::span(expected[1]).subspan(m * 19, 19)));
    for (const float gap : row.subspan(67)) EXPECT_EQ(gap, 12345);
  }
}

TEST_P(LinearGroup, a_product_that_there_is_not_computes_nothing_and_says_so) {
  Products products;
  products.add_input(2, 64);
  products.add(kU4, 16, 0);
  products.add(kU4, 16, 0);
  std::vector<LinearProduct> group = products.group();
  MatrixView unknown = *group[1].weights;
  unknown.format.scale = Format::kE8M0;  // integers have no such scales
  group[1].weights = &unknown;
  const Status status = linear_group(*make(2), group);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, "linear.unsupported");
  for (const float y : products.y(0)) EXPECT_TRUE(std::isnan(y));
}

TEST_P(LinearGroup, what_is_kept_of_products_serves_other_numbers) {
  const RandomMatrix first = random_matrix(kU4, 101, 264, Contents::kReal, 1);
  const RandomMatrix second = random_matrix(kBf16, 7, 264, Contents::kReal, 2);
  const std::vector<float> bias = random_inputs(1, 101, Contents::kReal, 3);
  std::shared_ptr<ProductGroup> kept;
  uint64_t seed = 4;
  for (const int64_t m : {1, 1, 7, 40, 40, 1}) {
    for (const bool is_shared : {true, true, false, false, true}) {
      const std::vector<float> x = random_inputs(m, 264, Contents::kReal, seed++);
      const std::vector<float> own = is_shared ? x : random_inputs(m, 264, Contents::kReal, seed++);
      std::vector<float> y(m * 101, NAN), z(m * 7, NAN), wanted_y(m * 101), wanted_z(m * 7);
      const LinearProduct products[] = {{y, x, m, &first.view, bias},
                                        {z, is_shared ? x : own, m, &second.view}};
      Execution& run = execution(3);
      EXPECT_TRUE(linear_pass(run, products, {.kept = &kept}, kNothingAfter).ok());
      EXPECT_TRUE(linear(run, wanted_y, x, m, first.view, bias).ok());
      EXPECT_TRUE(linear(run, wanted_z, own, m, second.view).ok());
      EXPECT_EQ(bits_of(y), bits_of(wanted_y)) << m;
      EXPECT_EQ(bits_of(z), bits_of(wanted_z)) << m;
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(LinearGroup);

}  // namespace
}  // namespace subbyte
