// The products of bitsandbytes' branch archive/kbit-gemv-v8 with kbit and vector codes, with their
// call.

#include <array>

#include "codebook/kbit_codes.h"
#include "torch_operators/kbit_tensors.h"
#include "torch_operators/product.h"
#include "torch_operators/products_on_gpu.h"

namespace subbyte::torch_operators {
namespace {

struct Product {
  std::array<const Tensor*, 3> sources() const {
    return {&codes.packed, &codes.absmax, &codes.codebook};
  }

  Tensor a;
  Codes codes;
  int64_t k_dim;
  int64_t n;
  int64_t k;
};

Status multiply_kbit(const Product& in, KbitOrder order, Call& call) {
  SUBBYTE_TRY(Tensor out, call.result());
  const Recipe recipe = {
      order == KbitOrder::kTiled ? "kbit tiled" : "kbit flat", {in.n, in.k_dim, in.k}, {}};
  const auto make = [&]() -> Result<Matrix> {
    return bnb::to_matrix(in.codes.kbit(in.k), {in.n, in.k_dim, bits_of(in.k), order});
  };
  SUBBYTE_CHECK(multiply_kept(in.a, recipe, in.sources(), make, std::nullopt, out));
  return call.add(std::move(out));
}

Status kbit_gemm_prod(Call& call) {
  const Product in = {call.tensor(), Codes(call, false), call.integer(), call.integer(),
                      call.integer()};
  SUBBYTE_CHECK(call.check());
  return multiply_kbit(in, KbitOrder::kTiled, call);
}

template <KbitOrder kOrder>
Status kbit_scalar_gemv(Call& call) {
  const Product in = {call.tensor(), Codes(call, false), call.integer(), call.integer(),
                      call.integer()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(bnb::check_scalar_rows(in.a.size(0)));
  return multiply_kbit(in, kOrder, call);
}

/// Products of experts one by one, whose rows the host has to know.
Status multiply_groups_on_gpu(const Tensor& a, const Codes& tensors, const Tensor& offsets,
                              const KbitShape& shape, Tensor& out) {
  const Tensor host = offsets.to_cpu();
  const auto rows = host.span<const int32_t>();
  SUBBYTE_CHECK(bnb::check_offsets(rows, a.size(0)));
  const std::array sources = {&tensors.packed, &tensors.absmax, &tensors.codebook};
  for (int64_t e = 0; e + 1 < std::ssize(rows); ++e) {
    const auto at = static_cast<std::size_t>(e);
    const auto make = [&]() -> Result<Matrix> {
      return bnb::to_matrix(tensors.kbit(shape.bits), shape, e * kbit_blocks(shape));
    };
    SUBBYTE_CHECK(
        multiply_on_gpu(a, rows[at], rows[at + 1] - rows[at],
                        {"kbit of an expert", {shape.rows, shape.cols, shape.bits, e}, {}}, sources,
                        make, std::nullopt, out));
  }
  return {};
}

Status kbit_grouped_gemm(Call& call) {
  Tensor a = call.tensor();
  const Codes tensors(call, false);
  const Tensor offsets = call.tensor();
  const int64_t k_dim = call.integer();
  const int64_t n = call.integer();
  const int64_t k = call.integer();
  call.skip();  // num_experts
  SUBBYTE_CHECK(call.check());
  SUBBYTE_TRY(Tensor out, call.result());
  if (!a.on_cpu()) {
    const KbitShape shape = {n, k_dim, bits_of(k), KbitOrder::kTiled};
    SUBBYTE_CHECK(multiply_groups_on_gpu(a, tensors, offsets, shape, out));
  } else if (a.count() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    SUBBYTE_CHECK(bnb::kbit_grouped_gemm({a.span(), out.span(), a.format(), k_dim, n},
                                         tensors.kbit(k), offsets.span<const int32_t>(),
                                         machine.executor()));
  }
  return call.add(std::move(out));
}

template <bool kTiled>
Status multiply_vq(Call& call) {
  const Product in = {call.tensor(), Codes(call, false), call.integer(), call.integer(),
                      call.integer()};
  SUBBYTE_CHECK(call.check());
  if (!kTiled) SUBBYTE_CHECK(bnb::check_scalar_rows(in.a.size(0)));
  SUBBYTE_TRY(Tensor out, call.result());
  const auto make = [&]() -> Result<Matrix> {
    return bnb::to_matrix(in.codes.vq(in.k), in.n, in.k_dim,
                          kTiled ? KbitOrder::kTiled : KbitOrder::kFlat);
  };
  const Recipe recipe = {kTiled ? "vq tiled" : "vq flat", {in.n, in.k_dim, in.k}, {}};
  SUBBYTE_CHECK(multiply_kept(in.a, recipe, in.sources(), make, std::nullopt, out));
  return call.add(std::move(out));
}

#define SUBBYTE_PRODUCT(book, bits)                                                          \
  "(Tensor A{halves [M=, K_dim]}, Tensor B_packed{i32}, Tensor B_absmax" SUBBYTE_KBIT_SCALES \
  ", Tensor codebook{" book "}, int K_dim{1..2^24}, int N{1..2^24}, " bits
#define SUBBYTE_GROUPED                                                    \
  "(Tensor A_concat{halves [M=, K_dim]}, Tensor B_packed_all{i32}, "       \
  "Tensor B_absmax_all" SUBBYTE_KBIT_SCALES                                \
  ", Tensor codebook{f32}, "                                               \
  "Tensor expert_offsets{i32 [num_experts + 1]}, int K_dim{1..2^24}, int " \
  "N{1..2^24}, " SUBBYTE_KBIT ", int num_experts, int max_M"
#define SUBBYTE_Y ") -> Tensor{A [M, N]}"
#define SUBBYTE_OUT ", Tensor(a!) out{A [M, N]}"
// Scratch of kernels that divide K.
#define SUBBYTE_SCRATCH ", Tensor C_workspace, Tensor tile_counters) -> ()"
#define SUBBYTE_KBITS SUBBYTE_PRODUCT("f32", SUBBYTE_KBIT)
#define SUBBYTE_VECTORS SUBBYTE_PRODUCT("f16", SUBBYTE_VQ)

constexpr Operator kOperators[] = {
    {"kbit_gemm_prod" SUBBYTE_KBITS ", int k_chunks" SUBBYTE_Y, kbit_gemm_prod},
    {"kbit_gemm_prod_" SUBBYTE_KBITS ", int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH, kbit_gemm_prod},
    {"kbit_scalar_gemv.out" SUBBYTE_KBITS SUBBYTE_OUT ") -> ()",
     kbit_scalar_gemv<KbitOrder::kFlat>},
    {"kbit_scalar_gemv_tiled_" SUBBYTE_KBITS SUBBYTE_OUT ") -> ()",
     kbit_scalar_gemv<KbitOrder::kTiled>},
    {"kbit_scalar_gemv_v2_" SUBBYTE_KBITS SUBBYTE_OUT ") -> ()",
     kbit_scalar_gemv<KbitOrder::kTiled>},
    {"kbit_scalar_gemv" SUBBYTE_KBITS SUBBYTE_Y, kbit_scalar_gemv<KbitOrder::kFlat>},
    {"kbit_scalar_gemv_tiled" SUBBYTE_KBITS SUBBYTE_Y, kbit_scalar_gemv<KbitOrder::kTiled>},
    {"kbit_grouped_gemm" SUBBYTE_GROUPED ") -> Tensor{A_concat [M, N]}", kbit_grouped_gemm},
    {"kbit_grouped_gemm_" SUBBYTE_GROUPED ", Tensor(a!) out{A_concat [M, N]}" SUBBYTE_SCRATCH,
     kbit_grouped_gemm},
    {"vq_gemm_prod" SUBBYTE_VECTORS ", int k_chunks" SUBBYTE_Y, multiply_vq<true>},
    {"vq_gemm_prod_" SUBBYTE_VECTORS ", int k_chunks" SUBBYTE_OUT SUBBYTE_SCRATCH,
     multiply_vq<true>},
    {"vq_scalar_gemv" SUBBYTE_VECTORS SUBBYTE_Y, multiply_vq<false>},
    {"vq_scalar_gemv.out" SUBBYTE_VECTORS SUBBYTE_OUT ") -> ()", multiply_vq<false>},
    {"vq_scalar_gemv_tiled" SUBBYTE_VECTORS SUBBYTE_Y, multiply_vq<true>},
    {"vq_scalar_gemv_tiled_" SUBBYTE_VECTORS SUBBYTE_OUT ") -> ()", multiply_vq<true>},
};

}  // namespace

std::span<const Operator> kbit_products() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
