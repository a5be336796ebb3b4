#pragma once
// y = W x + b for every weight format.

#include <cstdint>
#include <span>

#include "base/operands.h"
#include "base/status.h"
#include "kernels/cpu/execution.h"
#include "matrix/matrix.h"
#include "subbyte/function_ref.h"

namespace subbyte {

/// Checks that linear() can multiply by `weights`; code linear.unsupported names what is supported.
/// Called once for each matrix when a model is loaded.
Status check_linear(const Execution& execution, const MatrixView& weights);

/// y[m][rows] = x[m][cols] W^T + bias[rows] with m >= 1 rows of activations.
struct LinearProduct {
  std::span<float> y;
  std::span<const float> x;
  int64_t m = 0;
  const MatrixView* weights = nullptr;
  std::span<const float> bias = {};  // may be empty
  /// Where x has more rows than the product takes: its row i is row x_rows[i] of x, i < m. Empty:
  /// row i itself.
  std::span<const int64_t> x_rows = {};
  int64_t y_stride = 0;  // floats from one row of y to the next; 0: the rows of the weights
  /// Every number of x is one that bf16 holds, and no subnormal one. Then weights that bf16 holds,
  /// too, are multiplied by a variant that takes bf16, whatever the precision: it rounds nothing.
  bool x_is_bf16 = false;
  /// The same numbers as x in the type that they came in, or nullptr. Where they are one piece for
  /// the kernels, each thread makes that for itself then: less goes from core to core.
  const std::byte* x_numbers = nullptr;
  Element x_element = Element::kF32;  // or kF16, kBF16
};

/// All products in one parallel loop; what several of them read is packed once. No y may overlap
/// another y or any x. Each result has the same bits as alone. Nothing is computed when one of them
/// cannot be: code linear.unsupported.
Status linear_group(Execution& execution, std::span<const LinearProduct> products);

/// A part of the results of a set of products: columns [begin, end) of y, which are rows of the
/// weights, for some rows of activations. begin is a multiple of 8, and so is end unless it is the
/// last.
struct DonePart {
  int64_t set = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_m = 0;
  int64_t num_m = 0;
};

/// Called on any thread, while others go on.
using AfterPart = FunctionRef<void(const DonePart&)>;

/// The same, and what follows from a part of the results is done while they are in the cache:
/// products come in sets of `set_size` neighbours that have as many rows of weights and as many of
/// activations. The thread that computes a part computes it for the whole set, and then calls
/// `after` for it once.
///
///   gate, up:  sets of 2       gate rows 0 .. 1023, up rows 0 .. 1023, after({0, 0, 1024, 0, m})
///                              gate rows 1024 ..., up rows 1024 ..., after({0, 1024, ...})
Status linear_group(Execution& execution, std::span<const LinearProduct> products, int64_t set_size,
                    AfterPart after);

/// One product. y must not overlap x.
Status linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
              const MatrixView& weights, std::span<const float> bias = {});

/// The same with float32 activations whatever the execution's precision.
Status exact_linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                    const MatrixView& weights, std::span<const float> bias = {});

}  // namespace subbyte
