#include "interfaces/cpp_product.h"

#include "subbyte/matrix.h"
#include "subbyte/products.h"

namespace subbyte::testing {

std::vector<float> multiply_in_cpp(const CanonicalBytes& weights, std::span<const float> x,
                                   int64_t m, int num_threads) {
  const Result<Matrix> matrix = Matrix::of({.format = weights.format,
                                            .rows = weights.rows,
                                            .cols = weights.cols,
                                            .codes = weights.codes,
                                            .scales = weights.scales,
                                            .zeros = weights.zeros});
  Result<Cpu> cpu = Cpu::open({.device = "cpu", .num_threads = num_threads});
  if (!matrix.ok() || !cpu.ok()) return {};
  std::vector<float> y(static_cast<std::size_t>(m * weights.rows));
  return cpu->linear(*matrix, x, y, m).ok() ? y : std::vector<float>();
}

}  // namespace subbyte::testing
