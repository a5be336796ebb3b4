#include "checkpoints/exporter.h"

#include <algorithm>
#include <set>

#include "base/quote.h"
#include "checkpoints/export_parts.h"
#include "checkpoints/flavour.h"

namespace subbyte {

namespace {

/// Those that write checkpoints, and after them the others.
struct Exporters {
  std::vector<const Exporter*> all;
  std::size_t num_of_checkpoints = 0;
};

const Exporters& exporters() {
  static const Exporters& list = *[] {
    auto* made = new Exporters();
    for (const Flavour* const flavour : all_flavours()) {
      made->all.insert(made->all.end(), flavour->exporters.begin(), flavour->exporters.end());
    }
    // Not of std::ranges: clang 14, which builds the fuzz targets, takes no subrange of g++ 12.
    const auto rest =
        std::stable_partition(made->all.begin(), made->all.end(),
                              [](const Exporter* exporter) { return exporter->config != nullptr; });
    made->num_of_checkpoints = static_cast<std::size_t>(rest - made->all.begin());
    return made;
  }();
  return list;
}

const Exporter* find_in(std::span<const Exporter* const> list, std::string_view name) {
  const auto found = std::ranges::find(list, name, &Exporter::name);
  return found == list.end() ? nullptr : *found;
}

}  // namespace

uint64_t ExportedTensor::num_bytes() const {
  return TensorDeclaration{{}, dtype, shape}.num_bytes();
}

ExportShape shape_of(const MatrixView& matrix) {
  ExportShape shape = {matrix.format, matrix.rows, matrix.cols, !matrix.input_order.empty()};
  shape.symmetric = is_symmetric(matrix);
  return shape;
}

void state_group_sizes(std::vector<ExportedModule>& modules) {
  std::set<int64_t> sizes;
  for (const ExportedModule& module : modules) sizes.insert(module.shape.format.group_size);
  for (ExportedModule& module : modules) {
    int64_t& size = module.shape.format.group_size;
    if (size == 0 && sizes.contains(module.shape.cols)) size = module.shape.cols;
  }
}

Result<std::vector<ExportedTensor>> write_module(const Exporter& exporter,
                                                 std::span<const Matrix> matrices,
                                                 std::string_view module, Executor& pool) {
  return exporter.write_experts != nullptr ? exporter.write_experts(matrices, module, pool)
                                           : exporter.write(matrices.front().view, module, pool);
}

std::vector<TensorDeclaration> declarations(std::span<const ExportedTensor> tensors,
                                            std::string_view module) {
  std::vector<TensorDeclaration> result;
  for (const ExportedTensor& tensor : tensors) {
    result.push_back({fmt::format("{}{}", module, tensor.suffix), tensor.dtype, tensor.shape});
  }
  return result;
}

std::span<const Exporter* const> all_exporters() {
  return std::span(exporters().all).first(exporters().num_of_checkpoints);
}

std::span<const Exporter* const> all_module_exporters() {
  return exporters().all;
}

const Exporter* find_exporter(std::string_view name) {
  return find_in(all_exporters(), name);
}

const Exporter* find_module_exporter(std::string_view name) {
  return find_in(all_module_exporters(), name);
}

Error export_error(std::string_view code, std::string_view module, std::string_view what) {
  return {code, fmt::format("{}: {}", quote_name(module), what)};
}

Error not_held(std::string_view module, std::string_view holds, const WeightFormat& format) {
  return export_error("export.format", module, fmt::format("{}, not {}", holds, to_string(format)));
}

Result<Blocks> require_blocks(const ExportShape& shape, std::string_view module,
                              std::string_view name, const WeightFormat& only) {
  SUBBYTE_CHECK(require_input_order(shape, module));
  if (shape.format != only) {
    return not_held(module, fmt::format("{} is {}", name, to_string(only)), shape.format);
  }
  SUBBYTE_TRY(const int64_t groups, count_groups(shape.format, shape.cols, module));
  return Blocks{static_cast<uint64_t>(shape.rows), static_cast<uint64_t>(groups)};
}

Status require_one_expert(const ExportShape& shape, std::string_view module) {
  if (shape.experts == 1) return {};
  return export_error("export.experts", module,
                      fmt::format("expected one matrix, found {} experts", shape.experts));
}

Status require_input_order(const ExportShape& shape, std::string_view module) {
  if (!shape.act_order) return {};
  return export_error("export.act_order", module,
                      "inputs are sorted by group (act-order), which this format cannot say");
}

Status require_plain(const ExportShape& shape, std::string_view module) {
  SUBBYTE_CHECK(require_one_expert(shape, module));
  return require_input_order(shape, module);
}

Status require_tensor_scale_1(const MatrixView& matrix, std::string_view module) {
  if (matrix.tensor_scale == 1) return {};
  return export_error(
      "export.tensor_scale", module,
      fmt::format("expected no factor of the whole tensor, found {}", matrix.tensor_scale));
}

WeightFormat with_zero_points(WeightFormat format) {
  const Format element = unsigned_element(format.element);
  if (element == format.element) return format;
  format.element = element;
  format.zero = element == Format::kU8 ? Zero::kU16 : Zero::kU8;
  return format;
}

int float_bits(Format format) {
  const bool dense = format == Format::kF16 || format == Format::kBF16 || format == Format::kF32;
  return dense ? info(format).bits : 0;
}

Result<DType> scale_dtype(Format format, std::string_view module) {
  switch (format) {
    case Format::kF16:
      return DType::kF16;
    case Format::kBF16:
      return DType::kBF16;
    case Format::kF32:
      return DType::kF32;
    default:
      break;
  }
  return export_error("export.format", module,
                      fmt::format("expected scales in f16, bf16 or f32, found {}",
                                  format == Format::kNone ? "none" : info(format).name));
}

Result<int64_t> count_groups(const WeightFormat& format, int64_t cols, std::string_view module) {
  const int64_t group_size = format.group_size == 0 ? cols : format.group_size;
  if (group_size > 0 && cols % group_size == 0) return cols / group_size;
  return export_error(
      "export.shape", module,
      fmt::format("{} inputs are not a multiple of the group size {}", cols, group_size));
}

void allocate(std::vector<ExportedTensor>& tensors) {
  for (ExportedTensor& tensor : tensors) tensor.bytes.resize(tensor.num_bytes());
}

Result<std::vector<ExportedTensor>> allocate(Result<std::vector<ExportedTensor>> described,
                                             const MatrixView& matrix, std::string_view module) {
  if (!described.ok()) return described;
  SUBBYTE_CHECK(require_tensor_scale_1(matrix, module));
  allocate(*described);
  return described;
}

void transpose_scales(std::span<std::byte> to, const MatrixView& matrix) {
  const int width = info(matrix.format.scale).bits / 8;
  const int64_t groups = matrix.groups();
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t n = 0; n < matrix.rows; ++n) {
      const std::byte* from = matrix.scales.data() + (n * groups + g) * width;
      std::copy_n(from, width, to.data() + (g * matrix.rows + n) * width);
    }
  }
}

uint32_t load_zero(const MatrixView& matrix, int64_t row, int64_t group) {
  const int width = zero_bytes(matrix.format.zero);
  uint32_t zero = 0;
  __builtin_memcpy(&zero, matrix.zeros.data() + (row * matrix.groups() + group) * width, width);
  return zero;
}

}  // namespace subbyte
