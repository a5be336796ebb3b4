#include "kernels/dequantize_c.h"

#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/blocks_of_c.h"
#include "kernels/cpu/blocks.h"
#include "kernels/weights_of_c.h"

namespace subbyte {
namespace {

/// Every input once: an element that is left out would not be written, one too large lies outside.
Status check_order(std::span<const uint32_t> order) {
  std::vector<bool> seen(order.size());
  for (const uint32_t input : order) {
    if (input >= order.size() || seen[input]) {
      return Error{
          "dequantize.argument",
          "dequantize: input_order: expected every input once, found " + std::to_string(input)};
    }
    seen[input] = true;
  }
  return {};
}

Status dequantize(const SubbyteWeights* weights, const char* number, void* out, int threads) {
  SUBBYTE_CHECK(check_addresses({{"weights", weights}}));
  SUBBYTE_TRY(const MatrixView view, weights_of(*weights));
  SUBBYTE_CHECK(check_addresses({{"out", view.rows > 0 ? out : weights}}));
  SUBBYTE_CHECK(check_order(view.input_order));
  SUBBYTE_TRY(const Format format, number_of(number));
  SUBBYTE_TRY(const cpu::Kernels* const kernels, cpu::select_kernels());
  ThreadPool pool(threads);
  return cpu::dequantize(view, format, out, *kernels, pool);
}

}  // namespace
}  // namespace subbyte

int subbyte_dequantize(const SubbyteWeights* weights, const char* number, void* out, int threads,
                       const char** error) {
  return subbyte::run_in_c(error,
                           [&] { return subbyte::dequantize(weights, number, out, threads); });
}
