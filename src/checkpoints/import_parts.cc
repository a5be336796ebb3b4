#include "checkpoints/import_parts.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "base/quote.h"
#include "checkpoints/transpose.h"
#include "foreign_layouts/ggml_types.h"

namespace subbyte {
namespace {

constexpr int64_t kScalesAtOnce = 4096;

/// How many are NaN or infinite, and the index of the first.
struct BadScales {
  int64_t count = 0;
  int64_t first = 0;

  void add(const BadScales& other) {
    if (other.count == 0) return;
    first = count == 0 ? other.first : std::min(first, other.first);
    count += other.count;
  }
};

/// The scales [begin, end); Word has their size and `exponent` all bits of their exponent.
template <typename Word>
BadScales find_bad_scales(const std::byte* scales, int64_t begin, int64_t end, Word exponent) {
  BadScales bad;
  for (int64_t i = begin; i < end; ++i) {
    Word bits;
    std::memcpy(&bits, scales + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    if ((bits & exponent) != exponent) continue;
    if (bad.count++ == 0) bad.first = i;
  }
  return bad;
}

BadScales find_bad_scales(const FileTensor& scales, int64_t begin, int64_t end) {
  const std::byte* data = scales.bytes.data();
  switch (scales.dtype) {
    case DType::kF16:
      return find_bad_scales<uint16_t>(data, begin, end, 0x7C00);
    case DType::kBF16:
      return find_bad_scales<uint16_t>(data, begin, end, 0x7F80);
    default:
      return find_bad_scales<uint32_t>(data, begin, end, 0x7F800000);
  }
}

/// Refuses bytes with all bits of `nan` set.
Status refuse_nan_bytes(const FileTensor& scales, std::byte nan) {
  const auto is_nan = [nan](std::byte scale) { return (scale & nan) == nan; };
  const auto first = std::ranges::find_if(scales.bytes, is_nan);
  if (first == scales.bytes.end()) return {};
  return tensor_error(
      "import.scale_not_finite", scales,
      fmt::format("scale byte 0x{:02X} (NaN) at index {}, the first of {} among {}",
                  std::to_integer<int>(*first), first - scales.bytes.begin(),
                  std::count_if(first, scales.bytes.end(), is_nan), scales.bytes.size()));
}

}  // namespace

std::string_view type_name(const FileTensor& tensor) {
  const GgmlType* const type =
      tensor.ggml_type < 0 ? nullptr : find_ggml_type(static_cast<uint32_t>(tensor.ggml_type));
  return type == nullptr ? name(tensor.dtype) : type->name;
}

uint64_t number_count(const FileTensor& tensor) {
  if (tensor.dtype != DType::kBlocks) return tensor.bytes.size() * 8 / bits(tensor.dtype);
  uint64_t count = 1;  // of a tensor whose bytes are there, so that it fits
  for (const uint64_t size : tensor.shape) count *= size;
  return count;
}

Error tensor_error(std::string_view code, const FileTensor& tensor, std::string_view what) {
  return {code, fmt::format("{}: tensor {}: {}", tensor.file->path().string(),
                            quote_name(tensor.name), what)};
}

Error method_error(const ImportContext& context, std::string_view module,
                   std::string_view flavour) {
  return {"import.config", fmt::format("{}: the method is {}, but the tensors of {} have the "
                                       "layout of {}",
                                       context.config.where, quote(context.config.method_name()),
                                       quote_name(module), quote(flavour))};
}

Error group_error(const ImportContext& context, std::string_view module,
                  std::span<const int64_t> sizes, int64_t cols, int64_t groups) {
  return {"import.config", fmt::format("{}: group_size is {}, but {} has {} groups for {} inputs",
                                       context.config.where, fmt::join(sizes, " or "),
                                       quote_name(module), groups, cols)};
}

Matrix matrix_of(const ModuleInfo& info) {
  Matrix matrix;
  matrix.view.format = info.format;
  matrix.view.rows = info.rows;
  matrix.view.cols = info.cols;
  return matrix;
}

const FileTensor* find_tensor(const TensorSource& tensors, std::string_view module,
                              std::string_view suffix) {
  return tensors.find(fmt::format("{}{}", module, suffix));
}

Result<const FileTensor*> require_tensor(const TensorSource& tensors, std::string_view module,
                                         std::string_view suffix) {
  if (const FileTensor* tensor = find_tensor(tensors, module, suffix)) return tensor;
  return Error{"import.missing", fmt::format("tensor {} is missing from the checkpoint",
                                             quote_name(fmt::format("{}{}", module, suffix)))};
}

Result<std::vector<const FileTensor*>> find_same(const TensorSource& tensors,
                                                 std::initializer_list<std::string> names) {
  std::vector<const FileTensor*> found;
  for (const std::string& name : names) {
    const FileTensor* const tensor = tensors.find(name);
    if (tensor == nullptr) continue;
    found.push_back(tensor);
    const FileTensor& first = *found.front();
    if (tensor->dtype == first.dtype && tensor->shape == first.shape &&
        std::ranges::equal(tensor->bytes, first.bytes)) {
      continue;
    }
    return tensor_error("import.config", *tensor,
                        fmt::format("expected the numbers of {}, which mean the same, found others",
                                    quote_name(first.name)));
  }
  return found;
}

Status require_dtype(const FileTensor& tensor, DType expected) {
  if (tensor.dtype == expected) return {};
  return tensor_error(
      "import.dtype", tensor,
      fmt::format("expected dtype {}, found {}", name(expected), name(tensor.dtype)));
}

Status require_shape(const FileTensor& tensor, const Shape& expected) {
  if (tensor.shape == expected) return {};
  return tensor_error(
      "import.shape", tensor,
      fmt::format("expected shape {}, found {}", to_string(expected), to_string(tensor.shape)));
}

Status require_rank(const FileTensor& tensor, std::size_t rank) {
  if (tensor.shape.size() == rank && std::ranges::find(tensor.shape, 0u) == tensor.shape.end()) {
    return {};
  }
  return tensor_error("import.shape", tensor,
                      fmt::format("expected {} dimensions, none of them 0, found shape {}", rank,
                                  to_string(tensor.shape)));
}

Status require_float(const FileTensor& tensor) {
  if (float_format(tensor.dtype) != Format::kNone) return {};
  return tensor_error("import.dtype", tensor,
                      fmt::format("expected dtype F16, BF16 or F32, found {}", type_name(tensor)));
}

Format float_format(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Format::kF32;
    case DType::kF16:
      return Format::kF16;
    case DType::kBF16:
      return Format::kBF16;
    default:
      return Format::kNone;
  }
}

Status check_scales(const FileTensor& scales, Executor& pool) {
  const int64_t row = scales.shape.size() == 2 ? static_cast<int64_t>(scales.shape[1]) : 1;
  const auto count = static_cast<int64_t>(scales.bytes.size()) * 8 / bits(scales.dtype);
  std::vector<BadScales> found(pool.size());
  pool.parallel_for(count, kScalesAtOnce, [&](int64_t begin, int64_t end, int task) {
    found[task].add(find_bad_scales(scales, begin, end));
  });
  BadScales bad;
  for (const BadScales& part : found) bad.add(part);
  if (bad.count == 0) return {};
  return tensor_error("import.scale_not_finite", scales,
                      fmt::format("{} of {} scales are NaN or infinite, the first at [{}, {}]",
                                  bad.count, count, bad.first / row, bad.first % row));
}

Status check_scales(const ImportContext& context, const ModuleInfo& info) {
  if (info.scales == nullptr) return {};
  if (info.format.scale == Format::kE4M4) return {};  // every byte is a number
  if (info.format.scale == Format::kE8M0) return refuse_nan_bytes(*info.scales, std::byte{0xFF});
  if (info.scales->dtype == DType::kF8E4M3) return refuse_nan_bytes(*info.scales, std::byte{0x7F});
  return check_scales(*info.scales, context.pool);
}

std::span<const std::byte> aligned_bytes(const FileTensor& tensor,
                                         std::vector<std::shared_ptr<const void>>& owners) {
  const std::size_t width = bits(tensor.dtype) / 8;
  if (reinterpret_cast<uintptr_t>(tensor.bytes.data()) % width == 0) {
    owners.push_back(tensor.file);
    return tensor.bytes;
  }
  const auto copy = allocate_bytes(tensor.bytes.size());
  std::ranges::copy(tensor.bytes, copy.get());
  owners.push_back(copy);
  return {copy.get(), tensor.bytes.size()};
}

Result<std::shared_ptr<std::byte[]>> transpose_scales(const FileTensor& scales, Executor& pool) {
  SUBBYTE_CHECK(require_float(scales));
  SUBBYTE_CHECK(check_scales(scales, pool));
  auto transposed = allocate_bytes(scales.bytes.size());
  transpose(transposed.get(), scales.bytes.data(), static_cast<int64_t>(scales.shape[0]),
            static_cast<int64_t>(scales.shape[1]), info(float_format(scales.dtype)).bits / 8, pool);
  return transposed;
}

}  // namespace subbyte
