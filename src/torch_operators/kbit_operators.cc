// The kbit, vector and Hadamard operators of bitsandbytes' branch archive/kbit-gemv-v8 with their
// arguments, but for products.

#include <algorithm>
#include <array>

#include "bitsandbytes/hadamard.h"
#include "bitsandbytes/kbit_codes.h"
#include "kernels/cuda/ops/hadamard.h"
#include "torch_operators/kbit_tensors.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

Status check_number_type(int32_t dtype) {
  const Numbers& n = numbers();
  if (dtype == n.f32 || dtype == n.f16 || dtype == n.bf16) return {};
  return refuse("dtype", "f32, f16 or bf16", name_of(dtype));
}

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
Status quantize(Arguments& arguments, Results& results) {
  const Tensor a = arguments.packed_tensor("A");
  const Tensor codebook = arguments.packed_tensor("codebook");
  const int64_t k = arguments.integer();  // or p
  const bool nearest_scales = !kVectors && arguments.boolean();
  SUBBYTE_CHECK(check_floats(a));
  SUBBYTE_CHECK(check_dtype(codebook, {kVectors ? numbers().f16 : numbers().f32}));
  SUBBYTE_CHECK(kVectors ? check_p(k) : check_bits(k));
  if (a.count() == 0) return refuse(a, "at least one number");
  const int planes = planes_of(k, kVectors);
  Tensor packed =
      Tensor::empty(std::array{bnb::kbit_packed_words(a.count(), planes)}, numbers().i32, a);
  Tensor absmax = Tensor::empty(std::array{bnb::kbit_absmax_elements(a.count())}, numbers().u8, a);
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
  results.add(std::move(packed));
  results.add(std::move(absmax));
  return {};
}

struct Dequantization {
  explicit Dequantization(Arguments& arguments)
      : codes(arguments, true),
        k(arguments.integer()),
        n(arguments.integer()),
        dtype(arguments.dtype()) {}

  Status check() const {
    SUBBYTE_CHECK(check_number_type(dtype));
    return n >= 1 && n < int64_t{1} << 48 ? Status()
                                          : refuse("n", "1 or more numbers", std::to_string(n));
  }

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
    SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
    return bnb::dequantize_vq(codes, in.n, out.format(), bytes);
  }
  SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  return bnb::dequantize_kbit(codes, in.n, out.format(), bytes, machine.executor());
}

template <bool kVectors>
Status dequantize(Arguments& arguments, Results& results) {
  const Dequantization in(arguments);
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(Tensor out,
              results.result(std::array{whole_blocks(in.n)}, in.dtype, in.codes.packed));
  SUBBYTE_CHECK(dequantize_to<kVectors>(in, out));
  results.add(std::move(out));
  return {};
}

Status dequantize_kbit_out(Arguments& arguments, Results&) {
  const Dequantization in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_CHECK(in.check());
  SUBBYTE_CHECK(check_device(out, in.codes.packed));
  if (out.dtype() != in.dtype || !out.is_contiguous() || out.count() < whole_blocks(in.n)) {
    return refuse(out, "at least " + std::to_string(whole_blocks(in.n)) + " contiguous " +
                           std::string(name_of(in.dtype)));
  }
  return dequantize_to<false>(in, out);
}

struct Tiles {
  explicit Tiles(Arguments& arguments)
      : codes(arguments, true),
        k(arguments.integer()),
        k_dim(arguments.integer()),
        n(arguments.integer()),
        dtype(arguments.dtype()) {}

  Codes codes;
  int64_t k;
  int64_t k_dim;
  int64_t n;
  int32_t dtype;
};

template <bool kVectors>
Status dequantize_tiled(Arguments& arguments, Results& results) {
  const Tiles in(arguments);
  SUBBYTE_CHECK(check_number_type(in.dtype));
  SUBBYTE_CHECK(check_sizes_of(in.k_dim, in.n));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.n, in.k_dim}, in.dtype, in.codes.packed));
  if (!out.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
    SUBBYTE_TRY(const BlocksThere from, in.codes.blocks(in.k, kVectors));
    SUBBYTE_CHECK(check_kbit_shape({in.n, in.k_dim, from.blocks.buffers.k, KbitOrder::kTiled}));
    SUBBYTE_CHECK(
        device::dequantize_kbit(from.blocks, in.n, in.k_dim, true, out.format(), out.data(), gpu));
  } else if (kVectors) {
    SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
    SUBBYTE_CHECK(bnb::dequantize_vq_tiled(codes, in.k_dim, in.n, out.format(), out.span()));
  } else {
    SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(bnb::dequantize_kbit_tiled(codes, in.k_dim, in.n, out.format(), out.span(),
                                             machine.executor()));
  }
  results.add(std::move(out));
  return {};
}

template <bool kVectors>
Status repack(Arguments& arguments, Results& results) {
  const Tensor packed = arguments.packed_tensor("packed_flat");
  const Tensor absmax = arguments.packed_tensor("absmax_flat");
  const int64_t k_dim = arguments.integer();
  const int64_t n = arguments.integer();
  const int64_t k = arguments.integer();
  SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
  SUBBYTE_CHECK(check_dtype(absmax, {numbers().u8}));
  SUBBYTE_CHECK(kVectors ? check_p(k) : check_bits(k));
  SUBBYTE_CHECK(check_sizes_of(k_dim, n));
  const int planes = planes_of(k, kVectors);
  const KbitShape tiled = {n, k_dim, planes, KbitOrder::kTiled};
  SUBBYTE_CHECK(check_kbit_shape(tiled));
  const int64_t blocks = kbit_blocks(tiled) + 1;
  Tensor words = Tensor::empty(std::array{blocks * planes}, numbers().i32, packed);
  Tensor scales = Tensor::empty(std::array{blocks}, numbers().u8, packed);
  if (!packed.on_cpu()) {
    SUBBYTE_CHECK(check_device(absmax, packed));
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
  results.add(std::move(words));
  results.add(std::move(scales));
  return {};
}

template <int64_t kLeast, int64_t kMost>
Status rotate(Arguments& arguments, Results&) {
  Tensor data = arguments.tensor("data");
  const int64_t dim = arguments.integer();
  const std::optional<Tensor> signs = arguments.optional_tensor("signs");
  SUBBYTE_CHECK(check_dtype(data, {numbers().f16, numbers().bf16}));
  if (!data.is_contiguous()) return refuse(data, "a contiguous tensor");
  if (dim < kLeast || dim > kMost) {
    return refuse("dim", std::to_string(kLeast) + " to " + std::to_string(kMost),
                  std::to_string(dim));
  }
  if (signs) SUBBYTE_CHECK(check_dtype(*signs, {numbers().i32}));
  if (!data.on_cpu()) {
    if (signs) SUBBYTE_CHECK(check_device(*signs, data));
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

#define SUBBYTE_OUT ", Tensor(a!) out"

constexpr Operator kOperators[] = {
    on_both("quantize_kbit(Tensor A, Tensor codebook, int k, *, bool nearest_scales=False) -> "
            "(Tensor, Tensor)",
            kernel<quantize<false>>),
    on_both("dequantize_kbit(Tensor packed, Tensor codebook, Tensor absmax, int k, int n, "
            "ScalarType dtype) -> Tensor",
            kernel<dequantize<false>>),
    on_both("dequantize_kbit_(Tensor packed, Tensor codebook, Tensor absmax, int k, int n, "
            "ScalarType dtype, Tensor(a!) out) -> ()",
            kernel<dequantize_kbit_out>),
    on_both(
        "dequantize_kbit_tiled(Tensor packed, Tensor codebook, Tensor absmax, int k, int K_dim, "
        "int N, ScalarType dtype) -> Tensor",
        kernel<dequantize_tiled<false>>),
    on_both("repack_kbit(Tensor packed_flat, Tensor absmax_flat, int K_dim, int N, int k) -> "
            "(Tensor, Tensor)",
            kernel<repack<false>>),
    on_both(
        "dequantize_kbit_tiled_(Tensor packed, Tensor codebook, Tensor absmax, int k, int K_dim, "
        "int N, ScalarType dtype" SUBBYTE_OUT ") -> ()",
        kernel_out<dequantize_tiled<false>, 7>),
    on_both("quantize_vq(Tensor A, Tensor codebook, int p) -> (Tensor, Tensor)",
            kernel<quantize<true>>),
    on_both("dequantize_vq(Tensor packed, Tensor codebook, Tensor absmax, int p, int n, "
            "ScalarType dtype) -> Tensor",
            kernel<dequantize<true>>),
    on_both("dequantize_vq_tiled(Tensor packed, Tensor codebook, Tensor absmax, int p, int K_dim, "
            "int N, "
            "ScalarType dtype) -> Tensor",
            kernel<dequantize_tiled<true>>),
    on_both("dequantize_vq_(Tensor packed, Tensor codebook, Tensor absmax, int p, int n, "
            "ScalarType dtype" SUBBYTE_OUT ") -> ()",
            kernel_out<dequantize<true>, 6>),
    on_both("dequantize_vq_tiled_(Tensor packed, Tensor codebook, Tensor absmax, int p, int K_dim, "
            "int N, "
            "ScalarType dtype" SUBBYTE_OUT ") -> ()",
            kernel_out<dequantize_tiled<true>, 7>),
    on_both("repack_vq(Tensor packed_flat, Tensor absmax_flat, int K_dim, int N, int p) -> "
            "(Tensor, Tensor)",
            kernel<repack<true>>),
    on_both("hadamard_rotate_(Tensor(a!) data, int block_size, Tensor? signs=None) -> ()",
            kernel<rotate<32, 256>>),
    on_both("hadamard_rotate_full_(Tensor(a!) data, int dim, Tensor? signs=None) -> ()",
            kernel<rotate<512, 8192>>),
};

}  // namespace

std::span<const Operator> kbit_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
