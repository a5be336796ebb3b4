#pragma once
// Weights in the memory of a GPU in the form of its kernels, with their products. Immutable:
// threads and streams may share one.
//
//   SUBBYTE_TRY(auto gpu, Gpu::use(0, stream, memory));
//   SUBBYTE_TRY(auto weights, PackedMatrix::upload(matrix, order, gpu, host));
//   SUBBYTE_CHECK(weights->multiply(product, gpu));
//
// A product takes its workspace from the memory of `gpu`, allocates nothing else, and does not
// wait. It may be captured into a graph where that memory can be allocated then. Beside x in f32
// the weights become floats in that workspace, 4 bytes each.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "device/gpu.h"
#include "device/plans.h"
#include "device/product.h"
#include "device/staged_matrix.h"
#include "device/uploader.h"
#include "kernels/cuda/linear.h"
#include "matrix/matrix.h"
#include "subbyte/executor.h"

namespace subbyte::device {

class PackedMatrix {
 public:
  /// Memory that holds, or will after what was launched, dense weights, or packed ones of `format`.
  /// `given`: what they were made of; `view`: what they are, and all but the codebook unread.
  PackedMatrix(Buffer memory, const MatrixView& given, const MatrixView& view, gpu::RowOrder order,
               const cuda::Device& device, int index);
  PackedMatrix(Buffer memory, const MatrixView& given, const MatrixView& view,
               const gpu::PackedFormat& format, const cuda::Device& device, int index);

  /// A matrix of the host. Formats that the kernels lack become others (gpu::support()). The stream
  /// is waited for. Codes: recast.*, linear.unsupported, argument, cuda.*.
  static Result<std::shared_ptr<const PackedMatrix>> upload(Matrix matrix, gpu::RowOrder order,
                                                            const Gpu& gpu, Executor& host);
  /// The same of matrices that gpu::support() has made of the format of `given`, and can_join()
  /// takes, one below the other. Returns before the GPU has done it, in the order of the stream.
  /// Codes: cuda.*, argument.
  static Result<std::shared_ptr<const PackedMatrix>> upload(std::span<const Matrix> matrices,
                                                            const MatrixView& given,
                                                            gpu::RowOrder order, const Gpu& gpu,
                                                            Uploader& uploader);
  /// A matrix of the memory of this GPU, which is gathered, recast and packed by kernels there.
  /// Only where cuda::dequantize() does not take a format that the packed kernels do not have it
  /// goes over the host. The stream is waited for. Codes: as upload(), argument (act-order).
  static Result<std::shared_ptr<const PackedMatrix>> pack(const StridedMatrix& from,
                                                          gpu::RowOrder order, const Gpu& gpu,
                                                          Executor& host);

  int index() const { return index_; }  // of the GPU
  int64_t rows() const { return view_.rows; }
  int64_t cols() const { return view_.cols; }
  int64_t bytes() const { return memory_.size(); }
  /// Format and shape as they were given, without bytes.
  const MatrixView& view() const { return view_; }
  /// The same of what unpack() gives: the format may be another.
  MatrixView held() const;

  /// Parts that kernels read which do several operations at once.
  bool is_dense() const { return dense_.has_value(); }
  Element element() const { return dense_.value_or(Element::kF32); }  // dense
  const gpu::PackedFormat& format() const { return format_; }         // packed
  const cuda::WeightArguments& arguments(gpu::Number number) const {  // packed
    return arguments_[static_cast<std::size_t>(number)];
  }
  std::span<const std::byte> memory() const { return memory_.span(); }

  /// Finds the plan of a product, as multiply() does. Codes: linear.unsupported, cuda.*.
  Status check(const Product& product) const;
  /// Operands that were checked; nothing for m = 0. Codes: cuda.*, linear.unsupported.
  Status multiply(const Product& product, const Gpu& gpu) const;
  /// Asks the memory of `gpu` for what that product will ask for; its addresses are not read.
  Status reserve(const Product& product, const Gpu& gpu) const;
  /// The weights as numbers [rows][cols] of f32, f16 or bf16. Does not wait. Codes: cuda.*.
  Status dequantize(Format number, void* out, const Gpu& gpu) const;
  /// The canonical matrix; its order of inputs, and the codes of a dense one, lie in this. Does not
  /// wait. Codes: cuda.*.
  Result<StagedMatrix> unpack(const Gpu& gpu) const;

 private:
  /// Says that the product is one of floats: x in f32 is rounded by no kernel of packed weights.
  bool multiplies_floats(const Product& product) const {
    return is_dense() || product.number == Format::kF32;
  }
  int64_t dense_workspace(int64_t m) const;
  /// Says that the kernel of the product computes the activation, too.
  bool is_fused(const Product& product) const {
    return !is_gate(product.activation) || row_order_ != gpu::RowOrder::kNatural;
  }
  Result<cuda::Plan> plan_of(const Product& product, int64_t m, bool aligned) const;
  int64_t workspace_bytes(const Product& product, int64_t m, const cuda::Plan& plan) const;
  Status run(const Product& product, int64_t m, const Gpu& gpu) const;
  Status run_dense(const Product& product, int64_t m, const Gpu& gpu) const;
  /// Says that the sums of dense weights, with a bias in f32, are y.
  bool is_plain(const Product& product) const {
    return is_dense() && tensor_scale_ == 1 && product.activation == Activation::kNone &&
           product.residual == nullptr &&
           (product.bias == nullptr || product.bias_number == Format::kF32);
  }
  bool rounds_inputs(const Product& product, int64_t m, bool aligned) const;
  Status launch(const Product& product, int64_t m, const cuda::Plan& plan, bool is_aligned,
                std::byte* workspace, const Gpu& gpu) const;
  Status finish(const Product& product, int64_t m, const void* sums, Element sums_element,
                const Gpu& gpu) const;

  int index_ = 0;
  cuda::Device device_;
  MatrixView view_;
  gpu::RowOrder row_order_ = gpu::RowOrder::kNatural;
  Buffer memory_;
  double tensor_scale_ = 1;
  std::optional<Element> dense_;  // nullopt: what follows
  gpu::PackedFormat format_;
  std::vector<float> codebook_;                          // of its own
  std::array<cuda::WeightArguments, 2> arguments_ = {};  // by Number
  mutable Plans plans_;
};

}  // namespace subbyte::device
