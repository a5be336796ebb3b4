// FlashInfer's operators of MXFP8, MXFP4 and NVFP4 with their arguments, on CPUs. Hints that choose
// one of its kernels are taken and choose nothing.

#include <algorithm>
#include <array>
#include <cmath>

#include "device/conversions.h"
#include "device/group_weights.h"
#include "flashinfer/group_gemm.h"
#include "foreign_layouts/flashinfer.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cuda/ops/other_layouts.h"
#include "kernels/cuda/ops/quantize.h"
#include "torch_operators/four_over_six.h"
#include "torch_operators/gpu.h"
#include "torch_operators/kept.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

constexpr std::array<ScaleLayout, 3> kLayouts = {ScaleLayout::k128x4, ScaleLayout::k8x4,
                                                 ScaleLayout::kLinear};

/// Layouts by FlashInfer's numbers.
Result<ScaleLayout> layout_of(int64_t number) {
  if (number >= 0 && number < std::ssize(kLayouts)) {
    return kLayouts[static_cast<std::size_t>(number)];
  }
  return refuse("sfLayout", "0 (128x4), 1 (8x4) or 2 (linear)", std::to_string(number));
}

/// Rows and columns of [..., K].
Status set_shape(BlockQuantization& blocks, const Tensor& x) {
  SUBBYTE_CHECK(check_floats(x));
  if (x.dim() < 1 || x.size(-1) < 1) return refuse(x, "at least one column");
  blocks.input = x.format();
  blocks.cols = x.size(-1);
  blocks.rows = x.count() / blocks.cols;
  return {};
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

Status quantize(const BlockQuantization& blocks, const Tensor& x, Tensor& codes, Tensor& scales,
                const Nvfp4Extras& extras = {}) {
  if (blocks.rows == 0) return {};
  if (!x.on_cpu()) {
    return quantize_there(blocks, x, codes, scales, extras);
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  if (extras.search) {
    return quantize_four_over_six(machine, blocks, *extras.search, x, codes, scales);
  }
  return cpu::quantize_blocks(blocks, x.data(), codes.data(), scales.data(), machine.kernels(),
                              machine.executor());
}

Status mxfp8_quantize(Arguments& arguments, Results& results) {
  const Tensor x = arguments.packed_tensor("input");
  const bool swizzled = arguments.boolean();
  const int64_t alignment = arguments.integer();
  arguments.optional_boolean();  // enable_pdl
  arguments.text();              // backend
  const std::optional<int64_t> layout = arguments.optional_integer();
  BlockQuantization blocks;
  SUBBYTE_CHECK(set_shape(blocks, x));
  SUBBYTE_TRY(blocks.layout, layout_of(layout.value_or(swizzled ? 0 : 2)));
  blocks.alignment = alignment;
  SUBBYTE_CHECK(check_block_quantization(blocks));
  std::vector<int64_t> sizes(x.sizes().begin(), x.sizes().end());
  sizes.back() = blocks.padded_cols();
  Tensor codes = Tensor::empty(sizes, numbers().e4m3, x);
  Tensor scales = Tensor::empty(std::array{blocks.scale_bytes()}, numbers().u8, x);
  SUBBYTE_CHECK(quantize(blocks, x, codes, scales));
  results.add(std::move(codes));
  results.add(std::move(scales));
  return {};
}

/// [M, K] to bytes [M, K/2] and scales in two dimensions.
Status quantize_e2m1(BlockQuantization blocks, const Tensor& x, Results& results,
                     const Nvfp4Extras& extras = {}) {
  SUBBYTE_CHECK(check_dim(x, 2));
  SUBBYTE_CHECK(set_shape(blocks, x));
  blocks.alignment = 32;
  SUBBYTE_CHECK(check_block_quantization(blocks));
  if (blocks.padded_cols() != blocks.cols) return refuse(x, "columns in 32s");
  Tensor codes = Tensor::empty(std::array{blocks.rows, blocks.row_bytes()}, numbers().u8, x);
  Tensor scales =
      Tensor::empty(std::array{blocks.scale_rows(), blocks.scale_cols()}, numbers().u8, x);
  SUBBYTE_CHECK(quantize(blocks, x, codes, scales, extras));
  results.add(std::move(codes));
  results.add(std::move(scales));
  return {};
}

Status mxfp4_quantize(Arguments& arguments, Results& results) {
  const Tensor x = arguments.packed_tensor("a");
  arguments.text();              // backend
  arguments.optional_boolean();  // enable_pdl
  const int64_t layout = arguments.integer();
  BlockQuantization blocks;
  blocks.format = BlockFormat::kMxfp4;
  SUBBYTE_TRY(blocks.layout, layout_of(layout));
  return quantize_e2m1(blocks, x, results);
}

Status nvfp4_quantize(Arguments& arguments, Results& results) {
  const Tensor x = arguments.packed_tensor("a");
  const Tensor global = arguments.packed_tensor("a_global_sf");
  const int64_t layout = arguments.integer();
  const bool shuffle = arguments.boolean();
  const int64_t vector = arguments.integer();
  arguments.optional_boolean();  // enable_pdl
  arguments.text();              // backend
  const bool per_token = arguments.boolean();
  const std::optional<std::string> error = arguments.optional_text();
  SUBBYTE_CHECK(check_dtype(global, {numbers().f32}));
  if (global.count() != 1) return refuse(global, "one number");
  if (shuffle) return refuse("do_shuffle", "False", "True");
  if (vector != 16) return refuse("sf_vec_size", "16", std::to_string(vector));
  if (per_token) return refuse("per_token_activation", "False", "True");
  BlockQuantization blocks;
  blocks.format = BlockFormat::kNvfp4;
  SUBBYTE_TRY(blocks.layout, layout_of(layout));
  if (error && *error != "MAE" && *error != "MSE") {
    return refuse("nvfp4_4over6", "MAE or MSE", *error);
  }
  float global_scale = 1;
  Nvfp4Extras extras;
  if (!x.on_cpu() && global.same_device(x)) {
    extras.global_scale = &global;
  } else {
    global_scale = *global.to_cpu().data<float>();
    blocks.tensor_scale = 1 / global_scale;
  }
  if (error) {
    extras.search = {global_scale, *error == "MSE" ? BlockError::kSquared : BlockError::kAbsolute};
  }
  return quantize_e2m1(blocks, x, results, extras);
}

/// Codes of e2m1 with scales in some layout, to floats [M, K].
struct Fp4 {
  const Tensor& codes;
  const Tensor& scales;
  BlockQuantization blocks;
  double factor;

  Status check() {
    SUBBYTE_CHECK(check_dtype(codes, {numbers().u8}));
    SUBBYTE_CHECK(check_dim(codes, 2));
    blocks.rows = codes.size(0);
    blocks.cols = codes.size(1) * 2;
    blocks.input = Format::kF32;
    if (blocks.cols == 0 || blocks.cols % blocks.group() != 0) {
      return refuse(codes, "columns of whole groups of " + std::to_string(blocks.group()));
    }
    SUBBYTE_CHECK(check_block_quantization(blocks));
    SUBBYTE_CHECK(check_dtype(scales, {numbers().u8, numbers().e4m3,
                                       numbers().e8m0 >= 0 ? numbers().e8m0 : numbers().u8}));
    // Linear scales have no padding, whatever the columns of the codes are filled up to.
    const int64_t expected = blocks.layout == ScaleLayout::kLinear
                                 ? blocks.rows * blocks.cols / blocks.group()
                                 : blocks.scale_bytes();
    if (scales.count() == expected) return {};
    return refuse(scales, std::to_string(expected) + " scales");
  }

  Status to_floats(Results& results) const {
    Tensor out = Tensor::empty(std::array{blocks.rows, blocks.cols}, numbers().f32, codes);
    SUBBYTE_CHECK(check_device(scales, codes));
    if (!codes.on_cpu()) {
      if (out.count() > 0) {
        SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
        const Tensor from = aligned(codes);
        SUBBYTE_CHECK(device::dequantize_blocks(blocks, from.data(), scales.data(), factor,
                                                out.data<float>(), gpu));
      }
      results.add(std::move(out));
      return {};
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
    results.add(std::move(out));
    return {};
  }
};

Status mxfp4_dequantize(Arguments& arguments, Results& results) {
  const Tensor codes = arguments.packed_tensor("a_fp4");
  const Tensor scales = arguments.packed_tensor("a_sf");
  Fp4 in = {codes, scales, {}, 1};
  in.blocks.format = BlockFormat::kMxfp4;
  SUBBYTE_TRY(in.blocks.layout, layout_of(arguments.integer()));
  SUBBYTE_CHECK(in.check());
  return in.to_floats(results);
}

Status mxfp4_dequantize_host(Arguments& arguments, Results& results) {
  const Tensor codes = arguments.packed_tensor("weight");
  const Tensor scales = arguments.packed_tensor("scale");
  const int64_t group = arguments.integer();
  if (group != 32) return refuse("group_size", "32", std::to_string(group));
  Fp4 in = {codes, scales, {}, 1};
  in.blocks.format = BlockFormat::kMxfp4;
  in.blocks.layout = ScaleLayout::kLinear;
  SUBBYTE_CHECK(in.check());
  return in.to_floats(results);
}

Status scale_to_float(Arguments& arguments, Results& results) {
  const Tensor codes = arguments.packed_tensor("e2m1_tensor");
  const Tensor scales = arguments.packed_tensor("ufp8_scale_tensor");
  const std::optional<Tensor> global = arguments.optional_tensor("global_scale_tensor");
  const int64_t vector = arguments.integer();
  const int64_t type = arguments.integer();
  const bool swizzled = arguments.boolean();
  const bool eight = arguments.boolean();
  const bool nv = vector == 16 && type == 1;
  if (!nv && !(vector == 32 && type == 0)) {
    return refuse("sf_vec_size and ufp8_type", "16 and 1 (E4M3), or 32 and 0 (E8M0)",
                  std::to_string(vector) + " and " + std::to_string(type));
  }
  double factor = 1;
  if (global) {
    SUBBYTE_CHECK(check_dtype(*global, {numbers().f32}));
    if (global->count() != 1) return refuse(*global, "one number");
    factor = *global->host().data<float>();
  }
  Fp4 in = {codes, scales, {}, factor};
  in.blocks.format = nv ? BlockFormat::kNvfp4 : BlockFormat::kMxfp4;
  in.blocks.layout = !swizzled ? ScaleLayout::kLinear
                     : eight   ? ScaleLayout::k8x4
                               : ScaleLayout::k128x4;
  SUBBYTE_CHECK(in.check());
  return in.to_floats(results);
}

/// Scales [M, C] or [E, M, C] to atoms of 128 x 4, each expert for itself.
Status block_scale_interleave(Arguments& arguments, Results& results) {
  const Tensor in = arguments.packed_tensor("unswizzled_sf");
  SUBBYTE_CHECK(check_dtype(in, {numbers().u8, numbers().bf16}));
  if (in.dim() != 2 && in.dim() != 3) return refuse(in, "2 or 3 dimensions");
  const int64_t experts = in.dim() == 3 ? in.size(0) : 1;
  const int64_t rows = in.size(-2);
  const int64_t cols = in.size(-1);
  const int64_t padded_rows = (rows + 127) / 128 * 128;
  const int64_t padded_cols = (cols + 3) / 4 * 4;
  const int64_t width = in.dtype() == numbers().u8 ? 1 : 2;
  SUBBYTE_TRY(Tensor out,
              results.result(std::array{experts * padded_rows * padded_cols}, in.dtype(), in));
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
    results.add(std::move(out));
    return {};
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
  results.add(std::move(out));
  return {};
}

struct Gemm {
  explicit Gemm(Arguments& arguments)
      : a(arguments.packed_tensor("a")),
        b(arguments.packed_tensor("b")),
        a_scale(arguments.packed_tensor("a_scale")),
        b_scale(arguments.packed_tensor("b_scale")),
        m_indptr(arguments.packed_tensor("m_indptr")) {
    gemm.mma_sm = small(arguments.integer());
    gemm.tile_m = small(arguments.integer());
    gemm.tile_n = small(arguments.integer());
    gemm.tile_k = small(arguments.integer());
    gemm.swap_ab = arguments.boolean();
  }

  static int small(int64_t number) {
    return static_cast<int>(std::clamp<int64_t>(number, -1, 4096));
  }

  Status check(int32_t out_dtype) {
    const Numbers& n = numbers();
    SUBBYTE_CHECK(check_dtype(a, {n.e4m3, n.e5m2}));
    SUBBYTE_CHECK(check_dim(a, 2));
    SUBBYTE_CHECK(check_dtype(b, {n.u8}));
    SUBBYTE_CHECK(check_dim(b, 3));
    SUBBYTE_CHECK(check_dtype(m_indptr, {n.i32}));
    SUBBYTE_CHECK(check_sizes(m_indptr, {b.size(0) + 1}));
    SUBBYTE_CHECK(check_sizes(b, {b.size(0), b.size(1), a.size(1) / 2}));
    if (out_dtype != n.bf16 && out_dtype != n.f16) {
      return refuse("out_dtype", "bf16 or f16", name_of(out_dtype));
    }
    gemm.a = a.span();
    gemm.b = b.span();
    gemm.a_scale = a_scale.span();
    gemm.b_scale = b_scale.span();
    gemm.m_indptr = m_indptr.span<const int32_t>();
    gemm.n = b.size(1);
    gemm.k = a.size(1);
    gemm.a_dtype = a.format();
    gemm.out_dtype = out_dtype == n.bf16 ? Format::kBF16 : Format::kF16;
    return {};
  }
  /// What check_group_gemm() checks on the host, but for the values of m_indptr.
  Status check_on_gpu() const {
    for (const Tensor* tensor : {&b, &a_scale, &b_scale, &m_indptr}) {
      SUBBYTE_CHECK(check_device(*tensor, a));
    }
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
    return flashinfer::group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, machine.execution());
  }

  Tensor a;
  Tensor b;
  Tensor a_scale;
  Tensor b_scale;
  Tensor m_indptr;
  flashinfer::GroupGemm gemm;
};

Status group_gemm(Arguments& arguments, Results& results) {
  Gemm in(arguments);
  const std::optional<int64_t> dtype = arguments.optional_integer();
  const int32_t out_dtype = dtype ? static_cast<int32_t>(*dtype) : numbers().bf16;
  SUBBYTE_CHECK(in.check(out_dtype));
  Tensor out = Tensor::empty(std::array{in.a.size(0), in.gemm.n}, out_dtype, in.a);
  SUBBYTE_CHECK(in.multiply_to(out));
  results.add(std::move(out));
  return {};
}

Status group_gemm_out(Arguments& arguments, Results&) {
  Gemm in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_CHECK(in.check(out.dtype()));
  SUBBYTE_CHECK(check_device(out, in.a));
  SUBBYTE_CHECK(check_out(out, std::array{in.a.size(0), in.gemm.n}, out.dtype()));
  return in.multiply_to(out);
}

#define SUBBYTE_GEMM                                                                    \
  "Tensor a, Tensor b, Tensor a_scale, Tensor b_scale, Tensor m_indptr, int mma_sm=1, " \
  "int tile_m=128, int tile_n=128, int tile_k=128, bool swap_ab=True"

constexpr Operator kOperators[] = {
    {"mxfp8_quantize(Tensor input, bool is_sf_swizzled_layout=True, int alignment=32, "
     "bool? enable_pdl=None, str backend=\"cuda\", int? sf_swizzle_layout=None) -> "
     "(Tensor, Tensor)",
     kernel<mxfp8_quantize>, kernel<mxfp8_quantize>},
    {"mxfp4_quantize(Tensor a, str backend=\"cuda\", bool? enable_pdl=None, int sfLayout=0) -> "
     "(Tensor, Tensor)",
     kernel<mxfp4_quantize>, kernel<mxfp4_quantize>},
    {"nvfp4_quantize(Tensor a, Tensor a_global_sf, int sfLayout=0, bool do_shuffle=False, "
     "int sf_vec_size=16, bool? enable_pdl=None, str backend=\"cuda\", "
     "bool per_token_activation=False, str? nvfp4_4over6=None) -> (Tensor, Tensor)",
     kernel<nvfp4_quantize>, kernel<nvfp4_quantize>},
    {"mxfp4_dequantize(Tensor a_fp4, Tensor a_sf, int sfLayout=0) -> Tensor",
     kernel<mxfp4_dequantize>, kernel<mxfp4_dequantize>},
    {"mxfp4_dequantize_host(Tensor weight, Tensor scale, int group_size=32) -> Tensor",
     kernel<mxfp4_dequantize_host>, kernel<mxfp4_dequantize_host>},
    {"e2m1_and_ufp8sf_scale_to_float(Tensor e2m1_tensor, Tensor ufp8_scale_tensor, "
     "Tensor? global_scale_tensor=None, int sf_vec_size=16, int ufp8_type=1, "
     "bool is_sf_swizzled_layout=True, bool is_sf_8x4_layout=False) -> Tensor",
     kernel<scale_to_float>, kernel<scale_to_float>},
    {"block_scale_interleave(Tensor unswizzled_sf) -> Tensor", kernel<block_scale_interleave>,
     kernel<block_scale_interleave>},
    {"block_scale_interleave_out(Tensor unswizzled_sf, *, Tensor(a!) out) -> ()",
     kernel_out<block_scale_interleave, 1>, kernel_out<block_scale_interleave, 1>},
    {"nvfp4_block_scale_interleave(Tensor unswizzled_sf) -> Tensor", kernel<block_scale_interleave>,
     kernel<block_scale_interleave>},
    {"group_gemm_mxfp8_mxfp4_nt_groupwise(" SUBBYTE_GEMM ", ScalarType? out_dtype=None) -> Tensor",
     kernel<group_gemm>, kernel<group_gemm>},
    {"group_gemm_mxfp4_nt_groupwise(" SUBBYTE_GEMM ", ScalarType? out_dtype=None) -> Tensor",
     kernel<group_gemm>, kernel<group_gemm>},
    {"group_gemm_mxfp8_mxfp4_nt_groupwise_out(" SUBBYTE_GEMM ", *, Tensor(a!) out) -> ()",
     kernel<group_gemm_out>, kernel<group_gemm_out>},
};

}  // namespace

std::span<const Operator> flashinfer_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
