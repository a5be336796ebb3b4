// bitsandbytes' blocks and rotations, and FlashInfer's group GEMM, on GPUs of NVIDIA.

#include <algorithm>
#include <cstring>

#include "bitsandbytes/kbit_codes.h"
#include "kernels/cuda/group_gemm.h"
#include "kernels/cuda/ops/hadamard.h"
#include "kernels/cuda/ops/kbit.h"
#include "matrix/codebook.h"
#include "on_device.h"
#include "quantize/kbit.h"

namespace subbyte::torch_operators {
namespace {

cuda::KbitBuffers buffers_of(const BlockTensors& blocks) {
  cuda::KbitBuffers buffers;
  buffers.packed = blocks.packed->data<uint32_t>();
  buffers.absmax = blocks.absmax->data();
  buffers.packed_words = blocks.packed->count();
  buffers.absmax_elements = blocks.absmax->count();
  buffers.scale = blocks.scale;
  buffers.k = blocks.bits;
  return buffers;
}

/// A codebook in host memory. The copy is kept, so that later calls wait for nothing.
class Codebook {
 public:
  static Result<Codebook> of(const BlockTensors& blocks) {
    const Tensor& tensor = *blocks.codebook;
    SUBBYTE_TRY(auto kept, keep({"codebook on the host", {tensor.count()}, {}}, std::array{&tensor},
                                [&]() -> Result<Matrix> {
                                  Matrix matrix;
                                  const auto size = static_cast<std::size_t>(tensor.num_bytes());
                                  auto bytes = allocate_bytes(size);
                                  std::memcpy(bytes.get(), tensor.host().data(), size);
                                  matrix.view.codes = {bytes.get(), size};
                                  matrix.owners.push_back(std::move(bytes));
                                  return matrix;
                                }));
    Codebook codebook(std::move(kept));
    SUBBYTE_CHECK(codebook.check(blocks));
    return codebook;
  }

  std::span<const float> values() const { return numbers<float>(); }
  cuda::VqVectors vectors(int p) const { return {numbers<uint16_t>(), p}; }

 private:
  explicit Codebook(std::shared_ptr<const Matrix> kept) : kept_(std::move(kept)) {}

  Status check(const BlockTensors& blocks) const {
    if (blocks.p != 0) return bitsandbytes::check_vq_codebook(numbers<uint16_t>(), blocks.p);
    const std::string fault = codebook_fault(values(), kbit_element(blocks.bits));
    return fault.empty() ? Status() : Error{"kbit.codebook", "kbit: codebook: expected " + fault};
  }
  template <typename Number>
  std::span<const Number> numbers() const {
    const std::span<const std::byte> bytes = kept_->view.codes;
    return {reinterpret_cast<const Number*>(bytes.data()), bytes.size() / sizeof(Number)};
  }

  std::shared_ptr<const Matrix> kept_;
};

/// Weights of groups as the kernels read them.
struct GroupsOnGpu {
  cuda::GroupGemm gemm;
  Tensor bytes;
};

Result<std::shared_ptr<const GroupsOnGpu>> prepared(const flashinfer::GroupGemm& gemm,
                                                    const Tensor& b, const Tensor& b_scale,
                                                    cuda::Stream stream) {
  const auto make = [&]() -> Result<Matrix> {
    SUBBYTE_TRY(const cuda::Device device, cuda::query_device(b.device_index()));
    const cuda::GroupGemmShape shape = {b.size(0), gemm.n, gemm.k, cuda::GroupWeights::kFlashinfer};
    SUBBYTE_TRY(const cuda::GroupGemm made, cuda::GroupGemm::create(shape, device));
    const Tensor memory = bytes_on_gpu(made.prepare_bytes(), b);
    auto groups =
        std::make_shared<GroupsOnGpu>(GroupsOnGpu{made, bytes_on_gpu(made.weight_bytes(), b)});
    SUBBYTE_CHECK(
        made.prepare(groups->bytes.data(), b.data(), b_scale.data(), memory.data(), stream));
    SUBBYTE_CHECK(wait_for(stream));
    Matrix matrix;
    matrix.view.codes = groups->bytes.span();  // counted here, and read by the GPU alone
    matrix.owners.push_back(std::move(groups));
    return matrix;
  };
  SUBBYTE_TRY(const auto kept,
              keep({"groups", {gemm.n, gemm.k}, {}}, std::array{&b, &b_scale}, make));
  return std::static_pointer_cast<const GroupsOnGpu>(kept->owners.front());
}

}  // namespace

Status quantize_blocks_on_gpu(const Tensor& numbers, const BlockTensors& to) {
  const OnDevice device(numbers);
  SUBBYTE_TRY(const Codebook codebook, Codebook::of(to));
  if (to.p != 0) {
    return cuda::quantize_vq(numbers.data(), numbers.format(), numbers.count(),
                             codebook.vectors(to.p), buffers_of(to), device.stream());
  }
  SUBBYTE_TRY(const auto found, bitsandbytes::kbit_thresholds(codebook.values(), to.bits));
  cuda::KbitThresholds thresholds;
  std::ranges::copy(found, thresholds.values);
  return cuda::quantize_kbit(numbers.data(), numbers.format(), numbers.count(), thresholds,
                             buffers_of(to), device.stream(), to.nearest_scales);
}

Status dequantize_blocks_on_gpu(const BlockTensors& from, int64_t rows, int64_t cols, bool is_tiled,
                                Tensor& out) {
  const OnDevice device(out);
  SUBBYTE_TRY(const Codebook codebook, Codebook::of(from));
  cuda::KbitDequantization call;
  call.from = buffers_of(from);
  call.rows = rows;
  call.cols = cols;
  call.is_tiled = is_tiled;
  call.number = out.format();
  call.out = out.data();
  if (from.p != 0) return cuda::dequantize_vq(call, codebook.vectors(from.p), device.stream());
  call.codebook = codebook.values();
  return cuda::dequantize_kbit(call, device.stream());
}

Status repack_blocks_on_gpu(const BlockTensors& from, const BlockTensors& to, int64_t rows,
                            int64_t cols) {
  const OnDevice device(*from.packed);
  return cuda::repack_kbit(buffers_of(from), buffers_of(to), rows, cols, true, device.stream());
}

Status rotate_on_gpu(const Tensor& data, int64_t dim, const std::optional<Tensor>& signs) {
  const OnDevice device(data);
  cuda::HadamardCall call;
  call.data = data.data();
  call.element = element_of(data.format());
  call.runs = data.count() / dim;
  call.dim = static_cast<int32_t>(dim);
  call.signs = signs ? signs->data<const uint32_t>() : nullptr;
  return cuda::run_hadamard(call, device.stream());
}

Status group_gemm_on_gpu(const flashinfer::GroupGemm& gemm, const Tensor& a, const Tensor& a_scale,
                         const Tensor& b, const Tensor& b_scale, const Tensor& m_indptr,
                         Tensor& out) {
  const OnDevice device(a);
  SUBBYTE_TRY(const auto groups, prepared(gemm, b, b_scale, device.stream()));
  cuda::GroupGemmCall call;
  call.a = a.data();
  call.a_scale = a_scale.data();
  call.m_indptr = m_indptr.data<const int32_t>();
  call.m = a.size(0);
  call.weights = groups->bytes.data();
  call.out = out.data();
  call.a_dtype = gemm.a_dtype;
  call.out_dtype = gemm.out_dtype;
  call.mma_sm = gemm.mma_sm;
  call.tile_m = gemm.tile_m;
  call.tile_n = gemm.tile_n;
  call.tile_k = gemm.tile_k;
  call.swap_ab = gemm.swap_ab;
  const Tensor workspace = bytes_on_gpu(groups->gemm.workspace_bytes(call.m), a);
  return groups->gemm.run(call, workspace.data(), device.stream());
}

}  // namespace subbyte::torch_operators
