// Writers of flavours that are only read, each the inverse of the importer of its name, which draws
// the tensors (src/checkpoints/flavours/).

#include "transform/packing/source_flavours.h"

#include <algorithm>
#include <array>

#include "checkpoints/code_stream.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/transpose.h"
#include "foreign_layouts/marlin.h"
#include "foreign_layouts/marlin_int8.h"

namespace subbyte {
namespace {

using Tensors = std::vector<ExportedTensor>;

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr WeightFormat kNvfp4 = {Format::kE2M1, Format::kE4M3, Zero::kNone, 16};

Error wrong_format(std::string_view flavour, const ExportShape& shape, std::string_view module) {
  return export_error("export.format", module,
                      fmt::format("{} does not hold {}", flavour, to_string(shape.format)));
}

Status check_one_in_order(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  return require_input_order(shape, module);
}

// --- ModelOpt's MXFP4: the bytes of compressed-tensors by another name

Result<Tensors> describe_modelopt_mxfp4(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(check_one_in_order(shape, module));
  if (shape.format != kMxfp4) return wrong_format("modelopt_mxfp4", shape, module);
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto count = static_cast<uint64_t>(groups);
  return Tensors{{".weight", DType::kU8, {rows, count * 16}, {}},
                 {".weight_scale", DType::kU8, {rows, count}, {}}};
}

Result<Tensors> write_modelopt_mxfp4(const MatrixView& matrix, std::string_view module, Executor&) {
  SUBBYTE_TRY(Tensors tensors, describe_modelopt_mxfp4(shape_of(matrix), module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  std::ranges::copy(matrix.codes, tensors[0].bytes.begin());
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  return tensors;
}

// --- ModelOpt's NVFP4 experts of gpt-oss: inputs before outputs, byte by byte

Result<Tensors> describe_modelopt_experts(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (shape.format != kNvfp4) return wrong_format("modelopt_experts", shape, module);
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto experts = static_cast<uint64_t>(shape.experts);
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto count = static_cast<uint64_t>(groups);
  return Tensors{{"", DType::kU8, {experts, count * 8, rows}, {}},
                 {"_weight_scale", DType::kF8E4M3, {experts, count, rows}, {}}};
}

/// The factor of all experts stays a tensor of its own.
Result<Tensors> write_modelopt_experts(std::span<const Matrix> experts, std::string_view module,
                                       Executor& pool) {
  ExportShape shape = shape_of(experts.front().view);
  shape.experts = std::ssize(experts);
  SUBBYTE_TRY(Tensors tensors, describe_modelopt_experts(shape, module));
  allocate(tensors);
  std::byte* codes = tensors[0].bytes.data();
  std::byte* scales = tensors[1].bytes.data();
  for (const Matrix& expert : experts) {
    const MatrixView& view = expert.view;
    transpose(codes, view.codes.data(), view.rows, view.row_bytes(), 1, pool);
    transpose(scales, view.scales.data(), view.rows, view.groups(), 1, pool);
    codes += view.codes.size();
    scales += view.scales.size();
  }
  return tensors;
}

// --- compressed-tensors' naive-quantized: a signed byte for each integer

/// Bits of integers that it holds, 0 for other formats.
int naive_bits(const WeightFormat& format) {
  const bool is_signed = format.element >= Format::kI2 && format.element <= Format::kI8;
  const bool is_unsigned = format.element >= Format::kU2 && format.element <= Format::kU8;
  const bool has_zeros = format.zero == Zero::kU8 || format.zero == Zero::kU16;
  const bool fits = (is_signed && format.zero == Zero::kNone) || (is_unsigned && has_zeros);
  return fits ? info(format.element).bits : 0;
}

Result<Tensors> describe_naive(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(check_one_in_order(shape, module));
  if (naive_bits(shape.format) == 0) return wrong_format("naive_quantized", shape, module);
  SUBBYTE_TRY(const DType scale, scale_dtype(shape.format.scale, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const Shape of_groups = {rows, static_cast<uint64_t>(groups)};
  Tensors tensors = {{".weight", DType::kI8, {rows, static_cast<uint64_t>(shape.cols)}, {}},
                     {".weight_scale", scale, of_groups, {}}};
  if (shape.format.zero != Zero::kNone) {
    tensors.push_back({".weight_zero_point", DType::kI8, of_groups, {}});
  }
  return tensors;
}

Result<Tensors> write_naive(const MatrixView& matrix, std::string_view module, Executor& pool) {
  SUBBYTE_TRY(Tensors tensors, describe_naive(shape_of(matrix), module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  const int bits = naive_bits(matrix.format);
  const uint32_t half = 1u << (bits - 1);
  pool.parallel_for(matrix.rows, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t n = begin; n < end; ++n) {
      const std::byte* const row = matrix.codes.data() + n * matrix.row_bytes();
      std::byte* const to = tensors[0].bytes.data() + n * matrix.cols;
      for (int64_t k = 0; k < matrix.cols; ++k) {
        to[k] = static_cast<std::byte>(stream_code(row, k, bits) - half);
      }
    }
  });
  std::ranges::copy(matrix.scales, tensors[1].bytes.begin());
  if (matrix.zeros.empty()) return tensors;
  for (int64_t i = 0; i < std::ssize(tensors[2].bytes); ++i) {
    const uint32_t zero = load_zero(matrix, i / matrix.groups(), i % matrix.groups());
    if (zero >= 2 * half) return wrong_format("naive_quantized", shape_of(matrix), module);
    tensors[2].bytes[static_cast<std::size_t>(i)] = static_cast<std::byte>(zero - half);
  }
  return tensors;
}

// --- GPTQ in Marlin's layout

struct MarlinNames {
  std::string_view words;
  std::string_view scales;
};
constexpr MarlinNames kAutoGptq = {".B", ".s"};
constexpr MarlinNames kQweight = {".qweight", ".scales"};

template <const MarlinNames& names>
Result<Tensors> describe_marlin(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(check_one_in_order(shape, module));
  const Format element = shape.format.element;
  if ((element != Format::kI4 && element != Format::kI8) || shape.format.zero != Zero::kNone) {
    return wrong_format("GPTQ in Marlin's layout", shape, module);
  }
  SUBBYTE_CHECK(check_marlin_shape(shape.rows, shape.cols));
  SUBBYTE_TRY(const DType scale, scale_dtype(shape.format.scale, module));
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  const auto rows = static_cast<uint64_t>(shape.rows);
  const auto cols = static_cast<uint64_t>(shape.cols);
  const auto bits = static_cast<uint64_t>(info(element).bits);
  return Tensors{{names.words, DType::kI32, {cols / 16, rows * bits / 2}, {}},
                 {names.scales, scale, {static_cast<uint64_t>(groups), rows}, {}}};
}

template <const MarlinNames& names>
Result<Tensors> write_marlin(const MatrixView& matrix, std::string_view module, Executor&) {
  SUBBYTE_TRY(Tensors tensors, describe_marlin<names>(shape_of(matrix), module));
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(tensors);
  const bool wide = matrix.format.element == Format::kI8;
  (wide ? pack_marlin_int8 : pack_marlin)(tensors[0].bytes.data(), matrix.codes.data(), matrix.rows,
                                          matrix.cols);
  pack_marlin_scales(tensors[1].bytes.data(), matrix.scales.data(), matrix.rows, matrix.groups(),
                     info(matrix.format.scale).bits / 8);
  return tensors;
}

constexpr Exporter kReadOnly[] = {
    {.name = "modelopt_mxfp4", .describe = describe_modelopt_mxfp4, .write = write_modelopt_mxfp4},
    {.name = "modelopt_experts",
     .describe = describe_modelopt_experts,
     .write_experts = write_modelopt_experts},
    {.name = "naive_quantized", .describe = describe_naive, .write = write_naive},
    {.name = "marlin", .describe = describe_marlin<kAutoGptq>, .write = write_marlin<kAutoGptq>},
    {.name = "marlin_qweight",
     .describe = describe_marlin<kQweight>,
     .write = write_marlin<kQweight>},
};

}  // namespace

const std::vector<const Exporter*>& all_source_flavours() {
  static const auto& all = *[] {
    auto* flavours = new std::vector<const Exporter*>();
    for (const Exporter* exporter : all_exporters()) flavours->push_back(exporter);
    for (const Exporter& exporter : kReadOnly) flavours->push_back(&exporter);
    return flavours;
  }();
  return all;
}

const Exporter* find_source_flavour(std::string_view name) {
  const auto found = std::ranges::find(all_source_flavours(), name, &Exporter::name);
  return found == all_source_flavours().end() ? nullptr : *found;
}

}  // namespace subbyte
