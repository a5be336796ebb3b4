#include "layouts/matrix.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#include "base/checked.h"

namespace subbyte {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

uint32_t load_code(std::span<const std::byte> bytes, std::size_t index, int width) {
  uint32_t code = 0;
  std::memcpy(&code, bytes.data() + index * width, width);
  return code;
}

}  // namespace

std::shared_ptr<std::byte[]> allocate_bytes(std::size_t size, Pages pages) {
  const bool huge = pages == Pages::kHuge && size >= kHugePage;
  const std::size_t mapped = round_up(size + 1, huge ? kHugePage : 4096);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  madvise(data, mapped, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return {static_cast<std::byte*>(data), [mapped](std::byte* p) { munmap(p, mapped); }};
}

uint32_t code_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const int width = info(matrix.format.element).bits;
  const int64_t first_bit = col * width;
  const std::byte* bytes = matrix.codes.data() + row * matrix.row_bytes() + first_bit / 8;
  uint64_t word = 0;
  const int64_t last_byte = (first_bit % 8 + width + 7) / 8;
  for (int64_t i = 0; i < last_byte; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return static_cast<uint32_t>((word >> (first_bit % 8)) & ((uint64_t{1} << width) - 1));
}

double weight_at(const MatrixView& matrix, int64_t row, int64_t col) {
  const double value = info(matrix.format.element).decode(code_at(matrix, row, col));
  if (is_dense(matrix.format)) return value;
  const std::size_t group = row * matrix.groups() + col / matrix.group_size();
  const FormatInfo& scale = info(matrix.format.scale);
  const double factor = scale.decode(load_code(matrix.scales, group, scale.bits / 8));
  if (matrix.format.zero == Zero::kNone) return value * factor * matrix.tensor_scale;
  const uint32_t zero = load_code(matrix.zeros, group, zero_bytes(matrix.format.zero));
  if (is_offset(matrix.format.zero)) {
    const double offset = info(offset_format(matrix.format.zero)).decode(zero);
    return (value * factor + offset) * matrix.tensor_scale;
  }
  return (value - zero) * factor * matrix.tensor_scale;
}

}  // namespace subbyte
