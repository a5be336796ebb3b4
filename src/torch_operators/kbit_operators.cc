// The kbit, vector and Hadamard operators of bitsandbytes' branch archive/kbit-gemv-v8 with their
// arguments (bitsandbytes/kbit.h, vq.h, hadamard.h).

#include "bitsandbytes/kbit.h"

#include <algorithm>
#include <array>

#include "bitsandbytes/hadamard.h"
#include "bitsandbytes/kbit_codes.h"
#include "bitsandbytes/vq.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

namespace bnb = subbyte::bitsandbytes;

/// Bits of codes, a small number whatever the caller says.
int bits_of(int64_t k) {
  return static_cast<int>(std::clamp<int64_t>(k, -1, 64));
}

Status check_bits(int64_t k) {
  return k >= 2 && k <= 5 ? Status() : refuse("k", "2 to 5", std::to_string(k));
}
Status check_p(int64_t p) {
  return p == 2 || p == 4 ? Status() : refuse("p", "2 or 4", std::to_string(p));
}

/// E4M4 bytes, f16 or f32.
Result<Format> scale_type(const Tensor& absmax) {
  SUBBYTE_CHECK(check_dtype(absmax, {numbers().u8, numbers().f16, numbers().f32}));
  return absmax.dtype() == numbers().u8 ? Format::kE4M4 : absmax.format();
}

Status check_sizes_of(int64_t k_dim, int64_t n) {
  constexpr int64_t kMost = int64_t{1} << 24;
  if (k_dim >= 1 && n >= 1 && k_dim <= kMost && n <= kMost) return {};
  return refuse("K_dim and N", "1 to 2^24", std::to_string(k_dim) + " and " + std::to_string(n));
}

/// packed, absmax and a codebook in the order of `codebook_first`, which operators differ in.
struct Codes {
  Codes(Arguments& arguments, bool codebook_first)
      : packed(arguments.packed_tensor("packed")),
        second(arguments.packed_tensor(codebook_first ? "codebook" : "absmax")),
        third(arguments.packed_tensor(codebook_first ? "absmax" : "codebook")),
        codebook(codebook_first ? second : third),
        absmax(codebook_first ? third : second) {}

  Result<bnb::KbitCodes> kbit(int64_t k) const {
    SUBBYTE_CHECK(check_bits(k));
    SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
    SUBBYTE_CHECK(check_dtype(codebook, {numbers().f32}));
    SUBBYTE_TRY(const Format scale, scale_type(absmax));
    return bnb::KbitCodes{packed.host().span<const uint32_t>(), absmax.host().span(),
                          codebook.host().span<const float>(), bits_of(k), scale};
  }
  Result<bnb::VqCodes> vq(int64_t p) const {
    SUBBYTE_CHECK(check_p(p));
    SUBBYTE_CHECK(check_dtype(packed, {numbers().i32}));
    SUBBYTE_CHECK(check_dtype(codebook, {numbers().f16}));
    SUBBYTE_TRY(const Format scale, scale_type(absmax));
    return bnb::VqCodes{packed.span<const uint32_t>(), absmax.span(),
                        codebook.span<const uint16_t>(), static_cast<int>(p), scale};
  }

  Tensor packed;
  Tensor second;
  Tensor third;
  const Tensor& codebook;
  const Tensor& absmax;
};

Status check_number_type(int32_t dtype) {
  const Numbers& n = numbers();
  if (dtype == n.f32 || dtype == n.f16 || dtype == n.bf16) return {};
  return refuse("dtype", "f32, f16 or bf16", name_of(dtype));
}

int64_t whole_blocks(int64_t n) {
  return (n + bnb::kBlock - 1) / bnb::kBlock * bnb::kBlock;
}

Status quantize_kbit(Arguments& arguments, Results& results) {
  const Tensor a = arguments.packed_tensor("A");
  const Tensor codebook = arguments.packed_tensor("codebook");
  const int64_t k = arguments.integer();
  SUBBYTE_CHECK(check_floats(a));
  SUBBYTE_CHECK(check_dtype(codebook, {numbers().f32}));
  SUBBYTE_CHECK(check_bits(k));
  Tensor packed =
      Tensor::empty(std::array{bnb::kbit_packed_words(a.count(), bits_of(k))}, numbers().i32, a);
  Tensor absmax = Tensor::empty(std::array{bnb::kbit_absmax_elements(a.count())}, numbers().u8, a);
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_CHECK(bnb::quantize_kbit(a.span(), a.format(), codebook.span<const float>(), bits_of(k),
                                   packed.span<uint32_t>(), absmax.span<uint8_t>(),
                                   machine.executor()));
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

Status dequantize_kbit(Arguments& arguments, Results& results) {
  const Dequantization in(arguments);
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
  Tensor out = Tensor::empty(std::array{whole_blocks(in.n)}, in.dtype, in.codes.packed);
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_CHECK(bnb::dequantize_kbit(codes, in.n, out.format(), out.span(), machine.executor()));
  results.add(std::move(out));
  return {};
}

Status dequantize_kbit_out(Arguments& arguments, Results&) {
  const Dequantization in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
  if (out.dtype() != in.dtype || !out.is_contiguous() || out.count() < whole_blocks(in.n)) {
    return refuse(out, "at least " + std::to_string(whole_blocks(in.n)) + " contiguous " +
                           std::string(name_of(in.dtype)));
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const int64_t bytes = whole_blocks(in.n) * info(out.format()).bits / 8;
  return bnb::dequantize_kbit(codes, in.n, out.format(),
                              out.span().first(static_cast<std::size_t>(bytes)),
                              machine.executor());
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

Status dequantize_kbit_tiled(Arguments& arguments, Results& results) {
  const Tiles in(arguments);
  SUBBYTE_CHECK(check_number_type(in.dtype));
  SUBBYTE_CHECK(check_sizes_of(in.k_dim, in.n));
  SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.n, in.k_dim}, in.dtype, in.codes.packed));
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  SUBBYTE_CHECK(bnb::dequantize_kbit_tiled(codes, in.k_dim, in.n, out.format(), out.span(),
                                           machine.executor()));
  results.add(std::move(out));
  return {};
}

Status dequantize_vq(Arguments& arguments, Results& results) {
  const Dequantization in(arguments);
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
  SUBBYTE_TRY(Tensor out,
              results.result(std::array{whole_blocks(in.n)}, in.dtype, in.codes.packed));
  SUBBYTE_CHECK(bnb::dequantize_vq(codes, in.n, out.format(), out.span()));
  results.add(std::move(out));
  return {};
}

Status dequantize_vq_tiled(Arguments& arguments, Results& results) {
  const Tiles in(arguments);
  SUBBYTE_CHECK(check_number_type(in.dtype));
  SUBBYTE_CHECK(check_sizes_of(in.k_dim, in.n));
  SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.n, in.k_dim}, in.dtype, in.codes.packed));
  SUBBYTE_CHECK(bnb::dequantize_vq_tiled(codes, in.k_dim, in.n, out.format(), out.span()));
  results.add(std::move(out));
  return {};
}

Status quantize_vq(Arguments& arguments, Results& results) {
  const Tensor a = arguments.packed_tensor("A");
  const Tensor codebook = arguments.packed_tensor("codebook");
  const int64_t p = arguments.integer();
  SUBBYTE_CHECK(check_floats(a));
  SUBBYTE_CHECK(check_dtype(codebook, {numbers().f16}));
  SUBBYTE_CHECK(check_p(p));
  const int planes = static_cast<int>(8 / p);
  Tensor packed =
      Tensor::empty(std::array{bnb::kbit_packed_words(a.count(), planes)}, numbers().i32, a);
  Tensor absmax = Tensor::empty(std::array{bnb::kbit_absmax_elements(a.count())}, numbers().u8, a);
  SUBBYTE_CHECK(bnb::quantize_vq(a.span(), a.format(), codebook.span<const uint16_t>(),
                                 static_cast<int>(p), packed.span<uint32_t>(),
                                 absmax.span<uint8_t>()));
  results.add(std::move(packed));
  results.add(std::move(absmax));
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
  const int planes = kVectors ? static_cast<int>(8 / k) : bits_of(k);
  const KbitShape tiled = {n, k_dim, planes, KbitOrder::kTiled};
  SUBBYTE_CHECK(check_kbit_shape(tiled));
  const int64_t blocks = kbit_blocks(tiled) + 1;
  Tensor words = Tensor::empty(std::array{blocks * planes}, numbers().i32, packed);
  Tensor scales = Tensor::empty(std::array{blocks}, numbers().u8, packed);
  const auto function = kVectors ? bnb::repack_vq : bnb::repack_kbit;
  SUBBYTE_CHECK(function(packed.span<const uint32_t>(), absmax.span<const uint8_t>(), k_dim, n,
                         bits_of(k), words.span<uint32_t>(), scales.span<uint8_t>()));
  results.add(std::move(words));
  results.add(std::move(scales));
  return {};
}

// ---- products --------------------------------------------------------------------------------

struct Product {
  explicit Product(Arguments& arguments)
      : a(arguments.packed_tensor("A")),
        codes(arguments, false),
        k_dim(arguments.integer()),
        n(arguments.integer()),
        k(arguments.integer()) {}

  Status check() const {
    SUBBYTE_CHECK(check_dtype(a, {numbers().f16, numbers().bf16}));
    SUBBYTE_CHECK(check_dim(a, 2));
    SUBBYTE_CHECK(check_sizes_of(k_dim, n));
    return check_sizes(a, {a.size(0), k_dim});
  }
  std::array<const Tensor*, 3> sources() const {
    return {&codes.packed, &codes.absmax, &codes.codebook};
  }

  Tensor a;
  Codes codes;
  int64_t k_dim;
  int64_t n;
  int64_t k;
};

Status multiply_kbit(const Product& in, KbitOrder order, Results& results) {
  // On a GPU the codes are checked when they are fetched, at the first call.
  if (in.a.on_cpu()) SUBBYTE_CHECK(in.codes.kbit(in.k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.a.size(0), in.n}, in.a.dtype(), in.a));
  const Recipe recipe = {
      order == KbitOrder::kTiled ? "kbit tiled" : "kbit flat", {in.n, in.k_dim, in.k}, {}};
  const auto make = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(const bnb::KbitCodes codes, in.codes.kbit(in.k));
    return bnb::to_matrix(codes, {in.n, in.k_dim, codes.k, order});
  };
  SUBBYTE_CHECK(multiply_kept(in.a, recipe, in.sources(), make, std::nullopt, out));
  results.add(std::move(out));
  return {};
}

Status kbit_gemm_prod(Arguments& arguments, Results& results) {
  const Product in(arguments);
  arguments.integer();  // k_chunks chooses nothing
  SUBBYTE_CHECK(in.check());
  return multiply_kbit(in, KbitOrder::kTiled, results);
}

template <KbitOrder kOrder>
Status kbit_scalar_gemv(Arguments& arguments, Results& results) {
  const Product in(arguments);
  SUBBYTE_CHECK(in.check());
  SUBBYTE_CHECK(bnb::check_scalar_rows(in.a.size(0)));
  return multiply_kbit(in, kOrder, results);
}

bnb::KbitProduct product_of(const Product& in, Tensor& out) {
  return {in.a.span(), out.span(), in.a.format(), in.k_dim, in.n};
}

Status kbit_grouped_gemm(Arguments& arguments, Results& results) {
  Tensor a = arguments.packed_tensor("A_concat");
  const Codes tensors(arguments, false);
  const Tensor offsets = arguments.packed_tensor("expert_offsets");
  const int64_t k_dim = arguments.integer();
  const int64_t n = arguments.integer();
  const int64_t k = arguments.integer();
  const int64_t num_experts = arguments.integer();
  arguments.integer();  // max_M chooses nothing
  SUBBYTE_CHECK(check_dtype(a, {numbers().f16, numbers().bf16}));
  SUBBYTE_CHECK(check_dim(a, 2));
  SUBBYTE_CHECK(check_sizes_of(k_dim, n));
  SUBBYTE_CHECK(check_sizes(a, {a.size(0), k_dim}));
  SUBBYTE_CHECK(check_dtype(offsets, {numbers().i32}));
  SUBBYTE_CHECK(check_sizes(offsets, {num_experts + 1}));
  SUBBYTE_TRY(const bnb::KbitCodes codes, tensors.kbit(k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{a.size(0), n}, a.dtype(), a));
  if (a.count() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(bnb::kbit_grouped_gemm({a.span(), out.span(), a.format(), k_dim, n}, codes,
                                         offsets.span<const int32_t>(), machine.executor()));
  }
  results.add(std::move(out));
  return {};
}

template <bool kTiled, bool kHasChunks = kTiled>
Status multiply_vq(Arguments& arguments, Results& results) {
  const Product in(arguments);
  if (kHasChunks) arguments.integer();  // k_chunks chooses nothing
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.a.size(0), in.n}, in.a.dtype(), in.a));
  if (in.a.count() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    const auto function = kTiled ? bnb::vq_gemm_prod : bnb::vq_scalar_gemv;
    SUBBYTE_CHECK(function(product_of(in, out), codes, machine.executor()));
  }
  results.add(std::move(out));
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
  return bnb::hadamard_rotate(data.span(), data.format(), dim,
                              signs ? signs->span<const uint32_t>() : std::span<const uint32_t>());
}

#define SUBBYTE_PRODUCT \
  "Tensor A, Tensor B_packed, Tensor B_absmax, Tensor codebook, int K_dim, int N"
#define SUBBYTE_OUT ", Tensor(a!) out"
// Hints and scratch of kernels that divide K.
#define SUBBYTE_SCRATCH ", Tensor C_workspace, Tensor tile_counters"

template <KbitOrder kOrder>
constexpr Kernel kGemvOut = kernel_out<kbit_scalar_gemv<kOrder>, 7>;

constexpr Operator kOperators[] = {
    {"quantize_kbit(Tensor A, Tensor codebook, int k) -> (Tensor, Tensor)", kernel<quantize_kbit>},
    {"dequantize_kbit(Tensor packed, Tensor codebook, Tensor absmax, int k, int n, "
     "ScalarType dtype) -> Tensor",
     kernel<dequantize_kbit>},
    {"dequantize_kbit_(Tensor packed, Tensor codebook, Tensor absmax, int k, int n, "
     "ScalarType dtype, Tensor(a!) out) -> ()",
     kernel<dequantize_kbit_out>},
    {"dequantize_kbit_tiled(Tensor packed, Tensor codebook, Tensor absmax, int k, int K_dim, "
     "int N, ScalarType dtype) -> Tensor",
     kernel<dequantize_kbit_tiled>},
    {"repack_kbit(Tensor packed_flat, Tensor absmax_flat, int K_dim, int N, int k) -> "
     "(Tensor, Tensor)",
     kernel<repack<false>>},
    {"dequantize_kbit_tiled_(Tensor packed, Tensor codebook, Tensor absmax, int k, int K_dim, "
     "int N, ScalarType dtype" SUBBYTE_OUT ") -> ()",
     kernel_out<dequantize_kbit_tiled, 7>},
    {"kbit_gemm_prod(" SUBBYTE_PRODUCT ", int k, int k_chunks) -> Tensor", kernel<kbit_gemm_prod>,
     kernel<kbit_gemm_prod>},
    {"kbit_gemm_prod_(" SUBBYTE_PRODUCT ", int k, int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH
     ") -> ()",
     kernel_out<kbit_gemm_prod, 8, 2>, kernel_out<kbit_gemm_prod, 8, 2>},
    {"kbit_scalar_gemv.out(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
     kGemvOut<KbitOrder::kFlat>, kGemvOut<KbitOrder::kFlat>},
    {"kbit_scalar_gemv_tiled_(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
     kGemvOut<KbitOrder::kTiled>, kGemvOut<KbitOrder::kTiled>},
    {"kbit_scalar_gemv_v2_(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
     kGemvOut<KbitOrder::kTiled>, kGemvOut<KbitOrder::kTiled>},
    {"kbit_scalar_gemv(" SUBBYTE_PRODUCT ", int k) -> Tensor",
     kernel<kbit_scalar_gemv<KbitOrder::kFlat>>, kernel<kbit_scalar_gemv<KbitOrder::kFlat>>},
    {"kbit_scalar_gemv_tiled(" SUBBYTE_PRODUCT ", int k) -> Tensor",
     kernel<kbit_scalar_gemv<KbitOrder::kTiled>>, kernel<kbit_scalar_gemv<KbitOrder::kTiled>>},
    {"kbit_grouped_gemm(Tensor A_concat, Tensor B_packed_all, Tensor B_absmax_all, "
     "Tensor codebook, Tensor expert_offsets, int K_dim, int N, int k, int num_experts, "
     "int max_M) -> Tensor",
     kernel<kbit_grouped_gemm>},
    {"kbit_grouped_gemm_(Tensor A_concat, Tensor B_packed_all, Tensor B_absmax_all, "
     "Tensor codebook, Tensor expert_offsets, int K_dim, int N, int k, int num_experts, "
     "int max_M" SUBBYTE_OUT SUBBYTE_SCRATCH ") -> ()",
     kernel_out<kbit_grouped_gemm, 10, 2>},
    {"quantize_vq(Tensor A, Tensor codebook, int p) -> (Tensor, Tensor)", kernel<quantize_vq>},
    {"dequantize_vq(Tensor packed, Tensor codebook, Tensor absmax, int p, int n, "
     "ScalarType dtype) -> Tensor",
     kernel<dequantize_vq>},
    {"dequantize_vq_tiled(Tensor packed, Tensor codebook, Tensor absmax, int p, int K_dim, int N, "
     "ScalarType dtype) -> Tensor",
     kernel<dequantize_vq_tiled>},
    {"dequantize_vq_(Tensor packed, Tensor codebook, Tensor absmax, int p, int n, "
     "ScalarType dtype" SUBBYTE_OUT ") -> ()",
     kernel_out<dequantize_vq, 6>},
    {"dequantize_vq_tiled_(Tensor packed, Tensor codebook, Tensor absmax, int p, int K_dim, int N, "
     "ScalarType dtype" SUBBYTE_OUT ") -> ()",
     kernel_out<dequantize_vq_tiled, 7>},
    {"repack_vq(Tensor packed_flat, Tensor absmax_flat, int K_dim, int N, int p) -> "
     "(Tensor, Tensor)",
     kernel<repack<true>>},
    {"vq_gemm_prod(" SUBBYTE_PRODUCT ", int p, int k_chunks) -> Tensor", kernel<multiply_vq<true>>},
    {"vq_gemm_prod_(" SUBBYTE_PRODUCT ", int p, int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH ") -> ()",
     kernel_out<multiply_vq<true>, 8, 2>},
    {"vq_scalar_gemv(" SUBBYTE_PRODUCT ", int p) -> Tensor", kernel<multiply_vq<false>>},
    {"vq_scalar_gemv.out(" SUBBYTE_PRODUCT ", int p" SUBBYTE_OUT ") -> ()",
     kernel_out<multiply_vq<false>, 7>},
    {"vq_scalar_gemv_tiled(" SUBBYTE_PRODUCT ", int p) -> Tensor",
     kernel<multiply_vq<true, false>>},
    {"vq_scalar_gemv_tiled_(" SUBBYTE_PRODUCT ", int p" SUBBYTE_OUT ") -> ()",
     kernel_out<multiply_vq<true, false>, 7>},
    {"hadamard_rotate_(Tensor(a!) data, int block_size, Tensor? signs=None) -> ()",
     kernel<rotate<32, 256>>},
    {"hadamard_rotate_full_(Tensor(a!) data, int dim, Tensor? signs=None) -> ()",
     kernel<rotate<512, 8192>>},
};

}  // namespace

std::span<const Operator> kbit_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
