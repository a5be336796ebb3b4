#include "transform/packing/layouts/parts.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace subbyte::packing {

Error format_error(std::string_view layout, std::string_view held, const PackedShape& shape) {
  return {"pack.format", fmt::format("{} holds {}, not {}{}", layout, held, to_string(shape.format),
                                     shape.has_factor ? " with a factor of the tensor" : "")};
}

Status check_groups(std::string_view layout, const PackedShape& shape,
                    std::initializer_list<int64_t> sizes) {
  const int64_t size = shape.format.group_size;
  const bool fills = shape.cols > 0 && size >= 0 && shape.cols % shape.group_size() == 0;
  const auto is_one = [&](int64_t one) {
    return one == 0 ? shape.groups() == 1 : one == shape.group_size();
  };
  if (fills && std::ranges::any_of(sizes, is_one)) return {};
  std::vector<std::string> names;
  for (const int64_t one : sizes) names.push_back(one == 0 ? "whole rows" : std::to_string(one));
  return Error{
      "pack.group_size",
      fmt::format("{} has groups of {} inputs that fill the rows, found groups of {} for "
                  "{} inputs",
                  layout, fmt::join(names, ", "), size == 0 ? shape.cols : size, shape.cols)};
}

DType float_dtype(Format format) {
  return format == Format::kF16    ? DType::kF16
         : format == Format::kBF16 ? DType::kBF16
                                   : DType::kF32;
}

bool is_4_bits(const WeightFormat& format) {
  return (format.element == Format::kU4 && format.zero == Zero::kU8) ||
         (format.element == Format::kI4 && format.zero == Zero::kNone);
}

bool is_8_bits(const WeightFormat& format) {
  return (format.element == Format::kU8 && format.zero == Zero::kU16) ||
         (format.element == Format::kI8 && format.zero == Zero::kNone);
}

OwnMatrix make_matrix(const PackedShape& shape, std::vector<uint32_t> order) {
  OwnMatrix own = {};
  MatrixView& view = own.matrix.view;
  view.format = shape.format;
  view.rows = shape.rows;
  view.cols = shape.cols;
  const auto buffer = [&](std::span<const std::byte>& bytes, int64_t size) {
    const auto owner = allocate_bytes(static_cast<std::size_t>(size));
    bytes = {owner.get(), static_cast<std::size_t>(size)};
    own.matrix.owners.push_back(owner);
    return owner.get();
  };
  const int64_t numbers = shape.rows * shape.groups();
  own.codes = buffer(view.codes, shape.rows * view.row_bytes());
  own.scales = buffer(view.scales, numbers * info(shape.format.scale).bits / 8);
  if (const int width = zero_bytes(shape.format.zero); width > 0) {
    own.zeros = buffer(view.zeros, numbers * width);
    const auto middle = static_cast<uint16_t>(1u << (info(shape.format.element).bits - 1));
    for (int64_t i = 0; i < numbers; ++i) __builtin_memcpy(own.zeros + i * width, &middle, width);
  }
  if (!order.empty()) {
    const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(order));
    view.input_order = *shared;
    own.matrix.owners.push_back(shared);
  }
  return own;
}

void put_order(std::span<std::byte> to, const MatrixView& matrix) {
  for (int64_t k = 0; k < matrix.cols; ++k) {
    const auto input =
        matrix.input_order.empty() ? static_cast<uint32_t>(k) : matrix.input_order[k];
    __builtin_memcpy(to.data() + 4 * k, &input, 4);
  }
}

Result<std::vector<uint32_t>> get_order(std::span<const std::byte> from) {
  std::vector<uint32_t> order(from.size() / 4);
  __builtin_memcpy(order.data(), from.data(), from.size());
  std::vector<bool> seen(order.size());
  for (std::size_t k = 0; k < order.size(); ++k) {
    if (order[k] >= order.size() || seen[order[k]]) {
      return Error{"layout.input_order",
                   fmt::format("expected every input once, found {} at index {}",
                               static_cast<int32_t>(order[k]), k)};
    }
    seen[order[k]] = true;
  }
  return order;
}

}  // namespace subbyte::packing
