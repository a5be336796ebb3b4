#include "kernels/blocks_c.h"

#include <string>

#include "kernels/blocks_of_c.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/weights_of_c.h"

namespace subbyte {
namespace {

Result<Element> element_of_c(const char* name) {
  SUBBYTE_TRY(const Format number, number_of(name));
  if (number == Format::kF32) return Element::kF32;
  if (number == Format::kF16) return Element::kF16;
  if (number == Format::kBF16) return Element::kBF16;
  return Error{"dequantize.argument", "dequantize: number: expected f32, f16 or bf16, found " +
                                          std::string(info(number).name)};
}

Status quantize_in_c(const SubbyteBlocks* blocks, const void* x, void* codes, void* scales,
                     cuda::Stream stream) {
  SUBBYTE_CHECK(check_addresses({{"blocks", blocks}}));
  SUBBYTE_TRY(const BlockQuantization found, blocks_of(*blocks));
  SUBBYTE_CHECK(check_buffers(found, x, codes, scales));
  return cuda::quantize_blocks(found, x, codes, scales, stream);
}

Status dequantize_in_c(const SubbyteWeights* weights, const char* number, void* out,
                       cuda::Stream stream) {
  SUBBYTE_CHECK(check_addresses({{"weights", weights}}));
  SUBBYTE_TRY(const MatrixView matrix, weights_of(*weights));
  SUBBYTE_CHECK(check_addresses({{"out", matrix.rows > 0 ? out : weights}}));
  SUBBYTE_TRY(const Element element, element_of_c(number));
  return cuda::dequantize(matrix, element, out, stream);
}

}  // namespace
}  // namespace subbyte

int subbyte_cuda_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes,
                                 void* scales, void* stream, const char** error) {
  return subbyte::run_in_c(error, [&] {
    return subbyte::quantize_in_c(blocks, x, codes, scales,
                                  static_cast<subbyte::cuda::Stream>(stream));
  });
}

int subbyte_cuda_dequantize(const SubbyteWeights* weights, const char* number, void* out,
                            void* stream, const char** error) {
  return subbyte::run_in_c(error, [&] {
    return subbyte::dequantize_in_c(weights, number, out,
                                    static_cast<subbyte::cuda::Stream>(stream));
  });
}
