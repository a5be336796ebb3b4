// FlashInfer's operators of MXFP8, MXFP4 and NVFP4 with their arguments, on CPUs. Hints that choose
// one of its kernels are taken and choose nothing.

#include <algorithm>
#include <array>
#include <cmath>

#include "device/conversions.h"
#include "device/group_weights.h"
#include "foreign_layouts/flashinfer.h"
#include "group_gemm/group_gemm.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cuda/layouts/other_layouts.h"
#include "kernels/cuda/quantize/quantize.h"
#include "torch_operators/four_over_six.h"
#include "torch_operators/gpu.h"
#include "torch_operators/kept.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

constexpr std::array<ScaleLayout, 3> kLayouts = {ScaleLayout::k128x4, ScaleLayout::k8x4,
                                                 ScaleLayout::kLinear};

/// Layouts by FlashInfer's numbers, which have been checked.
ScaleLayout layout_of(int64_t number) {
  return kLayouts[static_cast<std::size_t>(number)];
}

/// Arguments of nvfp4_quantize alone.
struct Nvfp4Extras {
  std::optional<FourOverSix> search;
  const Tensor* global_scale = nullptr;  // where x is, if that is a GPU
};

Status quantize_there(const BlockQuantization& blocks, const Tensor& x, Tensor& codes,
                      Tensor& scales, const Nvfp4Extras& extras) {
  SUBBYTE_TRY(const device::Gpu gpu, gpu_of(x));
  cuda::Nvfp4Options options;
  if (extras.global_scale != nullptr) {
    options.global_scale_there = extras.global_scale->data<float>();
  }
  if (extras.search) {
    options.four_over_six = true;
    options.is_squared = extras.search->error == BlockError::kSquared;
    options.global_scale = extras.search->global_scale;
  }
  return cuda::quantize_blocks(blocks, aligned(x).data(), codes.data(), scales.data(), gpu.stream(),
                               options);
}

Status quantize_here(const BlockQuantization& blocks, const Tensor& x, Tensor& codes,
                     Tensor& scales, const Nvfp4Extras& extras) {
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  if (extras.search) {
    return quantize_four_over_six(machine, blocks, *extras.search, x, codes, scales);
  }
  return cpu::quantize_blocks(blocks, x.data(), codes.data(), scales.data(), machine.kernels(),
                              machine.executor());
}

/// Rows [..., K] to codes and scales.
Status quantize(BlockQuantization blocks, const Tensor& x, Call& call,
                const Nvfp4Extras& extras = {}) {
  if (x.size(-1) < 1) return refuse(x, "at least one column");
  blocks.input = x.format();
  blocks.cols = x.size(-1);
  blocks.rows = x.count() / blocks.cols;
  SUBBYTE_CHECK(check_block_quantization(blocks));
  const bool is_fp4 = blocks.format != BlockFormat::kMxfp8E4M3;
  if (is_fp4 && blocks.padded_cols() != blocks.cols) return refuse(x, "columns in 32s");
  SUBBYTE_TRY(Tensor codes, call.result(0));
  SUBBYTE_TRY(Tensor scales, call.result(1));
  if (blocks.rows > 0) {
    SUBBYTE_CHECK((x.on_cpu() ? quantize_here : quantize_there)(blocks, x, codes, scales, extras));
  }
  SUBBYTE_CHECK(call.add(std::move(codes)));
  return call.add(std::move(scales));
}

Status mxfp8_quantize(Call& call) {
  const Tensor x = call.tensor();
  const bool swizzled = call.boolean();
  BlockQuantization blocks;
  blocks.alignment = call.integer();
  call.skip(2);  // enable_pdl, backend
  const std::optional<int64_t> layout = call.optional_integer();
  SUBBYTE_CHECK(call.check());
  blocks.layout = layout_of(layout.value_or(swizzled ? 0 : 2));
  return quantize(blocks, x, call);
}

Status mxfp4_quantize(Call& call) {
  const Tensor x = call.tensor();
  call.skip(2);  // backend, enable_pdl
  const int64_t layout = call.integer();
  BlockQuantization blocks;
  SUBBYTE_CHECK(call.check());
  blocks.format = BlockFormat::kMxfp4;
  blocks.layout = layout_of(layout);
  return quantize(blocks, x, call);
}

Status nvfp4_quantize(Call& call) {
  const Tensor x = call.tensor();
  const Tensor global = call.tensor();
  const int64_t layout = call.integer();
  call.skip(5);  // do_shuffle, sf_vec_size, enable_pdl, backend, per_token_activation
  const int64_t error = call.choice();
  SUBBYTE_CHECK(call.check());
  BlockQuantization blocks;
  blocks.format = BlockFormat::kNvfp4;
  blocks.layout = layout_of(layout);
  float global_scale = 1;
  Nvfp4Extras extras;
  if (!x.on_cpu() && global.same_device(x)) {
    extras.global_scale = &global;
  } else {
    global_scale = *global.to_cpu().data<float>();
    blocks.tensor_scale = 1 / global_scale;
  }
  if (error != 0) {
    extras.search = {global_scale, error == 2 ? BlockError::kSquared : BlockError::kAbsolute};
  }
  return quantize(blocks, x, call, extras);
}

/// Codes of e2m1 with scales in some layout, to floats [M, K].
struct Fp4 {
  const Tensor& codes;
  const Tensor& scales;
  BlockQuantization blocks;
  double factor;

  Status check(Call& call) {
    SUBBYTE_CHECK(call.check());
    blocks.rows = codes.size(0);
    blocks.cols = codes.size(1) * 2;
    blocks.input = Format::kF32;
    if (blocks.cols == 0 || blocks.cols % blocks.group() != 0) {
      return refuse(codes, "columns of whole groups of " + std::to_string(blocks.group()));
    }
    SUBBYTE_CHECK(check_block_quantization(blocks));
    // Linear scales have no padding, whatever the columns of the codes are filled up to.
    const int64_t expected = blocks.layout == ScaleLayout::kLinear
                                 ? blocks.rows * blocks.cols / blocks.group()
                                 : blocks.scale_bytes();
    if (scales.count() == expected) return {};
    return refuse(scales, std::to_string(expected) + " scales");
  }

  Status to_floats(Call& call) const {
    SUBBYTE_TRY(Tensor out, call.result());
    if (!codes.on_cpu()) {
      if (out.count() > 0) {
        SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
        const Tensor from = aligned(codes);
        SUBBYTE_CHECK(device::dequantize_blocks(blocks, from.data(), scales.data(), factor,
                                                out.data<float>(), gpu));
      }
      return call.add(std::move(out));
    }
    const int64_t groups = blocks.cols / blocks.group();
    std::vector<std::byte> linear(static_cast<std::size_t>(blocks.rows * groups));
    for (int64_t row = 0; row < blocks.rows; ++row) {
      for (int64_t g = 0; g < groups; ++g) {
        const bool plain = blocks.layout == ScaleLayout::kLinear;
        linear[static_cast<std::size_t>(row * groups + g)] =
            scales.data()[plain ? row * groups + g : scale_byte(blocks, row, g)];
      }
    }
    MatrixView view;
    view.format = {blocks.element(), blocks.scale(), Zero::kNone, blocks.group()};
    view.rows = blocks.rows;
    view.cols = blocks.cols;
    view.codes = codes.span();
    view.scales = linear;
    view.tensor_scale = factor;
    if (view.rows > 0) {
      SUBBYTE_TRY(Machine machine, Machine::borrow());
      SUBBYTE_CHECK(
          cpu::dequantize(view, Format::kF32, out.data(), machine.kernels(), machine.executor()));
    }
    return call.add(std::move(out));
  }
};

/// The third argument chooses the layout, or is the size of groups.
template <bool kLinear>
Status mxfp4_dequantize(Call& call) {
  const Tensor codes = call.tensor();
  const Tensor scales = call.tensor();
  const int64_t layout = call.integer();
  Fp4 in = {codes, scales, {}, 1};
  in.blocks.format = BlockFormat::kMxfp4;
  SUBBYTE_CHECK(call.bind());
  in.blocks.layout = kLinear ? ScaleLayout::kLinear : layout_of(layout);
  SUBBYTE_CHECK(in.check(call));
  return in.to_floats(call);
}

Status scale_to_float(Call& call) {
  const Tensor codes = call.tensor();
  const Tensor scales = call.tensor();
  const std::optional<Tensor> global = call.optional_tensor();
  const int64_t vector = call.integer();
  const int64_t type = call.integer();
  const bool swizzled = call.boolean();
  const bool eight = call.boolean();
  const bool nv = vector == 16 && type == 1;
  if (!nv && !(vector == 32 && type == 0)) {
    return refuse("sf_vec_size and ufp8_type", "16 and 1 (E4M3), or 32 and 0 (E8M0)",
                  std::to_string(vector) + " and " + std::to_string(type));
  }
  Fp4 in = {codes, scales, {}, 1};
  in.blocks.format = nv ? BlockFormat::kNvfp4 : BlockFormat::kMxfp4;
  in.blocks.layout = !swizzled ? ScaleLayout::kLinear
                     : eight   ? ScaleLayout::k8x4
                               : ScaleLayout::k128x4;
  SUBBYTE_CHECK(in.check(call));
  if (global) in.factor = *global->host().data<float>();
  return in.to_floats(call);
}

/// Scales [M, C] or [E, M, C] to atoms of 128 x 4, each expert for itself.
Status block_scale_interleave(Call& call) {
  const Tensor in = call.tensor();
  SUBBYTE_CHECK(call.check());
  if (in.dim() > 3) return refuse(in, "2 or 3 dimensions");
  const int64_t experts = in.dim() == 3 ? in.size(0) : 1;
  const int64_t rows = in.size(-2);
  const int64_t cols = in.size(-1);
  const int64_t padded_rows = (rows + 127) / 128 * 128;
  const int64_t padded_cols = (cols + 3) / 4 * 4;
  const int64_t width = bytes_of(in.dtype());
  SUBBYTE_TRY(Tensor out, call.result());
  if (!in.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(in));
    SUBBYTE_CHECK(cuda::move_scales({.to = out.data(),
                                     .from = in.data(),
                                     .matrices = experts,
                                     .rows = rows,
                                     .cols = cols,
                                     .padded_rows = padded_rows,
                                     .padded_cols = padded_cols,
                                     .width = static_cast<int>(width)},
                                    gpu.stream()));
    return call.add(std::move(out));
  }
  std::ranges::fill(out.span(), std::byte{0});
  BlockQuantization blocks;
  blocks.layout = ScaleLayout::k128x4;
  blocks.rows = rows;
  blocks.cols = std::max<int64_t>(padded_cols, 4) * blocks.group();
  for (int64_t e = 0; e < experts; ++e) {
    std::byte* const to = out.data() + e * padded_rows * padded_cols * width;
    const std::byte* from = in.data() + e * rows * cols * width;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t col = 0; col < cols; ++col, from += width) {
        std::copy_n(from, width, to + scale_byte(blocks, row, col) * width);
      }
    }
  }
  return call.add(std::move(out));
}

struct Gemm {
  explicit Gemm(Call& call)
      : a(call.tensor()),
        b(call.tensor()),
        a_scale(call.tensor()),
        b_scale(call.tensor()),
        m_indptr(call.tensor()) {
    gemm.mma_sm = small(call.integer());
    gemm.tile_m = small(call.integer());
    gemm.tile_n = small(call.integer());
    gemm.tile_k = small(call.integer());
    gemm.swap_ab = call.boolean();
  }

  static int small(int64_t number) {
    return static_cast<int>(std::clamp<int64_t>(number, -1, 4096));
  }

  /// Sets what the call, which has been checked, says.
  void set(int32_t out_dtype) {
    gemm.a = a.span();
    gemm.b = b.span();
    gemm.a_scale = a_scale.span();
    gemm.b_scale = b_scale.span();
    gemm.m_indptr = m_indptr.span<const int32_t>();
    gemm.n = b.size(1);
    gemm.k = a.size(1);
    gemm.a_dtype = a.format();
    gemm.out_dtype = out_dtype == numbers().bf16 ? Format::kBF16 : Format::kF16;
  }
  /// What check_group_gemm() checks on the host, but for the values of m_indptr.
  Status check_on_gpu() const {
    const int64_t groups = b.size(0);
    const int64_t rows = (a.size(0) + 127 * groups) / 128 * 128;
    if (a_scale.num_bytes() != rows * (gemm.k / 32)) {
      return refuse(a_scale, std::to_string(rows * (gemm.k / 32)) + " bytes");
    }
    const int64_t of_weights = groups * FlashinferShape{gemm.n, gemm.k}.scale_bytes();
    if (b_scale.num_bytes() == of_weights) return {};
    return refuse(b_scale, std::to_string(of_weights) + " bytes");
  }
  Status multiply_on_gpu(Tensor& out) const {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(a));
    const cuda::GroupGemmShape shape = {b.size(0), gemm.n, gemm.k, cuda::GroupWeights::kFlashinfer};
    SUBBYTE_TRY(const auto weights,
                keep_shared<device::GroupWeights>(
                    {"groups", {gemm.n, gemm.k}, {}}, std::array{&b, &b_scale}, [&] {
                      return device::GroupWeights::pack(shape, b.data(), b_scale.data(), gpu);
                    }));
    cuda::GroupGemmCall call;
    call.a = a.data();
    call.a_scale = a_scale.data();
    call.m_indptr = m_indptr.data<const int32_t>();
    call.m = a.size(0);
    call.out = out.data();
    call.a_dtype = gemm.a_dtype;
    call.out_dtype = gemm.out_dtype;
    call.mma_sm = gemm.mma_sm;
    call.tile_m = gemm.tile_m;
    call.tile_n = gemm.tile_n;
    call.tile_k = gemm.tile_k;
    call.swap_ab = gemm.swap_ab;
    return weights->run(call, gpu);
  }
  Status multiply_to(Tensor& out) {
    gemm.out = out.span();
    if (!a.on_cpu()) {
      SUBBYTE_CHECK(check_on_gpu());
      return multiply_on_gpu(out);
    }
    SUBBYTE_CHECK(check_group_gemm(gemm));
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    return group_gemm::group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, machine.execution());
  }

  Tensor a;
  Tensor b;
  Tensor a_scale;
  Tensor b_scale;
  Tensor m_indptr;
  group_gemm::GroupGemm gemm;
};

Status group_gemm(Call& call) {
  Gemm in(call);
  const int32_t out_dtype = call.writes() ? call.out().dtype() : call.dtype_or_first();
  SUBBYTE_CHECK(call.check());
  in.set(out_dtype);
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(in.multiply_to(out));
  return call.add(std::move(out));
}

#define SUBBYTE_GEMM                                                                   \
  "Tensor a{e4m3|e5m2 [M=, K=]}, Tensor b{u8 [E=, N=, K // 2]}, Tensor a_scale{any}, " \
  "Tensor b_scale{any}, Tensor m_indptr{i32 [E + 1]}, int mma_sm=1, "                  \
  "int tile_m=128, int tile_n=128, int tile_k=128, bool swap_ab=True, "
#define SUBBYTE_NEW "ScalarType? out_dtype{bf16|f16}=None) -> Tensor{out_dtype [M, N]}"
#define SUBBYTE_FP4(group)                                                              \
  "(Tensor{u8 [M, K // 2]}, Tensor{u8 [scale_rows(M, sfLayout), scale_cols(K // " group \
  ", sfLayout)]})"
#define SUBBYTE_LAYOUT \
  "(0 if is_sf_swizzled_layout else 2) if sf_swizzle_layout < 0 else sf_swizzle_layout"
#define SUBBYTE_FLOATS "Tensor{f32 [M, B * 2]}"
#define SUBBYTE_INTERLEAVED "{unswizzled_sf [rows * up(R, 128) * up(C, 4)]}"

constexpr Operator kOperators[] = {
    {"mxfp8_quantize(Tensor input{floats [..., K=]}, bool is_sf_swizzled_layout=True, "
     "int alignment=32, bool? enable_pdl=None, str backend=\"cuda\", "
     "int? sf_swizzle_layout{0 (128x4)|1 (8x4)|2 (linear)}=None) -> (Tensor{e4m3 [..., up(K, "
     "alignment)]}, "
     "Tensor{u8 [scale_rows(rows, " SUBBYTE_LAYOUT ") * "
     "scale_cols(up(K, alignment) // 32, " SUBBYTE_LAYOUT ")]})",
     mxfp8_quantize},
    {"mxfp4_quantize(Tensor a{floats [M=, K=]}, str backend=\"cuda\", bool? enable_pdl=None, "
     "int sfLayout{0 (128x4)|1 (8x4)|2 (linear)}=0) -> " SUBBYTE_FP4("32"),
     mxfp4_quantize},
    {"nvfp4_quantize(Tensor a{floats [M=, K=]}, Tensor a_global_sf{anywhere f32 (1: number)}, "
     "int sfLayout{0 (128x4)|1 (8x4)|2 (linear)}=0, bool do_shuffle{False}=False, int "
     "sf_vec_size{16}=16, "
     "bool? enable_pdl=None, str backend=\"cuda\", bool per_token_activation{False}=False, "
     "str? nvfp4_4over6{MAE|MSE}=None) -> " SUBBYTE_FP4("16"),
     nvfp4_quantize},
    {"mxfp4_dequantize(Tensor a_fp4{u8 [M=, B=]}, Tensor a_sf{u8|e4m3|e8m0}, "
     "int sfLayout{0 (128x4)|1 (8x4)|2 (linear)}=0) -> " SUBBYTE_FLOATS,
     mxfp4_dequantize<false>},
    {"mxfp4_dequantize_host(Tensor weight{u8 [M=, B=]}, Tensor scale{u8|e4m3|e8m0}, "
     "int group_size{32}=32) -> " SUBBYTE_FLOATS,
     mxfp4_dequantize<true>},
    {"e2m1_and_ufp8sf_scale_to_float(Tensor e2m1_tensor{u8 [M=, B=]}, "
     "Tensor ufp8_scale_tensor{u8|e4m3|e8m0}, "
     "Tensor? global_scale_tensor{anywhere f32 (1: number)}=None, int sf_vec_size=16, "
     "int ufp8_type=1, bool is_sf_swizzled_layout=True, bool is_sf_8x4_layout=False) "
     "-> " SUBBYTE_FLOATS,
     scale_to_float},
    {"block_scale_interleave(Tensor unswizzled_sf{u8|bf16 [..., R=, C=]}) -> "
     "Tensor" SUBBYTE_INTERLEAVED,
     block_scale_interleave},
    {"block_scale_interleave_out(Tensor unswizzled_sf{u8|bf16 [..., R=, C=]}, *, "
     "Tensor(a!) out" SUBBYTE_INTERLEAVED ") -> ()",
     block_scale_interleave},
    {"nvfp4_block_scale_interleave(Tensor unswizzled_sf{u8|bf16 [..., R=, C=]}) -> "
     "Tensor" SUBBYTE_INTERLEAVED,
     block_scale_interleave},
    {"group_gemm_mxfp8_mxfp4_nt_groupwise(" SUBBYTE_GEMM SUBBYTE_NEW, group_gemm},
    {"group_gemm_mxfp4_nt_groupwise(" SUBBYTE_GEMM SUBBYTE_NEW, group_gemm},
    {"group_gemm_mxfp8_mxfp4_nt_groupwise_out(" SUBBYTE_GEMM
     "*, Tensor(a!) out{bf16|f16 [M, N]}) -> ()",
     group_gemm},
};

}  // namespace

std::span<const Operator> flashinfer_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
