// The kbit, vector and Hadamard operators of bitsandbytes' branch archive/kbit-gemv-v8 with their
// call, but for products.

#include <algorithm>
#include <array>

#include "codebook/hadamard.h"
#include "codebook/kbit_codes.h"
#include "kernels/cuda/codebook/hadamard.h"
#include "torch_operators/kbit_tensors.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

int64_t whole_blocks(int64_t n) {
  return (n + bnb::kBlock - 1) / bnb::kBlock * bnb::kBlock;
}

/// Looks at scales that were made on a GPU, and only where they may be none of the numbers at
/// those. In a capture, which lets nothing be waited for, nobody looks.
Status check_scales_there(const Tensor& a, const Tensor& absmax) {
  constexpr uint8_t kLargeExponent = 0xF0;
  if (is_captured(a)) return {};
  const auto codes = absmax.host().span<const uint8_t>();
  const bool is_large = std::ranges::any_of(codes, [](uint8_t c) { return c >= kLargeExponent; });
  const bool is_nothing = std::ranges::all_of(codes, [](uint8_t c) { return c == 0; });
  if (!is_large && !is_nothing) return {};
  return bnb::check_e4m4_range(a.host().span(), a.format());
}

template <bool kVectors>
Status quantize(Call& call) {
  const Tensor a = call.tensor();
  const Tensor codebook = call.tensor();
  const int64_t k = call.integer();  // or p
  const bool nearest_scales = !kVectors && call.boolean();
  SUBBYTE_CHECK(call.check());
  if (a.count() == 0) return refuse(a, "at least one number");
  SUBBYTE_TRY(Tensor packed, call.result(0));
  SUBBYTE_TRY(Tensor absmax, call.result(1));
  const auto words = packed.span<uint32_t>();
  const auto scales = absmax.span<uint8_t>();
  if (!a.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(a));
    SUBBYTE_TRY(const BlocksThere to,
                blocks_there(packed, absmax, &codebook, Format::kE4M4, k, kVectors));
    SUBBYTE_CHECK(
        device::quantize_kbit(a.data(), a.format(), a.count(), to.blocks, nearest_scales, gpu));
    SUBBYTE_CHECK(check_scales_there(a, absmax));
  } else if (kVectors) {
    SUBBYTE_CHECK(bnb::quantize_vq(a.span(), a.format(), codebook.host().span<const uint16_t>(),
                                   bits_of(k), words, scales));
  } else {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(bnb::quantize_kbit(a.span(), a.format(), codebook.host().span<const float>(),
                                     bits_of(k), words, scales, machine.executor(),
                                     nearest_scales));
  }
  if (a.on_cpu()) SUBBYTE_CHECK(bnb::check_e4m4_range(a.span(), a.format()));
  SUBBYTE_CHECK(call.add(std::move(packed)));
  return call.add(std::move(absmax));
}

struct Dequantization {
  Codes codes;
  int64_t k;  // or p
  int64_t n;
  int32_t dtype;
};

/// Whole blocks of `n` numbers to the begin of `out`.
template <bool kVectors>
Status dequantize_to(const Dequantization& in, Tensor& out) {
  const int64_t count = whole_blocks(in.n);
  if (!out.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
    SUBBYTE_TRY(const BlocksThere from, in.codes.blocks(in.k, kVectors));
    return device::dequantize_kbit(from.blocks, count / bnb::kBlock, bnb::kBlock, false,
                                   out.format(), out.data(), gpu);
  }
  const auto bytes =
      out.span().first(static_cast<std::size_t>(count * info(out.format()).bits / 8));
  if (kVectors) {
    return bnb::dequantize_vq(in.codes.vq(in.k), in.n, out.format(), bytes);
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  return bnb::dequantize_kbit(in.codes.kbit(in.k), in.n, out.format(), bytes, machine.executor());
}

template <bool kVectors>
Status dequantize(Call& call) {
  const Dequantization in = {Codes(call, true), call.integer(), call.integer(), call.dtype()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(dequantize_to<kVectors>(in, out));
  return call.add(std::move(out));
}

/// Writes to the begin of a tensor that may be longer.
Status dequantize_kbit_to(Call& call) {
  const Dequantization in = {Codes(call, true), call.integer(), call.integer(), call.dtype()};
  SUBBYTE_CHECK(call.check());
  Tensor& out = call.out();
  SUBBYTE_CHECK(check_device(out, in.codes.packed));
  if (out.dtype() != in.dtype || !out.is_contiguous() || out.count() < whole_blocks(in.n)) {
    return refuse(out, "at least " + std::to_string(whole_blocks(in.n)) + " contiguous " +
                           std::string(name_of(in.dtype)));
  }
  return dequantize_to<false>(in, out);
}

struct Tiles {
  Codes codes;
  int64_t k;
  int64_t k_dim;
  int64_t n;
  int32_t dtype;
};

template <bool kVectors>
Status dequantize_tiled(Call& call) {
  const Tiles in = {Codes(call, true), call.integer(), call.integer(), call.integer(),
                    call.dtype()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_TRY(Tensor out, call.result());
  if (!out.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
    SUBBYTE_TRY(const BlocksThere from, in.codes.blocks(in.k, kVectors));
    SUBBYTE_CHECK(check_kbit_shape({in.n, in.k_dim, from.blocks.buffers.k, KbitOrder::kTiled}));
    SUBBYTE_CHECK(
        device::dequantize_kbit(from.blocks, in.n, in.k_dim, true, out.format(), out.data(), gpu));
  } else if (kVectors) {
    SUBBYTE_CHECK(
        bnb::dequantize_vq_tiled(in.codes.vq(in.k), in.k_dim, in.n, out.format(), out.span()));
  } else {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(bnb::dequantize_kbit_tiled(in.codes.kbit(in.k), in.k_dim, in.n, out.format(),
                                             out.span(), machine.executor()));
  }
  return call.add(std::move(out));
}

template <bool kVectors>
Status repack(Call& call) {
  const Tensor packed = call.tensor();
  const Tensor absmax = call.tensor();
  const int64_t k_dim = call.integer();
  const int64_t n = call.integer();
  const int64_t k = call.integer();
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_kbit_shape({n, k_dim, planes_of(k, kVectors), KbitOrder::kTiled}));
  SUBBYTE_TRY(Tensor words, call.result(0));
  SUBBYTE_TRY(Tensor scales, call.result(1));
  if (!packed.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(packed));
    SUBBYTE_TRY(const BlocksThere from,
                blocks_there(packed, absmax, nullptr, Format::kE4M4, k, kVectors));
    SUBBYTE_TRY(const BlocksThere to,
                blocks_there(words, scales, nullptr, Format::kE4M4, k, kVectors));
    SUBBYTE_CHECK(
        cuda::repack_kbit(from.blocks.buffers, to.blocks.buffers, n, k_dim, true, gpu.stream()));
  } else {
    const auto function = kVectors ? bnb::repack_vq : bnb::repack_kbit;
    SUBBYTE_CHECK(function(packed.span<const uint32_t>(), absmax.span<const uint8_t>(), k_dim, n,
                           bits_of(k), words.span<uint32_t>(), scales.span<uint8_t>()));
  }
  SUBBYTE_CHECK(call.add(std::move(words)));
  return call.add(std::move(scales));
}

Status rotate(Call& call) {
  Tensor data = call.tensor_as_it_is();
  const int64_t dim = call.integer();
  const std::optional<Tensor> signs = call.optional_tensor();
  SUBBYTE_CHECK(call.check());
  if (!data.is_contiguous()) return refuse(data, "a contiguous tensor");
  if (!data.on_cpu()) {
    SUBBYTE_CHECK(
        bnb::check_hadamard(data.count(), data.format(), dim, signs ? signs->count() : 0));
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(data));
    return cuda::run_hadamard({.data = data.data(),
                               .signs = signs ? signs->data<const uint32_t>() : nullptr,
                               .element = element_of(data.format()),
                               .runs = data.count() / dim,
                               .dim = static_cast<int32_t>(dim)},
                              gpu.stream());
  }
  return bnb::hadamard_rotate(data.span(), data.format(), dim,
                              signs ? signs->span<const uint32_t>() : std::span<const uint32_t>());
}

#define SUBBYTE_BLOCKS "(per(n, 32) + 1)"
#define SUBBYTE_QUANTIZED(planes) \
  "(Tensor{i32 [" SUBBYTE_BLOCKS " * " planes "]}, Tensor{u8 [" SUBBYTE_BLOCKS "]})"
#define SUBBYTE_FLAT(book, bits)                                                               \
  "(Tensor packed{i32}, Tensor codebook{anywhere " book "}, Tensor absmax" SUBBYTE_KBIT_SCALES \
  ", " bits ", int n{1..2^48}, ScalarType dtype{floats}"
#define SUBBYTE_TILED(book, bits)                                                              \
  "(Tensor packed{i32}, Tensor codebook{anywhere " book "}, Tensor absmax" SUBBYTE_KBIT_SCALES \
  ", " bits ", int K_dim{1..2^24}, int N{1..2^24}, ScalarType dtype{floats}"
#define SUBBYTE_REPACK(bits, planes)                                                            \
  "(Tensor packed_flat{i32}, Tensor absmax_flat{u8}, int K_dim{1..2^24}, int N{1..2^24}, " bits \
  ") -> (Tensor{i32 [(per(K_dim, 64) * (N // 128) * 256 + 1) * " planes                         \
  "]}, "                                                                                        \
  "Tensor{u8 [per(K_dim, 64) * (N // 128) * 256 + 1]})"
#define SUBBYTE_WHOLE "{dtype [up(n, 32)]}"
#define SUBBYTE_ROWS "{dtype [N, K_dim]}"

constexpr Operator kOperators[] = {
    {"quantize_kbit(Tensor A{floats (n=)}, Tensor codebook{anywhere f32}, " SUBBYTE_KBIT
     ", *, bool nearest_scales=False) -> " SUBBYTE_QUANTIZED("k"),
     quantize<false>},
    {"dequantize_kbit" SUBBYTE_FLAT("f32", SUBBYTE_KBIT) ") -> Tensor" SUBBYTE_WHOLE,
     dequantize<false>},
    {"dequantize_kbit_" SUBBYTE_FLAT("f32", SUBBYTE_KBIT) ", Tensor(a!) out{dtype}) -> ()",
     dequantize_kbit_to},
    {"dequantize_kbit_tiled" SUBBYTE_TILED("f32", SUBBYTE_KBIT) ") -> Tensor" SUBBYTE_ROWS,
     dequantize_tiled<false>},
    {"repack_kbit" SUBBYTE_REPACK(SUBBYTE_KBIT, "k"), repack<false>},
    {"dequantize_kbit_tiled_" SUBBYTE_TILED("f32", SUBBYTE_KBIT) ", Tensor(a!) out" SUBBYTE_ROWS
                                                                 ") -> ()",
     dequantize_tiled<false>},
    {"quantize_vq(Tensor A{floats (n=)}, Tensor codebook{anywhere f16}, " SUBBYTE_VQ
     ") -> " SUBBYTE_QUANTIZED("(8 // p)"),
     quantize<true>},
    {"dequantize_vq" SUBBYTE_FLAT("f16", SUBBYTE_VQ) ") -> Tensor" SUBBYTE_WHOLE, dequantize<true>},
    {"dequantize_vq_tiled" SUBBYTE_TILED("f16", SUBBYTE_VQ) ") -> Tensor" SUBBYTE_ROWS,
     dequantize_tiled<true>},
    {"dequantize_vq_" SUBBYTE_FLAT("f16", SUBBYTE_VQ) ", Tensor(a!) out" SUBBYTE_WHOLE ") -> ()",
     dequantize<true>},
    {"dequantize_vq_tiled_" SUBBYTE_TILED("f16", SUBBYTE_VQ) ", Tensor(a!) out" SUBBYTE_ROWS
                                                             ") -> ()",
     dequantize_tiled<true>},
    {"repack_vq" SUBBYTE_REPACK(SUBBYTE_VQ, "(8 // p)"), repack<true>},
    {"hadamard_rotate_(Tensor(a!) data{halves}, int block_size{32..256}, Tensor? signs{i32}=None) "
     "-> ()",
     rotate},
    {"hadamard_rotate_full_(Tensor(a!) data{halves}, int dim{512..8192}, Tensor? signs{i32}=None) "
     "-> ()",
     rotate},
};

}  // namespace

std::span<const Operator> kbit_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
