#include "checkpoints/containers/safetensors_rules.h"

#include <fmt/format.h>

#include <array>

#include "base/checked.h"
#include "base/quote.h"
#include "checkpoints/containers/safetensors_codes.h"

namespace subbyte {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int bits;
};

// In the order of the enumeration: the value is the index.
constexpr std::array<DTypeRow, 23> kDTypes = {{
    {DType::kBool, "BOOL", 8},
    {DType::kF4, "F4", 4},
    {DType::kF6E2M3, "F6_E2M3", 6},
    {DType::kF6E3M2, "F6_E3M2", 6},
    {DType::kU8, "U8", 8},
    {DType::kI8, "I8", 8},
    {DType::kF8E5M2, "F8_E5M2", 8},
    {DType::kF8E4M3, "F8_E4M3", 8},
    {DType::kF8E8M0, "F8_E8M0", 8},
    {DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {DType::kI16, "I16", 16},
    {DType::kU16, "U16", 16},
    {DType::kF16, "F16", 16},
    {DType::kBF16, "BF16", 16},
    {DType::kI32, "I32", 32},
    {DType::kU32, "U32", 32},
    {DType::kF32, "F32", 32},
    {DType::kC64, "C64", 64},
    {DType::kF64, "F64", 64},
    {DType::kI64, "I64", 64},
    {DType::kU64, "U64", 64},
    {DType::kBlocks, "blocks", 0},
}};

constexpr bool rows_are_in_order() {
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (static_cast<std::size_t>(kDTypes[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order());

}  // namespace

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

int bits(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)].bits;
}

std::string_view name(DType dtype) {
  return kDTypes[static_cast<std::size_t>(dtype)].name;
}

SUBBYTE_END_NAMESPACE

namespace subbyte {

std::optional<DType> find_dtype(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name && row.bits != 0) return row.dtype;
  }
  return std::nullopt;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const uint64_t dim : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(dim);
  }
  return text + "]";
}

Status check_tensor_name(std::string_view name, std::string_view where) {
  const auto refuse = [&](std::string_view found) {
    return Error{safetensors_codes::kBadName,
                 fmt::format("{}: tensor {}: expected a name of at most {} bytes without NUL, "
                             "found {}",
                             where, quote(name), kMaxNameBytes, found)};
  };
  if (name.find('\0') != std::string_view::npos) return refuse("a NUL");
  if (name.size() > kMaxNameBytes) return refuse(fmt::format("{} bytes", name.size()));
  return {};
}

Result<uint64_t> tensor_bytes(std::string_view name, DType dtype, const Shape& shape,
                              std::string_view where) {
  const auto refuse = [&](std::string_view code, std::string_view problem) {
    return Error{code, fmt::format("{}: tensor {}: {}", where, quote(name), problem)};
  };
  if (shape.size() > kMaxRank) {
    return refuse(safetensors_codes::kRank,
                  fmt::format("expected at most {} dimensions, found {}", kMaxRank, shape.size()));
  }
  const auto elements = checked_product(shape);
  const auto size =
      elements ? checked_mul(*elements, static_cast<uint64_t>(bits(dtype))) : std::nullopt;
  if (!size) {
    return refuse(safetensors_codes::kShapeOverflow,
                  fmt::format("expected fewer than 2^64 bits, found {} of {}", subbyte::name(dtype),
                              to_string(shape)));
  }
  if (*size % 8 != 0) {
    return refuse(safetensors_codes::kMisalignedBits,
                  fmt::format("expected whole bytes, found {} of {}, {} bits", subbyte::name(dtype),
                              to_string(shape), *size));
  }
  return *size / 8;
}

}  // namespace subbyte
