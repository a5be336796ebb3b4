#include "checkpoints/flavours/input_factors.h"

#include <algorithm>

#include "base/float16.h"
#include "matrix/dequantize.h"

namespace subbyte {
namespace {

constexpr WeightFormat kFloats = {Format::kF32, Format::kNone, Zero::kNone, 0};

double number_at(const FileTensor& tensor, std::size_t index) {
  if (tensor.dtype == DType::kF32) return load_f32(tensor, index);
  uint16_t bits = 0;
  __builtin_memcpy(&bits, tensor.bytes.data() + 2 * index, 2);
  return tensor.dtype == DType::kF16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

}  // namespace

Result<InputFactors> input_factors(const TensorSource& tensors, std::string_view module) {
  return find_same(tensors, {fmt::format("{}.pre_quant_scale", module),
                             fmt::format("{}_pre_quant_scale", module)});
}

void add_activations(const ImportContext& context, std::string_view module, ModuleInfo& info) {
  for (const char* const suffix : {".input_scale", ".input_zero_point"}) {
    const FileTensor* const unused = find_tensor(context.tensors, module, suffix);
    if (unused != nullptr) info.tensors.push_back(unused);
  }
}

Result<ModuleInfo> with_input_factors(const InputFactors& factors, ModuleInfo stored) {
  SUBBYTE_CHECK(require_float(*factors.front()));
  SUBBYTE_CHECK(require_shape(*factors.front(), {static_cast<uint64_t>(stored.cols)}));
  stored.format = kFloats;
  stored.tensors.insert(stored.tensors.end(), factors.begin(), factors.end());
  return stored;
}

Result<std::vector<Matrix>> with_input_factors(const InputFactors& factors,
                                               const std::vector<Matrix>& stored, Executor& pool) {
  const FileTensor& counts = *factors.front();
  SUBBYTE_CHECK(check_scales(counts, pool));
  std::vector<double> factor(counts.shape[0]);
  for (std::size_t k = 0; k < factor.size(); ++k) factor[k] = number_at(counts, k);
  std::vector<Matrix> result;
  for (const Matrix& matrix : stored) {
    const MatrixView& view = matrix.view;
    const Dequantizer rows(view);
    const auto size = static_cast<std::size_t>(view.rows * view.cols) * sizeof(float);
    const auto bytes = allocate_bytes(size);
    auto* const floats = reinterpret_cast<float*>(bytes.get());
    pool.parallel_for(view.rows, 1, [&](int64_t begin, int64_t end, int) {
      std::vector<double> row(factor.size());
      for (int64_t n = begin; n < end; ++n) {
        rows.row(n, row.data());
        std::ranges::transform(row, factor, floats + n * view.cols, [](double weight, double by) {
          return static_cast<float>(weight * by);
        });
      }
    });
    Matrix scaled;
    scaled.view.format = kFloats;
    scaled.view.rows = view.rows;
    scaled.view.cols = view.cols;
    scaled.view.codes = {bytes.get(), size};
    scaled.owners = {bytes};
    result.push_back(std::move(scaled));
  }
  return result;
}

}  // namespace subbyte
