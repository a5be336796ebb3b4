// Operands of aten's int4 products in the memory of a GPU, from and to packed matrices there.

#include <algorithm>
#include <string>

#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "device/operands.h"
#include "kernels/cuda/layouts/int4_operands.h"
#include "matrix/zero_points.h"

namespace subbyte::c {
namespace {

constexpr int64_t kFaultBytes = 8;
constexpr int kMaxZero = 16;
constexpr int kMaxXpuZero = 15;

cuda::Int4Order order_of(CpuTile cpu_tile, int cuda_tiles) {
  switch (cuda_tiles) {
    case 2:
      return cuda::Int4Order::kTiles2;
    case 4:
      return cuda::Int4Order::kTiles4;
    case 8:
      return cuda::Int4Order::kTiles8;
    default:
      break;
  }
  switch (cpu_tile) {
    case CpuTile::kHalves64:
      return cuda::Int4Order::kHalves64;
    case CpuTile::kHalves32:
      return cuda::Int4Order::kHalves32;
    case CpuTile::kPairs32:
      return cuda::Int4Order::kPairs32;
    default:
      return cuda::Int4Order::kPairs16;
  }
}

std::string place_of(int64_t index, int64_t groups) {
  return " of output " + std::to_string(index / groups) + ", group " +
         std::to_string(index % groups);
}

/// Canonical buffers of an operand, filled by kernels.
struct Unpacked {
  device::Buffer codes;
  device::Buffer scales;
  device::Buffer zeros;
  device::Buffer offsets;
  MatrixView view;
};

std::span<const std::byte> span_of(const device::Buffer& bytes, int64_t size) {
  return {bytes.data(), static_cast<std::size_t>(size)};
}

/// Where z is what no zero point makes, the offsets stay as they are; the kernels have those of 16
/// bits.
Status unpack_groups(const Int4Operand& from, const device::Gpu& gpu, Unpacked& to) {
  const int64_t count = from.rows * from.groups();
  const int width = info(from.type).bits / 8;
  const bool has_offsets = from.zeros == nullptr;
  SUBBYTE_TRY(to.scales, gpu.allocate(count * width));
  SUBBYTE_TRY(to.zeros, gpu.allocate(count));
  if (has_offsets && width == 2) {
    SUBBYTE_TRY(to.offsets, gpu.allocate(count * 2));
  }
  SUBBYTE_TRY(const device::Buffer memory, gpu.allocate(kFaultBytes));
  auto* const scales = const_cast<std::byte*>(from.scales->bytes.data());
  cuda::Int4Groups groups;
  groups.scales = scales;
  groups.zeros = has_offsets ? scales + width : const_cast<std::byte*>(from.zeros->bytes.data());
  groups.type = device::element_of(from.type);
  groups.has_offsets = has_offsets;
  groups.step = has_offsets ? 2 : 1;
  groups.rows = from.rows;
  groups.groups = from.groups();
  const cuda::CanonicalGroups made = {to.scales.data(), to.zeros.data(), to.offsets.data(),
                                      groups.type};
  SUBBYTE_TRY(const cuda::Int4Fault fault,
              cuda::unpack_groups(made, groups, memory.data(), gpu.stream()));
  to.view.scales = span_of(to.scales, count * width);
  to.view.zeros = span_of(to.zeros, count);
  to.view.format = from.format(false);
  if (fault.index < 0) return {};
  if (width != 2) {
    return Error{"layout.zero_range", "the offset" + place_of(fault.index, from.groups()) +
                                          " is no multiple of the scale that a zero point of 0 to "
                                          "16 gives; offsets that are none stay on a GPU in f16 "
                                          "and bf16"};
  }
  to.view.zeros = span_of(to.offsets, count * 2);
  to.view.format = from.format(true);
  return {};
}

}  // namespace

Result<std::shared_ptr<const device::PackedMatrix>> import_int4pack(const Int4Operand& operand,
                                                                    const device::Gpu& gpu,
                                                                    Executor& host) {
  Unpacked made;
  const int64_t bytes = operand.rows * operand.cols / 2;
  SUBBYTE_TRY(made.codes, gpu.allocate(bytes));
  cuda::Int4Codes codes = {cuda::Int4Order::kRows, operand.rows, operand.cols};
  if (operand.zeros == nullptr) codes.order = order_of(operand.cpu_tile, operand.cuda_tiles);
  SUBBYTE_CHECK(
      cuda::unpack_int4(made.codes.data(), operand.weight->bytes.data(), codes, gpu.stream()));
  SUBBYTE_CHECK(unpack_groups(operand, gpu, made));
  made.view.rows = operand.rows;
  made.view.cols = operand.cols;
  made.view.codes = span_of(made.codes, bytes);
  device::StridedMatrix canonical;
  canonical.view = made.view;
  return device::PackedMatrix::pack(canonical, gpu::RowOrder::kNatural, gpu, host);
}

namespace {

/// Memory that a handle of tensors keeps.
Result<std::byte*> add_tensor(const char* name, DType dtype, const Shape& shape,
                              const device::Gpu& gpu, std::vector<subbyte_tensors::Tensor>& to) {
  ExportedTensor tensor = {"", dtype, shape, {}};
  SUBBYTE_TRY(const device::Buffer bytes, gpu.allocate(static_cast<int64_t>(tensor.num_bytes())));
  std::byte* const data = bytes.data();
  const auto kept = std::make_shared<device::Buffer>(bytes);
  to.push_back({name, std::move(tensor), std::shared_ptr<const std::byte>(kept, data)});
  return data;
}

Status check_groups(const Int4Target& target, const MatrixView& view) {
  SUBBYTE_CHECK(check_int4pack_order(view));
  if (!is_offset(view.format.zero)) {
    if (!target.is_xpu || view.group_size() % 32 == 0) return {};
    return Error{"layout.groups",
                 "int4pack-xpu: expected groups of a multiple of 32 inputs, found " +
                     std::to_string(view.group_size())};
  }
  if (!target.is_xpu && target.type == offset_format(view.format.zero) &&
      view.format.scale == target.type && view.format.element == Format::kI4) {
    return {};
  }
  return Error{"layout.format",
               "int4pack: offsets are of i4 with scales of the same type, and not "
               "for XPU, found " +
                   to_string(view.format)};
}

Error fault_of(const cuda::Int4Fault& fault, const Int4Target& target, int64_t groups) {
  const std::string place = place_of(fault.index, groups);
  if (fault.is_zero) {
    return {"layout.zero_range", "the zero point" + place + ": expected 0 to " +
                                     std::to_string(target.is_xpu ? kMaxXpuZero : kMaxZero)};
  }
  return {"layout.scale_range", "the scale" + place + ", or its offset, is beyond what " +
                                    std::string(info(target.type).name) + " holds"};
}

}  // namespace

Status export_int4pack(const device::PackedMatrix& matrix, const Int4Target& target,
                       const device::Gpu& gpu, std::vector<subbyte_tensors::Tensor>& to) {
  SUBBYTE_TRY(const device::StagedMatrix canonical, matrix.unpack(gpu));
  const MatrixView& view = canonical.view();
  SUBBYTE_CHECK(check_groups(target, view));
  SUBBYTE_TRY(std::byte* const words,
              add_tensor("weight", target.weight_dtype, target.weight_shape, gpu, to));
  cuda::Int4Codes codes = {cuda::Int4Order::kRows, view.rows, view.cols};
  if (!target.is_xpu) codes.order = order_of(target.cpu_tile, target.cuda_tiles);
  SUBBYTE_CHECK(cuda::pack_int4(words, view.codes.data(), codes, gpu.stream()));
  cuda::Int4Groups groups;
  groups.type = device::element_of(target.type);
  groups.rows = view.rows;
  groups.groups = view.groups();
  groups.has_offsets = !target.is_xpu;
  groups.step = target.is_xpu ? 1 : 2;
  SUBBYTE_TRY(std::byte* const scales,
              add_tensor(target.is_xpu ? "scales" : "scales_and_zeros", target.groups_dtype,
                         target.groups_shape, gpu, to));
  groups.scales = scales;
  groups.zeros = scales + info(target.type).bits / 8;
  if (target.is_xpu) {
    SUBBYTE_TRY(groups.zeros, add_tensor("zeros", DType::kI8, target.groups_shape, gpu, to));
  }
  cuda::CanonicalGroups from;
  from.type = device::element_of(view.format.scale);
  from.scales = const_cast<std::byte*>(view.scales.data());
  auto* const zeros = const_cast<std::byte*>(view.zeros.data());
  const bool has_offsets = is_offset(view.format.zero);
  from.offsets = has_offsets ? zeros : nullptr;
  from.zeros = view.zeros.empty() || has_offsets ? nullptr : zeros;
  SUBBYTE_TRY(const device::Buffer memory, gpu.allocate(kFaultBytes));
  SUBBYTE_TRY(const cuda::Int4Fault fault,
              cuda::pack_groups(groups, from, target.is_xpu ? kMaxXpuZero : kMaxZero, memory.data(),
                                gpu.stream()));
  if (fault.index < 0) return {};
  return fault_of(fault, target, view.groups());
}

}  // namespace subbyte::c
