#include "device/packed_matrix.h"

#include <string>

#include "device/joined_matrices.h"
#include "device/operands.h"
#include "kernels/cuda/dense/dense.h"
#include "kernels/cuda/elementwise/activations.h"
#include "kernels/cuda/quantize/dequantize.h"
#include "kernels/cuda/w8a8.h"
#include "kernels/gpu/supported_format.h"
#include "matrix/input_order.h"

namespace subbyte::device {
namespace {

using gpu::Number;
using gpu::RowOrder;

Format format_of(Element element) {
  return element == Element::kF32   ? Format::kF32
         : element == Element::kF16 ? Format::kF16
                                    : Format::kBF16;
}

Number number_of(const Product& product) {
  return product.number == Format::kBF16 ? Number::kBF16 : Number::kF16;
}

cuda::Activation gate_of(Activation activation) {
  switch (activation) {
    case Activation::kSiluGate:
      return cuda::Activation::kSwiGLU;
    case Activation::kGeluGate:
      return cuda::Activation::kGeGLU;
    case Activation::kClampedGate:
      return cuda::Activation::kClampedSwiGLU;
    default:
      return cuda::Activation::kNone;
  }
}

cuda::Unary unary_of(Activation activation) {
  return activation == Activation::kRelu   ? cuda::Unary::kRelu
         : activation == Activation::kGelu ? cuda::Unary::kGelu
                                           : cuda::Unary::kNone;
}

/// Kernels of dense weights gather no inputs.
Status check_dense(const MatrixView& view) {
  if (view.input_order.empty()) return {};
  return refuse("input_order", "none with dense weights on a GPU", "one");
}

MatrixView outline(MatrixView view) {
  view.codes = view.scales = view.zeros = {};
  view.codebook = {};
  view.input_order = {};
  return view;
}

}  // namespace

PackedMatrix::PackedMatrix(Buffer memory, const MatrixView& given, const MatrixView& view,
                           RowOrder order, const cuda::Device& device, int index)
    : index_(index),
      device_(device),
      view_(outline(given)),
      row_order_(order),
      memory_(std::move(memory)),
      tensor_scale_(view.tensor_scale) {
  view_.rows = view.rows;
  if (subbyte::is_dense(view.format)) dense_ = element_of(view.format.element);
}

PackedMatrix::PackedMatrix(Buffer memory, const MatrixView& given, const MatrixView& view,
                           const gpu::PackedFormat& format, const cuda::Device& device, int index)
    : PackedMatrix(std::move(memory), given, view, format.row_order, device, index) {
  dense_.reset();
  format_ = format;
  codebook_.assign(view.codebook.begin(), view.codebook.end());
  for (const Number number : {Number::kF16, Number::kBF16}) {
    arguments_[static_cast<std::size_t>(number)] =
        cuda::weight_arguments(memory_.data(), format, view.tensor_scale, number);
  }
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::upload(std::span<const Matrix> matrices,
                                                                 const MatrixView& given,
                                                                 RowOrder order, const Gpu& gpu,
                                                                 Uploader& uploader) {
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index()));
  JoinedMatrices joined(matrices);
  if (subbyte::is_dense(joined.view().format)) {
    SUBBYTE_CHECK(check_dense(joined.view()));
    int64_t bytes = 0;
    for (const Matrix& matrix : matrices) bytes += std::ssize(matrix.view.codes);
    SUBBYTE_TRY(Buffer memory, gpu.allocate(bytes));
    std::byte* at = memory.data();
    for (const Matrix& matrix : matrices) {
      SUBBYTE_CHECK(uploader.copy(at, matrix.view.codes, gpu));
      at += std::ssize(matrix.view.codes);
    }
    return std::make_shared<const PackedMatrix>(std::move(memory), given, joined.view(), order,
                                                device, gpu.index());
  }
  SUBBYTE_TRY(std::byte* const staging, uploader.staging(joined.staged_bytes(), gpu));
  SUBBYTE_CHECK(joined.stage_at(staging, order));
  std::vector<UploadPiece> pieces;
  joined.add_pieces(0, pieces);
  SUBBYTE_CHECK(uploader.copy_pieces(staging, pieces, joined.staged_bytes(), gpu));
  SUBBYTE_TRY(Buffer memory, gpu.allocate(joined.format().bytes));
  SUBBYTE_CHECK(joined.pack(memory.data(), gpu));
  return std::make_shared<const PackedMatrix>(std::move(memory), given, joined.view(),
                                              joined.format(), device, gpu.index());
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::upload(Matrix matrix, RowOrder order,
                                                                 const Gpu& gpu, Executor& host) {
  const MatrixView given = outline(matrix.view);
  SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), host));
  Uploader uploader(host, gpu.memory(), Uploader::Copies::kFew);
  SUBBYTE_TRY(auto made, upload(std::span(&matrix, 1), given, order, gpu, uploader));
  SUBBYTE_CHECK(uploader.finish(gpu));
  return made;
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::pack(const StridedMatrix& from,
                                                               RowOrder order, const Gpu& gpu,
                                                               Executor& host) {
  SUBBYTE_TRY(StagedMatrix staged, StagedMatrix::gather(from, gpu));
  if (!staged.can_be_supported()) {
    SUBBYTE_TRY(Matrix copy, staged.to_host(gpu));
    const std::string fault = input_order_fault(copy.view.input_order);
    if (!fault.empty()) {
      return Error{kArgument, "input_order: expected " + fault};
    }
    return upload(std::move(copy), order, gpu, host);
  }
  SUBBYTE_TRY(const cuda::Device device, cuda::query_device(gpu.index()));
  SUBBYTE_CHECK(staged.support(gpu));
  const MatrixView& view = staged.view();
  std::shared_ptr<const PackedMatrix> made;
  if (subbyte::is_dense(view.format)) {
    SUBBYTE_CHECK(check_dense(view));
    SUBBYTE_TRY(Buffer memory, gpu.allocate(std::ssize(view.codes)));
    SUBBYTE_CHECK(gpu.copy(memory.data(), view.codes.data(), std::ssize(view.codes)));
    made = std::make_shared<const PackedMatrix>(std::move(memory), from.view, view, order, device,
                                                gpu.index());
  } else {
    SUBBYTE_TRY(const gpu::PackedFacts facts, staged.find_facts(gpu));
    SUBBYTE_TRY(const gpu::PackedFormat format, gpu::packed_format(view, order, facts));
    SUBBYTE_TRY(Buffer memory, gpu.allocate(format.bytes));
    SUBBYTE_CHECK(cuda::pack_on_device(memory.data(), view, format, gpu.stream()));
    made = std::make_shared<const PackedMatrix>(std::move(memory), from.view, view, format, device,
                                                gpu.index());
  }
  SUBBYTE_CHECK(gpu.wait("packing the weights"));
  return made;
}

MatrixView PackedMatrix::held() const {
  MatrixView held;
  held.rows = view_.rows;
  held.cols = view_.cols;
  held.tensor_scale = tensor_scale_;
  if (is_dense()) {
    held.format.element = format_of(*dense_);
    held.format.scale = Format::kNone;
    return held;
  }
  held.format = format_.source;
  return held;
}

Result<StagedMatrix> PackedMatrix::unpack(const Gpu& gpu) const {
  MatrixView shape = held();
  if (is_dense()) {
    shape.codes = memory_.span();
    return StagedMatrix::of(shape);
  }
  shape.codebook = codebook_;
  return StagedMatrix::unpack(memory_.data(), format_, shape, gpu);
}

Result<cuda::Plan> PackedMatrix::plan_of(const Product& p, int64_t m, bool aligned) const {
  return plans_.find(format_, device_,
                     {m, number_of(p), aligned, p.batch_invariant, rounds_inputs(p, m, aligned)});
}

/// Fewer rows read their weights about as long as they multiply.
bool PackedMatrix::rounds_inputs(const Product& p, int64_t m, bool aligned) const {
  constexpr int64_t kLeastRows = 256;
  return p.fp8_inputs && aligned && m >= kLeastRows && cuda::has_w8a8_products(format_);
}

Status PackedMatrix::check(const Product& p) const {
  if (is_dense() && p.bias_number == Format::kF32 && tensor_scale_ != 1) {
    return Error{"linear.unsupported", "dense weights with a factor beside a bias in f32"};
  }
  if (multiplies_floats(p)) return {};
  SUBBYTE_CHECK(plan_of(p, p.m, p.x_stride % 8 == 0));
  return {};
}

Status PackedMatrix::multiply(const Product& p, const Gpu& gpu) const {
  if (p.m * p.batch == 0) return {};
  if (p.is_joined()) return run(p, p.m * p.batch, gpu);
  const int64_t width = info(p.number).bits / 8;
  Product one = p;
  for (int64_t i = 0; i < p.batch; ++i) {
    one.x = static_cast<const std::byte*>(p.x) + width * i * p.x_batch_stride;
    one.y = static_cast<std::byte*>(p.y) + width * i * p.y_batch_stride;
    if (p.residual != nullptr) {
      one.residual =
          static_cast<const std::byte*>(p.residual) + width * i * p.residual_batch_stride;
    }
    SUBBYTE_CHECK(run(one, p.m, gpu));
  }
  return {};
}

/// Sums of a gate whose halves no kernel has side by side come first.
int64_t PackedMatrix::workspace_bytes(const Product& p, int64_t m, const cuda::Plan& plan) const {
  if (is_fused(p)) return plan.workspace_bytes;
  return aligned(2 * m * view_.rows) + plan.workspace_bytes;
}

/// Sums, and the weights as floats where they are packed.
int64_t PackedMatrix::dense_workspace(int64_t m) const {
  const int64_t weights = is_dense() ? 0 : 4 * view_.rows * view_.cols;
  return aligned(4 * m * view_.rows) + weights;
}

Status PackedMatrix::reserve(const Product& p, const Gpu& gpu) const {
  const int64_t m = p.is_joined() ? p.m * p.batch : p.m;
  if (m == 0) return {};
  if (multiplies_floats(p)) {
    SUBBYTE_CHECK(gpu.allocate(dense_workspace(m)));
    return {};
  }
  for (const bool is_aligned : {false, true}) {  // batches may begin anywhere
    SUBBYTE_TRY(const cuda::Plan plan, plan_of(p, m, is_aligned));
    SUBBYTE_CHECK(gpu.allocate(workspace_bytes(p, m, plan)));
  }
  return {};
}

Status PackedMatrix::run(const Product& p, int64_t m, const Gpu& gpu) const {
  if (multiplies_floats(p)) return run_dense(p, m, gpu);
  const bool is_aligned =
      ((p.x_stride | view_.cols) % 8) == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0;
  SUBBYTE_TRY(const cuda::Plan plan, plan_of(p, m, is_aligned));
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(workspace_bytes(p, m, plan)));
  if (is_fused(p)) return launch(p, m, plan, is_aligned, memory.data(), gpu);
  Product sums = p;
  sums.y = memory.data();
  sums.y_stride = view_.rows;
  sums.residual = nullptr;
  sums.activation = Activation::kNone;
  std::byte* const workspace = memory.data() + aligned(2 * m * view_.rows);
  SUBBYTE_CHECK(launch(sums, m, plan, is_aligned, workspace, gpu));
  Product rest = p;
  rest.bias = nullptr;
  return finish(rest, m, sums.y, element_of(p.number), gpu);
}

Status PackedMatrix::launch(const Product& p, int64_t m, const cuda::Plan& plan, bool is_aligned,
                            std::byte* workspace, const Gpu& gpu) const {
  const Number number = number_of(p);
  cuda::LinearCall call;
  call.weights = arguments_[static_cast<std::size_t>(number)];
  call.format = &format_;
  call.x = p.x;
  call.y = p.y;
  call.bias = p.bias;
  call.residual = p.residual;
  call.x_stride = p.x_stride;
  call.y_stride = p.y_stride;
  call.residual_stride = p.residual_stride;
  call.m = m;
  call.activation = gate_of(p.activation);
  call.unary = unary_of(p.activation);
  call.swiglu = p.clamp;
  call.dependent_launch = p.dependent_launch;
  if (plan.workspace_bytes == 0) workspace = nullptr;
  if (rounds_inputs(p, m, is_aligned)) {
    return cuda::run_w8a8(plan, call, number, workspace, gpu.stream());
  }
  return cuda::run_linear(plan, call, number, workspace, gpu.stream());
}

Status PackedMatrix::run_dense(const Product& p, int64_t m, const Gpu& gpu) const {
  cuda::DenseCall call = {.weights = memory_.data(),
                          .weights_element = element(),
                          .x = p.x,
                          .x_element = element_of(p.number),
                          .y = p.y,
                          .m = m,
                          .rows = view_.rows,
                          .cols = view_.cols,
                          .x_stride = p.x_stride,
                          .y_stride = p.y_stride,
                          .batch_invariant = p.batch_invariant};
  if (is_plain(p)) {
    call.y_element = element_of(p.y_number == Format::kNone ? p.number : p.y_number);
    call.bias = static_cast<const float*>(p.bias);
    cuda::run_dense(call, gpu.stream());
    return gpu.check_launch("linear");
  }
  if ((p.bias != nullptr && p.bias_number == Format::kF32) || p.y_number != Format::kNone) {
    return Error{"linear.unsupported", "a bias or results in f32 with these weights"};
  }
  SUBBYTE_TRY(const Buffer memory, gpu.allocate(dense_workspace(m)));
  if (!is_dense()) {
    std::byte* const weights = memory.data() + aligned(4 * m * view_.rows);
    SUBBYTE_CHECK(dequantize(Format::kF32, weights, gpu));
    call.weights = weights;
  }
  call.y = memory.data();
  call.y_element = Element::kF32;
  call.y_stride = view_.rows;
  cuda::run_dense(call, gpu.stream());
  SUBBYTE_CHECK(gpu.check_launch("linear"));
  return finish(p, m, memory.data(), Element::kF32, gpu);
}

/// Computes what follows the sums of a dense matrix, or of a gate that no packed kernel has.
Status PackedMatrix::finish(const Product& p, int64_t m, const void* sums, Element sums_element,
                            const Gpu& gpu) const {
  const bool natural = row_order_ == RowOrder::kNatural;
  return cuda::run_epilogue(
      {.sums = sums,
       .sums_element = sums_element,
       .y = p.y,
       .bias = p.bias,
       .residual = p.residual,
       .element = element_of(p.number),
       .m = m,
       .cols = is_gate(p.activation) ? view_.rows / 2 : view_.rows,
       .sums_stride = view_.rows,
       .y_stride = p.y_stride,
       .residual_stride = p.residual_stride,
       .gain = is_dense() ? static_cast<float>(tensor_scale_) : 1,
       .unary = unary_of(p.activation),
       .gate = gate_of(p.activation),
       .swiglu = p.clamp,
       .gate_up_pairs = natural ? p.gate_in_turns : row_order_ == RowOrder::kGateUpPairs},
      gpu.stream());
}

Status PackedMatrix::dequantize(Format number, void* out, const Gpu& gpu) const {
  const Element element = element_of(number);
  if (!is_dense()) {
    return cuda::dequantize(memory_.data(), format_, tensor_scale_, element, out, gpu.stream());
  }
  return cuda::run_epilogue({.sums = memory_.data(),
                             .sums_element = *dense_,
                             .y = out,
                             .element = element,
                             .m = view_.rows,
                             .cols = view_.cols,
                             .sums_stride = view_.cols,
                             .y_stride = view_.cols,
                             .gain = static_cast<float>(tensor_scale_)},
                            gpu.stream());
}

}  // namespace subbyte::device
