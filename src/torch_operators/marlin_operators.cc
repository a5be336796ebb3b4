// Marlin's operators of vLLM with their call, on CPUs: words of Marlin go in, are
// unpacked once and kept (foreign_layouts/marlin.h draws them).

#include "foreign_layouts/marlin.h"

#include <algorithm>
#include <array>

#include "device/conversions.h"
#include "foreign_layouts/marlin_act_order.h"
#include "foreign_layouts/marlin_int8.h"
#include "matrix/input_order.h"
#include "torch_operators/checkpoint_words.h"
#include "torch_operators/gpu.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

// ---- repacking --------------------------------------------------------------------------------

struct Repacking {
  Repacking(Call& call, bool with_perm, bool with_8bit)
      : words(call.tensor()),
        perm(with_perm ? std::optional(call.tensor()) : std::nullopt),
        k(call.integer()),
        n(call.integer()),
        bits(call.integer()),
        is_a_8bit(with_8bit && call.boolean()) {}

  Tensor words;
  std::optional<Tensor> perm;
  int64_t k;
  int64_t n;
  int64_t bits;
  bool is_a_8bit;
};

Status check_perm(const Tensor& perm) {
  const std::string fault = input_order_fault(perm.span<const uint32_t>());
  return fault.empty() ? Status() : Error{device::kArgument, "perm: expected " + fault};
}

Status repack(const Repacking& in, bool awq, Call& call) {
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_marlin_shape(in.n, in.k));
  const int bits = static_cast<int>(in.bits);
  if (in.perm && in.perm->count() > 0) {
    SUBBYTE_CHECK(check_sizes(*in.perm, {in.k}));
    // A capture lets nothing be waited for, and has nothing refused.
    const bool is_readable = in.perm->on_cpu() || !is_captured(*in.perm);
    if (is_readable) SUBBYTE_CHECK(check_perm(in.perm->host()));
  }
  if (!in.words.on_cpu() && (!in.perm || in.perm->same_device(in.words))) {
    const bool has_perm = in.perm && in.perm->count() > 0;
    SUBBYTE_TRY(Tensor out, call.result());
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(in.words));
    SUBBYTE_TRY(const bool is_done,
                device::repack_marlin({.to = out.data<uint32_t>(),
                                       .words = in.words.data<const uint32_t>(),
                                       .order = has_perm ? in.perm->data<const int32_t>() : nullptr,
                                       .rows = in.n,
                                       .cols = in.k,
                                       .bits = bits,
                                       .is_awq = awq},
                                      gpu));
    if (is_done) {
      return call.add(std::move(out));
    }
  }
  const std::vector<std::byte> codes = canonical(
      in.words.host().data<const uint32_t>(), in.n, in.k, bits, awq ? awq_code : gptq_code,
      in.perm ? in.perm->host().span<const int32_t>() : std::span<const int32_t>());
  SUBBYTE_TRY(Tensor out, call.result(0, in.words.host().device()));
  if (bits == 4) {
    pack_marlin(out.data(), codes.data(), in.n, in.k);
  } else {
    pack_marlin_int8(out.data(), codes.data(), in.n, in.k);
  }
  return call.add(std::move(out).to_device_of(in.words));
}

Status gptq_marlin_repack(Call& call) {
  return repack(Repacking(call, false, true), false, call);
}
Status gptq_marlin_repack_perm(Call& call) {
  return repack(Repacking(call, true, false), false, call);
}
Status awq_marlin_repack(Call& call) {
  return repack(Repacking(call, false, true), true, call);
}

// ---- the type of the weights -----------------------------------------------------------------

enum class WordType : uint8_t { kU4, kU4B8, kU8B128, kU8, kE2M1, kE4M3, kOther };

/// The type of vLLM's 64-bit number: exponent 8 bits, mantissa 8, signed 1, bias 32, and more.
WordType type_of(int64_t id) {
  const auto bits = static_cast<uint64_t>(id);
  const auto exponent = bits & 0xFF;
  const auto mantissa = bits >> 8 & 0xFF;
  const bool is_signed = (bits >> 16 & 1) != 0;
  const auto bias = bits >> 17 & 0xFFFFFFFFu;
  if (exponent == 2 && mantissa == 1 && is_signed) return WordType::kE2M1;
  if (exponent == 4 && mantissa == 3 && is_signed) return WordType::kE4M3;
  if (exponent != 0 || is_signed) return WordType::kOther;
  if (mantissa == 4)
    return bias == 8 ? WordType::kU4B8 : bias == 0 ? WordType::kU4 : WordType::kOther;
  if (mantissa == 8)
    return bias == 128 ? WordType::kU8B128 : bias == 0 ? WordType::kU8 : WordType::kOther;
  return WordType::kOther;
}

// ---- products --------------------------------------------------------------------------------

/// The arguments of marlin_gemm, now, and with g_idx and perm, before.
struct Marlin {
  Marlin(Call& call, bool former)
      : a(call.tensor()),
        c(call.optional_tensor()),
        words(call.tensor()),
        bias(call.optional_tensor()),
        scales(call.tensor()),
        a_scales(former ? std::nullopt : call.optional_tensor()),
        global(call.tensor_unless_empty()),
        zeros(call.tensor_unless_empty()),
        g_idx(former ? call.tensor_unless_empty() : std::nullopt),
        perm(former ? call.tensor_unless_empty() : std::nullopt),
        workspace(call.optional_tensor()),
        type(type_of(call.integer())),
        m(call.integer()),
        n(call.integer()),
        k(call.integer()) {
    call.skip(former ? 3 : 2);  // is_k_full, as the whole of K is here, and hints
    float_zeros = call.boolean();
  }

  bool is_8bit() const {
    return type == WordType::kU8B128 || type == WordType::kU8 || type == WordType::kE4M3;
  }
  bool has_zeros() const { return type == WordType::kU4 || type == WordType::kU8; }
  int64_t groups() const { return scales.size(0); }

  Status check() const;
  Status check_scales() const;
  Result<Matrix> matrix() const;
  /// What float zero points add to each weight of a group, -zero * scale as f32 [N][groups].
  Result<Matrix> offsets() const;
  std::array<const Tensor*, 6> sources() const {
    const auto address = [](const std::optional<Tensor>& t) { return t ? &*t : nullptr; };
    return {&words, &scales, address(global), address(zeros), address(g_idx), address(perm)};
  }

  Tensor a;
  std::optional<Tensor> c;
  Tensor words;
  std::optional<Tensor> bias;
  Tensor scales;
  std::optional<Tensor> a_scales;
  std::optional<Tensor> global;
  std::optional<Tensor> zeros;
  std::optional<Tensor> g_idx;
  std::optional<Tensor> perm;
  std::optional<Tensor> workspace;
  WordType type;
  int64_t m;
  int64_t n;
  int64_t k;
  bool float_zeros = false;

 private:
  Status add_codes(MatrixView& view, std::byte* codes) const;
  void add_scales(Matrix& matrix) const;
  Status add_fp4_scales(Matrix& matrix) const;
  Status add_zeros(Matrix& matrix) const;
  Status add_order(Matrix& matrix) const;
};

Status Marlin::check() const {
  if (c) return refuse(*c, "none");
  if (a_scales) return refuse(*a_scales, "none, as activations of 8 bits are not supported");
  if (type == WordType::kOther) {
    return refuse("b_q_type", "u4, u8, u4b8, u8b128, fe4m3fn or fe2m1f", "another type");
  }
  if (float_zeros && (type != WordType::kU4 || a.dtype() != numbers().f16)) {
    return refuse("is_zp_float", "False unless b_q_type is u4 and activations are f16", "True");
  }
  SUBBYTE_CHECK(check_marlin_shape(n, k));
  SUBBYTE_CHECK(check_sizes(words, {k / 16, n * (is_8bit() ? 4 : 2)}));
  if (has_zeros() != zeros.has_value()) {
    return refuse("b_zeros", has_zeros() ? "zero points of u4 or u8" : "none",
                  has_zeros() ? "none" : shown(zeros->sizes()));
  }
  return check_scales();
}

Status Marlin::check_scales() const {
  const Numbers& t = numbers();
  if (groups() < 1 || k % groups() != 0 || (groups() > 1 && k / groups() % 8 != 0)) {
    return refuse(scales, "groups in 8s that divide " + std::to_string(k));
  }
  if (type != WordType::kE2M1) return check_dtype(scales, {a.dtype()});
  const int64_t group = k / groups();
  if (group != 16 && group != 32) return refuse(scales, "groups of 16 (NVFP4) or 32 (MXFP4)");
  SUBBYTE_CHECK(check_dtype(scales, {t.u8, group == 16 ? t.e4m3 : t.e8m0}));
  if (group == 16 && !global) return refuse("global_scale", "one f32 for NVFP4", "none");
  return {};
}

void Marlin::add_scales(Matrix& matrix) const {
  matrix.view.format.scale = a.format();
  unpack_marlin_scales(allocate_part(matrix, matrix.view.scales, n * groups() * 2),
                       scales.host().data(), n, groups(), 2);
}

/// S0E5M3 bytes of NVFP4 hold 2^7 times what multiplies here, and the global scale the rest.
Status Marlin::add_fp4_scales(Matrix& matrix) const {
  MatrixView& view = matrix.view;
  std::byte* const to = allocate_part(matrix, view.scales, n * groups());
  if (view.format.group_size == 32) {
    view.format.scale = Format::kE8M0;
    unpack_marlin_e8m0(to, scales.host().data(), n, groups());
    return {};
  }
  view.format.scale = Format::kE4M3;
  const double unit = a.format() == Format::kBF16 ? 0x1p119 : 0x1p7;
  view.tensor_scale = double{*global->host().data<float>()} / unit;
  return unpack_marlin_e4m3(to, scales.host().data(), n, groups(), 1);
}

Status Marlin::add_zeros(Matrix& matrix) const {
  MatrixView& view = matrix.view;
  SUBBYTE_CHECK(check_dtype(*zeros, {numbers().i32}));
  SUBBYTE_CHECK(check_sizes(*zeros, {groups(), n / (is_8bit() ? 4 : 8)}));
  view.format.zero = is_8bit() ? Zero::kU16 : Zero::kU8;
  std::byte* const to = allocate_part(matrix, view.zeros, n * groups() * (is_8bit() ? 2 : 1));
  const auto unpack_zeros = is_8bit() ? unpack_marlin_int8_zeros : unpack_marlin_zeros;
  unpack_zeros(to, zeros->host().data(), n, groups());
  return {};
}

Result<Matrix> Marlin::offsets() const {
  SUBBYTE_CHECK(check_dtype(*zeros, {a.dtype()}));
  SUBBYTE_CHECK(check_sizes(*zeros, {groups(), n}));
  const int64_t count = n * groups();
  std::vector<std::byte> words_of(static_cast<std::size_t>(count * 2));
  std::vector<float> factors(static_cast<std::size_t>(count));
  unpack_marlin_scales(words_of.data(), scales.data(), n, groups(), 2);
  load_numbers(factors.data(), words_of.data(), count, a.format());
  Matrix matrix;
  matrix.view.rows = n;
  matrix.view.cols = groups();
  auto* const sums = reinterpret_cast<float*>(allocate_part(matrix, matrix.view.codes, count * 4));
  unpack_marlin_scales(words_of.data(), zeros->data(), n, groups(), 2);
  load_numbers(sums, words_of.data(), count, a.format());
  for (std::size_t i = 0; i < factors.size(); ++i) sums[i] *= -factors[i];
  return matrix;
}

Status Marlin::add_order(Matrix& matrix) const {
  if (!perm || !g_idx) return refuse("perm and g_idx", "both or none", "one");
  SUBBYTE_CHECK(check_perm(perm->host()));
  const auto numbers_of = [](const Tensor& tensor) {
    const std::span<const int32_t> span = tensor.span<const int32_t>();
    return std::vector<int32_t>(span.begin(), span.end());
  };
  SUBBYTE_TRY(std::vector<uint32_t> order,
              input_order_of({numbers_of(perm->host()), numbers_of(g_idx->host())},
                             matrix.view.group_size()));
  const auto kept = std::make_shared<const std::vector<uint32_t>>(std::move(order));
  matrix.view.input_order = *kept;
  matrix.owners.push_back(kept);
  return {};
}

Result<Matrix> Marlin::matrix() const {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.rows = n;
  view.cols = k;
  view.format.element = type == WordType::kE2M1     ? Format::kE2M1
                        : type == WordType::kU4B8   ? Format::kI4
                        : type == WordType::kU8B128 ? Format::kI8
                        : type == WordType::kE4M3   ? Format::kE4M3
                        : type == WordType::kU4     ? Format::kU4
                                                    : Format::kU8;
  view.format.group_size = groups() == 1 ? 0 : k / groups();
  std::byte* const codes = allocate_part(matrix, view.codes, n * k / (is_8bit() ? 1 : 2));
  (is_8bit() ? unpack_marlin_int8 : unpack_marlin)(codes, words.host().data(), n, k);
  const bool fp4 = type == WordType::kE2M1;
  if (fp4) {
    view.format.group_size = k / groups();
    SUBBYTE_CHECK(add_fp4_scales(matrix));
  } else {
    add_scales(matrix);
  }
  // Scales of fp8 hold what the exponents of e4m3 and of the activations are apart, too.
  if (type == WordType::kE4M3) view.tensor_scale = a.format() == Format::kBF16 ? 0x1p-120 : 0x1p-8;
  if (has_zeros() && !float_zeros) SUBBYTE_CHECK(add_zeros(matrix));
  if (perm || g_idx) SUBBYTE_CHECK(add_order(matrix));
  return matrix;
}

/// The bias in the order of its outputs: it is permuted as scales of one group are. On a GPU it is
/// made once and kept.
Result<Tensor> plain_bias(const Tensor& bias, int64_t n) {
  const auto make = [&] {
    Tensor plain = Tensor::empty_on_cpu(std::array{n}, bias.dtype());
    unpack_marlin_scales(plain.data(), bias.host().data(), n, 1, 2);
    return plain;
  };
  if (bias.on_cpu()) return make();
  SUBBYTE_TRY(const auto kept, keep({"marlin bias", {n}, {}}, std::array{&bias}, [&] {
                auto on_gpu =
                    std::make_shared<Tensor>(Tensor::empty(std::array{n}, bias.dtype(), bias));
                const Tensor plain = make();
                check(functions().aoti_torch_copy_(on_gpu->handle(), plain.handle(), 0), "copy_");
                Matrix matrix;
                matrix.view.codes = on_gpu->span();
                matrix.owners.push_back(std::move(on_gpu));
                return Result<Matrix>(std::move(matrix));
              }));
  return std::static_pointer_cast<const Tensor>(kept->owners.front())->share();
}

/// With float zero points, which products of CPUs add and kernels for GPUs of 16 bits do not hold.
Status multiply_with_offsets(const Marlin& in, const Recipe& recipe,
                             std::span<const Tensor* const> sources,
                             const std::optional<Tensor>& bias, Tensor& out) {
  if (!in.a.on_cpu()) return refuse("is_zp_float", "False on a GPU", "True");
  SUBBYTE_TRY(Machine machine, Machine::borrow(in.a.count() * in.n));
  const auto make = [&]() -> Result<WithOffsets> {
    SUBBYTE_TRY(Matrix matrix, in.matrix());
    SUBBYTE_TRY(Matrix offsets, in.offsets());
    const int64_t group_size = matrix.view.group_size();
    return WithOffsets{std::move(matrix), std::move(offsets), group_size};
  };
  SUBBYTE_TRY(const auto ready, keep_ready(machine, recipe, sources, make));
  return multiply(machine, in.a, *ready, bias, out);
}

template <bool kFormer>
Status marlin(Call& call) {
  const Marlin in(call, kFormer);
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(in.check());
  SUBBYTE_TRY(Tensor out, call.result());
  if (in.m > 0) {
    const auto sources = in.sources();
    const Recipe recipe = {
        "marlin",
        {in.n, in.k, static_cast<int64_t>(in.type), static_cast<int64_t>(in.a.format()),
         static_cast<int64_t>(in.float_zeros)},
        {}};
    std::optional<Tensor> bias;
    if (in.bias) {
      SUBBYTE_TRY(Tensor plain, plain_bias(*in.bias, in.n));
      bias.emplace(std::move(plain));
    }
    SUBBYTE_CHECK(in.float_zeros
                      ? multiply_with_offsets(in, recipe, sources, bias, out)
                      : multiply_kept(
                            in.a, recipe, sources, [&] { return in.matrix(); }, bias, out));
  }
  return call.add(std::move(out));
}

#define SUBBYTE_REPACK "int size_k{1..2^24}, int size_n{1..2^24}, int num_bits{4|8}"
#define SUBBYTE_8BIT ", bool is_a_8bit{False}=False) -> "
#define SUBBYTE_MARLIN "Tensor{i32 [size_k // 16, size_n * num_bits // 2]}"
#define SUBBYTE_GPTQ "Tensor b_q_weight{i32 [size_k * num_bits // 32, size_n]}, "
#define SUBBYTE_BEGIN                                                             \
  "Tensor a{halves [size_m, size_k]}, Tensor? c, Tensor b_q_weight{i32 [_, _]}, " \
  "Tensor? b_bias{a (size_n: numbers)}, Tensor b_scales{any [G=, size_n]}, "
#define SUBBYTE_ZEROS "Tensor? global_scale{f32 (1: number)}, Tensor? b_zeros{any}, "
#define SUBBYTE_END \
  "Tensor? workspace, int b_q_type, int size_m, int size_n{1..2^24}, int size_k{1..2^24}, "
#define SUBBYTE_HINTS                                                                  \
  "bool use_atomic_add=False, bool use_fp32_reduce=False, bool is_zp_float=False) -> " \
  "Tensor{a [size_m, size_n]}"

constexpr Operator kOperators[] = {
    {"gptq_marlin_repack(" SUBBYTE_GPTQ SUBBYTE_REPACK SUBBYTE_8BIT SUBBYTE_MARLIN,
     gptq_marlin_repack},
    {"gptq_marlin_repack.perm(" SUBBYTE_GPTQ "Tensor perm{anywhere i32}, " SUBBYTE_REPACK
     ") -> " SUBBYTE_MARLIN,
     gptq_marlin_repack_perm},
    {"awq_marlin_repack(Tensor b_q_weight{i32 [size_k, size_n * num_bits // 32]}, " SUBBYTE_REPACK
         SUBBYTE_8BIT SUBBYTE_MARLIN,
     awq_marlin_repack},
    {"marlin_gemm(" SUBBYTE_BEGIN "Tensor? a_scales, " SUBBYTE_ZEROS SUBBYTE_END SUBBYTE_HINTS,
     marlin<false>},
    {"gptq_marlin_gemm(" SUBBYTE_BEGIN SUBBYTE_ZEROS
     "Tensor? g_idx{i32}, Tensor? perm{i32 [size_k]}, " SUBBYTE_END
     "bool is_k_full=True, " SUBBYTE_HINTS,
     marlin<true>},
};

}  // namespace

std::span<const Operator> marlin_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
