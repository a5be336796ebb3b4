// bitsandbytes' kbit and vector quantization, on the host and on GPUs, and its Hadamard rotation.

#include "codebook/kbit.h"

#include <limits>

#include "base/checked.h"
#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "codebook/hadamard.h"
#include "codebook/kbit_codes.h"
#include "codebook/vq.h"
#include "device/kbit.h"

using namespace subbyte;
using namespace subbyte::codebook;

namespace {

constexpr int64_t kMaxNumbers = int64_t{1} << 40;

/// Numbers of a buffer by its description: with padding to 64 inputs where it is tiled.
int64_t numbers_of(const subbyte_kbit& b, bool with_padding) {
  if (b.k_dim == 0) return b.n;
  const int64_t cols = b.tiled != 0 && with_padding ? (b.k_dim + 63) / 64 * 64 : b.k_dim;
  return b.n * cols;
}

int planes_of(const subbyte_kbit& b) {
  return b.p == 0 ? b.k : 8 / b.p;
}

/// Reads the shape alone. Codes: c.argument, vq.p.
Result<subbyte_kbit> read_shape(const char* name, const subbyte_kbit* from) {
  SUBBYTE_TRY(subbyte_kbit b, c::read_struct(name, from));
  const std::string prefix = std::string(name) + ".";
  if (b.p != 0 && b.p != 2 && b.p != 4) return c::refuse(prefix + "p", "0, 2 or 4", b.p);
  if (b.p == 0 && (b.k < 2 || b.k > 5)) return c::refuse(prefix + "k", "2 to 5", b.k);
  const auto total = b.n < 0 || b.k_dim < 0
                         ? std::nullopt
                         : checked_mul(b.n, static_cast<uint64_t>(b.k_dim == 0 ? 1 : b.k_dim + 63));
  if (!total || *total > static_cast<uint64_t>(kMaxNumbers)) {
    return c::refuse(prefix + "n and k_dim", "0 to 2^40 numbers",
                     std::to_string(b.n) + " and " + std::to_string(b.k_dim));
  }
  if (b.absmax_dtype == SUBBYTE_NONE) b.absmax_dtype = SUBBYTE_E4M4;
  if (b.absmax_dtype != SUBBYTE_E4M4 && b.absmax_dtype != SUBBYTE_F16 &&
      b.absmax_dtype != SUBBYTE_F32) {
    return c::refuse(prefix + "absmax_dtype", "SUBBYTE_E4M4, SUBBYTE_F16 or SUBBYTE_F32",
                     b.absmax_dtype);
  }
  return b;
}

/// The same with its buffers. Codes: c.null, c.argument.
Result<subbyte_kbit> read_buffers(const char* name, const subbyte_kbit* from, bool has_codebook) {
  SUBBYTE_TRY(const subbyte_kbit b, read_shape(name, from));
  SUBBYTE_CHECK(c::check_addresses({{"kbit.packed", b.packed}, {"kbit.absmax", b.absmax}}));
  if (has_codebook) SUBBYTE_CHECK(c::check_addresses({{"kbit.codebook", b.codebook}}));
  if (b.packed_words < 0 || b.absmax_elements < 0 || b.packed_words > kMaxNumbers ||
      b.absmax_elements > kMaxNumbers) {
    return c::refuse(std::string(name) + ": sizes of buffers", "0 to 2^40",
                     std::to_string(b.packed_words) + " and " + std::to_string(b.absmax_elements));
  }
  SUBBYTE_CHECK(c::check_on_host({{"kbit.codebook", b.codebook}}));
  return b;
}

std::span<uint32_t> words_of(const subbyte_kbit& b) {
  return {b.packed, static_cast<std::size_t>(b.packed_words)};
}

std::span<std::byte> absmax_of(const subbyte_kbit& b) {
  const int bits = info(static_cast<Format>(b.absmax_dtype)).bits;
  return {static_cast<std::byte*>(b.absmax),
          static_cast<std::size_t>(b.absmax_elements * bits / 8)};
}

/// Bytes of absmax, where that is E4M4.
Result<std::span<uint8_t>> absmax_bytes(const char* name, const subbyte_kbit& b) {
  if (b.absmax_dtype == SUBBYTE_E4M4) {
    return std::span(static_cast<uint8_t*>(b.absmax), static_cast<std::size_t>(b.absmax_elements));
  }
  return c::refuse(std::string(name) + ".absmax_dtype", "SUBBYTE_E4M4", b.absmax_dtype);
}

std::span<const float> kbit_codebook(const subbyte_kbit& b) {
  return {static_cast<const float*>(b.codebook), std::size_t{1} << b.k};
}

std::span<const uint16_t> vq_codebook(const subbyte_kbit& b) {
  return {static_cast<const uint16_t*>(b.codebook), static_cast<std::size_t>(256 * b.p)};
}

/// Buffers of a GPU: VQ has the words of as many planes.
device::KbitBlocks blocks_of(const subbyte_kbit& b) {
  device::KbitBlocks blocks;
  blocks.buffers.packed = b.packed;
  blocks.buffers.absmax = b.absmax;
  blocks.buffers.packed_words = b.packed_words;
  blocks.buffers.absmax_elements = b.absmax_elements;
  blocks.buffers.scale = static_cast<Format>(b.absmax_dtype);
  blocks.buffers.k = planes_of(b);
  blocks.p = b.p;
  if (b.p == 0) {
    blocks.codebook = kbit_codebook(b);
  } else {
    blocks.vectors = vq_codebook(b);
  }
  return blocks;
}

KbitCodes kbit_codes(const subbyte_kbit& b) {
  return {words_of(b), absmax_of(b), kbit_codebook(b), b.k, static_cast<Format>(b.absmax_dtype)};
}

VqCodes vq_codes(const subbyte_kbit& b) {
  return {words_of(b), absmax_of(b), vq_codebook(b), b.p, static_cast<Format>(b.absmax_dtype)};
}

std::span<const std::byte> bytes_of(const void* data, int64_t count, Format number) {
  return {static_cast<const std::byte*>(data),
          static_cast<std::size_t>(count * info(number).bits / 8)};
}

std::span<std::byte> bytes_of(void* data, int64_t count, Format number) {
  return {static_cast<std::byte*>(data), static_cast<std::size_t>(count * info(number).bits / 8)};
}

Status measure(const subbyte_kbit* from, int64_t* packed_words, int64_t* absmax_elements) {
  SUBBYTE_CHECK(
      c::check_addresses({{"packed_words", packed_words}, {"absmax_elements", absmax_elements}}));
  SUBBYTE_TRY(const subbyte_kbit b, read_shape("from", from));
  *packed_words = kbit_packed_words(numbers_of(b, true), planes_of(b));
  *absmax_elements = kbit_absmax_elements(numbers_of(b, true));
  return {};
}

Status quantize(const subbyte_context* context, const void* numbers, int32_t number,
                const subbyte_kbit* to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"numbers", numbers}}));
  SUBBYTE_TRY(const subbyte_kbit b, read_buffers("to", to, true));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  SUBBYTE_TRY(const std::span<uint8_t> absmax, absmax_bytes("to", b));
  if (b.tiled != 0) return c::refuse("to.tiled", "0: subbyte_kbit_repack() makes tiles", b.tiled);
  SUBBYTE_TRY(
      const int device,
      c::common_device({{"to.packed", b.packed}, {"to.absmax", b.absmax}, {"numbers", numbers}}));
  if (device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, b.stream));
    return device::quantize_kbit(numbers, type, numbers_of(b, false), blocks_of(b), false, gpu);
  }
  const auto a = bytes_of(numbers, numbers_of(b, false), type);
  if (b.p != 0) {
    SUBBYTE_CHECK(quantize_vq(a, type, vq_codebook(b), b.p, words_of(b), absmax));
    return check_e4m4_range(a, type);
  }
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  SUBBYTE_CHECK(quantize_kbit(a, type, kbit_codebook(b), b.k, words_of(b), absmax,
                              context->shared->execution->pool()));
  return check_e4m4_range(a, type);
}

Status dequantize(const subbyte_context* context, const subbyte_kbit* from, int32_t number,
                  void* out) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"out", out}}));
  SUBBYTE_TRY(const subbyte_kbit b, read_buffers("from", from, true));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  SUBBYTE_TRY(
      const int device,
      c::common_device({{"from.packed", b.packed}, {"from.absmax", b.absmax}, {"out", out}}));
  if (device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, b.stream));
    // Flat blocks are whole, however they are divided into rows.
    const int64_t rows = b.tiled != 0 ? b.n : (numbers_of(b, false) + 31) / 32;
    return device::dequantize_kbit(blocks_of(b), rows, b.tiled != 0 ? b.k_dim : 32, b.tiled != 0,
                                   type, out, gpu);
  }
  const int64_t count = numbers_of(b, false);
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  Executor& pool = context->shared->execution->pool();
  if (b.tiled != 0) {
    const auto to = bytes_of(out, count, type);
    return b.p != 0 ? dequantize_vq_tiled(vq_codes(b), b.k_dim, b.n, type, to)
                    : dequantize_kbit_tiled(kbit_codes(b), b.k_dim, b.n, type, to, pool);
  }
  const auto to = bytes_of(out, (count + 31) / 32 * 32, type);
  return b.p != 0 ? dequantize_vq(vq_codes(b), count, type, to)
                  : dequantize_kbit(kbit_codes(b), count, type, to, pool);
}

Status repack(const subbyte_kbit* from, const subbyte_kbit* to) {
  SUBBYTE_TRY(const subbyte_kbit a, read_buffers("from", from, false));
  SUBBYTE_TRY(const subbyte_kbit b, read_buffers("to", to, false));
  SUBBYTE_TRY(const std::span<uint8_t> a_absmax, absmax_bytes("from", a));
  SUBBYTE_TRY(const std::span<uint8_t> b_absmax, absmax_bytes("to", b));
  if (a.n != b.n || a.k_dim != b.k_dim || a.p != b.p || planes_of(a) != planes_of(b)) {
    return c::refuse("to", "the shape and the bits of from", "others");
  }
  if ((a.tiled != 0) == (b.tiled != 0)) {
    return c::refuse("to.tiled", "another order than that of from", b.tiled);
  }
  SUBBYTE_TRY(const int device, c::common_device({{"from.packed", a.packed},
                                                  {"from.absmax", a.absmax},
                                                  {"to.packed", b.packed},
                                                  {"to.absmax", b.absmax}}));
  if (device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, b.stream));
    return cuda::repack_kbit(blocks_of(a).buffers, blocks_of(b).buffers, b.n, b.k_dim, b.tiled != 0,
                             gpu.stream());
  }
  if (b.tiled == 0) {
    if (b.p != 0) return c::refuse("to.tiled", "1 for VQ, which has no way back", b.tiled);
    return flatten_kbit(words_of(a), a_absmax, a.k_dim, a.n, a.k, words_of(b), b_absmax);
  }
  return b.p != 0 ? repack_vq(words_of(a), a_absmax, a.k_dim, a.n, a.p, words_of(b), b_absmax)
                  : repack_kbit(words_of(a), a_absmax, a.k_dim, a.n, a.k, words_of(b), b_absmax);
}

Status multiply_experts(const subbyte_kbit& b, const KbitProduct& product, const int32_t* offsets,
                        int64_t num_experts, Executor& pool) {
  if (num_experts < 1 || num_experts > (1 << 20)) {
    return c::refuse("num_experts", "1 to 2^20", num_experts);
  }
  if (b.p != 0 || b.tiled == 0) {
    return c::refuse("expert_offsets", "NULL but for tiles of kbit", "others");
  }
  return kbit_grouped_gemm(product, kbit_codes(b),
                           {offsets, static_cast<std::size_t>(num_experts + 1)}, pool);
}

Status multiply(const subbyte_context* context, const subbyte_kbit* weights, const void* a,
                void* out, int64_t m, int32_t number, const int32_t* offsets, int64_t num_experts) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"a", a}, {"out", out}}));
  SUBBYTE_TRY(const subbyte_kbit b, read_buffers("weights", weights, true));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  if (m < 0 || m > std::numeric_limits<int32_t>::max()) return c::refuse("m", "0 to 2^31 - 1", m);
  if (b.n < 1 || b.k_dim < 1) return c::refuse("weights.n and k_dim", "1 or more of both", b.k_dim);
  for (const int64_t width : {b.k_dim, b.n}) {
    const auto numbers = checked_mul(m, width);
    if (numbers && *numbers <= static_cast<uint64_t>(kMaxNumbers)) continue;
    return c::refuse("m", "rows of up to 2^40 numbers in all", m);
  }
  SUBBYTE_CHECK(c::check_on_host(
      {{"weights.packed", b.packed}, {"weights.absmax", b.absmax}, {"a", a}, {"out", out}}));
  const KbitProduct product = {bytes_of(a, m * b.k_dim, type), bytes_of(out, m * b.n, type), type,
                               b.k_dim, b.n};
  SUBBYTE_TRY(const auto turn, c::Turn::take(context->shared));
  Executor& pool = context->shared->execution->pool();
  if (offsets != nullptr) return multiply_experts(b, product, offsets, num_experts, pool);
  if (b.p != 0) {
    return b.tiled != 0 ? vq_gemm_prod(product, vq_codes(b), pool)
                        : vq_scalar_gemv(product, vq_codes(b), pool);
  }
  return b.tiled != 0 ? kbit_gemm_prod(product, kbit_codes(b), 1, pool)
                      : kbit_scalar_gemv(product, kbit_codes(b), pool);
}

Status rotate(void* data, int64_t count, int32_t number, int64_t dim, const uint32_t* signs) {
  SUBBYTE_CHECK(c::check_addresses({{"data", data}}));
  SUBBYTE_TRY(const Format type, c::float_of("number", number));
  if (count < 0 || count > kMaxNumbers) return c::refuse("count", "0 to 2^40", count);
  if (dim < 32 || dim > 8192) return c::refuse("dim", "a power of two from 32 to 8192", dim);
  SUBBYTE_CHECK(c::check_on_host({{"data", data}, {"signs", signs}}));
  std::span<const uint32_t> words;
  if (signs != nullptr) words = {signs, static_cast<std::size_t>(dim / 32)};
  return hadamard_rotate(bytes_of(data, count, type), type, dim, words);
}

}  // namespace

int subbyte_kbit_measure(const subbyte_kbit* kbit, int64_t* packed_words,
                         int64_t* absmax_elements) {
  return c::run([&] { return measure(kbit, packed_words, absmax_elements); });
}

int subbyte_kbit_quantize(subbyte_context* context, const void* numbers, int32_t number,
                          const subbyte_kbit* to) {
  return c::run([&] { return quantize(context, numbers, number, to); });
}

int subbyte_kbit_dequantize(subbyte_context* context, const subbyte_kbit* from, int32_t number,
                            void* out) {
  return c::run([&] { return dequantize(context, from, number, out); });
}

int subbyte_kbit_repack(const subbyte_kbit* from, const subbyte_kbit* to) {
  return c::run([&] { return repack(from, to); });
}

int subbyte_kbit_multiply(subbyte_context* context, const subbyte_kbit* weights, const void* a,
                          void* out, int64_t m, int32_t number, const int32_t* expert_offsets,
                          int64_t num_experts) {
  return c::run(
      [&] { return multiply(context, weights, a, out, m, number, expert_offsets, num_experts); });
}

int subbyte_hadamard_rotate(void* data, int64_t count, int32_t number, int64_t dim,
                            const uint32_t* signs) {
  return c::run([&] { return rotate(data, count, number, dim, signs); });
}
