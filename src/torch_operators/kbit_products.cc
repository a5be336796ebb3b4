// The products of bitsandbytes' branch archive/kbit-gemv-v8 with kbit and vector codes, with their
// arguments.

#include <array>

#include "bitsandbytes/kbit_codes.h"
#include "torch_operators/kbit_tensors.h"
#include "torch_operators/product.h"
#include "torch_operators/products_on_gpu.h"

namespace subbyte::torch_operators {
namespace {

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

/// Products of experts one by one, whose rows the host has to know.
Status multiply_groups_on_gpu(const Tensor& a, const Codes& tensors, const Tensor& offsets,
                              const KbitShape& shape, Tensor& out) {
  for (const Tensor* tensor : {&tensors.packed, &tensors.absmax, &tensors.codebook, &offsets}) {
    SUBBYTE_CHECK(check_device(*tensor, a));
  }
  const Tensor host = offsets.to_cpu();
  const auto rows = host.span<const int32_t>();
  SUBBYTE_CHECK(bnb::check_offsets(rows, a.size(0)));
  const std::array sources = {&tensors.packed, &tensors.absmax, &tensors.codebook};
  for (int64_t e = 0; e + 1 < std::ssize(rows); ++e) {
    const auto at = static_cast<std::size_t>(e);
    const auto make = [&]() -> Result<Matrix> {
      SUBBYTE_TRY(const bnb::KbitCodes codes, tensors.kbit(shape.bits));
      return bnb::to_matrix(codes, shape, e * kbit_blocks(shape));
    };
    SUBBYTE_CHECK(
        multiply_on_gpu(a, rows[at], rows[at + 1] - rows[at],
                        {"kbit of an expert", {shape.rows, shape.cols, shape.bits, e}, {}}, sources,
                        make, std::nullopt, out));
  }
  return {};
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
  SUBBYTE_CHECK(check_bits(k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{a.size(0), n}, a.dtype(), a));
  if (!a.on_cpu()) {
    const KbitShape shape = {n, k_dim, bits_of(k), KbitOrder::kTiled};
    SUBBYTE_CHECK(multiply_groups_on_gpu(a, tensors, offsets, shape, out));
  } else if (a.count() > 0) {
    SUBBYTE_TRY(const bnb::KbitCodes codes, tensors.kbit(k));
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
  if (!kTiled) SUBBYTE_CHECK(bnb::check_scalar_rows(in.a.size(0)));
  // On a GPU the codes are checked when they are fetched, at the first call.
  if (in.a.on_cpu()) SUBBYTE_CHECK(in.codes.vq(in.k));
  SUBBYTE_TRY(Tensor out, results.result(std::array{in.a.size(0), in.n}, in.a.dtype(), in.a));
  const auto make = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(const bnb::VqCodes codes, in.codes.vq(in.k));
    return bnb::to_matrix(codes, in.n, in.k_dim, kTiled ? KbitOrder::kTiled : KbitOrder::kFlat);
  };
  const Recipe recipe = {kTiled ? "vq tiled" : "vq flat", {in.n, in.k_dim, in.k}, {}};
  SUBBYTE_CHECK(multiply_kept(in.a, recipe, in.sources(), make, std::nullopt, out));
  results.add(std::move(out));
  return {};
}

#define SUBBYTE_PRODUCT \
  "Tensor A, Tensor B_packed, Tensor B_absmax, Tensor codebook, int K_dim, int N"
#define SUBBYTE_OUT ", Tensor(a!) out"
// Hints and scratch of kernels that divide K.
#define SUBBYTE_SCRATCH ", Tensor C_workspace, Tensor tile_counters"

template <KbitOrder kOrder>
constexpr Kernel kGemvOut = kernel_out<kbit_scalar_gemv<kOrder>, 7>;

constexpr Operator kOperators[] = {
    on_both("kbit_gemm_prod(" SUBBYTE_PRODUCT ", int k, int k_chunks) -> Tensor",
            kernel<kbit_gemm_prod>),
    on_both("kbit_gemm_prod_(" SUBBYTE_PRODUCT ", int k, int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH
            ") -> ()",
            kernel_out<kbit_gemm_prod, 8, 2>),
    on_both("kbit_scalar_gemv.out(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
            kGemvOut<KbitOrder::kFlat>),
    on_both("kbit_scalar_gemv_tiled_(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
            kGemvOut<KbitOrder::kTiled>),
    on_both("kbit_scalar_gemv_v2_(" SUBBYTE_PRODUCT ", int k" SUBBYTE_OUT ") -> ()",
            kGemvOut<KbitOrder::kTiled>),
    on_both("kbit_scalar_gemv(" SUBBYTE_PRODUCT ", int k) -> Tensor",
            kernel<kbit_scalar_gemv<KbitOrder::kFlat>>),
    on_both("kbit_scalar_gemv_tiled(" SUBBYTE_PRODUCT ", int k) -> Tensor",
            kernel<kbit_scalar_gemv<KbitOrder::kTiled>>),
    on_both("kbit_grouped_gemm(Tensor A_concat, Tensor B_packed_all, Tensor B_absmax_all, "
            "Tensor codebook, Tensor expert_offsets, int K_dim, int N, int k, int num_experts, "
            "int max_M) -> Tensor",
            kernel<kbit_grouped_gemm>),
    on_both("kbit_grouped_gemm_(Tensor A_concat, Tensor B_packed_all, Tensor B_absmax_all, "
            "Tensor codebook, Tensor expert_offsets, int K_dim, int N, int k, int num_experts, "
            "int max_M" SUBBYTE_OUT SUBBYTE_SCRATCH ") -> ()",
            kernel_out<kbit_grouped_gemm, 10, 2>),
    on_both("vq_gemm_prod(" SUBBYTE_PRODUCT ", int p, int k_chunks) -> Tensor",
            kernel<multiply_vq<true>>),
    on_both("vq_gemm_prod_(" SUBBYTE_PRODUCT ", int p, int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH
            ") -> ()",
            kernel_out<multiply_vq<true>, 8, 2>),
    on_both("vq_scalar_gemv(" SUBBYTE_PRODUCT ", int p) -> Tensor", kernel<multiply_vq<false>>),
    on_both("vq_scalar_gemv.out(" SUBBYTE_PRODUCT ", int p" SUBBYTE_OUT ") -> ()",
            kernel_out<multiply_vq<false>, 7>),
    on_both("vq_scalar_gemv_tiled(" SUBBYTE_PRODUCT ", int p) -> Tensor",
            kernel<multiply_vq<true, false>>),
    on_both("vq_scalar_gemv_tiled_(" SUBBYTE_PRODUCT ", int p" SUBBYTE_OUT ") -> ()",
            kernel_out<multiply_vq<true, false>, 7>),
};

}  // namespace

std::span<const Operator> kbit_products() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
