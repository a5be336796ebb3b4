// Layouts of other software in the memory of a GPU, from and to packed matrices there.

#include <algorithm>
#include <string>

#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "c_interface/gpu_memory.h"
#include "c_interface/gpu_staging.h"
#include "c_interface/gpu_state.h"
#include "kernels/cuda/ops/int4_operands.h"
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

Element element_of(Format format) {
  return format == Format::kF32   ? Element::kF32
         : format == Format::kF16 ? Element::kF16
                                  : Element::kBF16;
}

std::string place_of(int64_t index, int64_t groups) {
  return " of output " + std::to_string(index / groups) + ", group " +
         std::to_string(index % groups);
}

/// Canonical buffers of an operand, filled by kernels.
struct Unpacked {
  GpuBytes codes;
  GpuBytes scales;
  GpuBytes zeros;
  GpuBytes offsets;
  MatrixView view;
};

std::span<const std::byte> span_of(const GpuBytes& bytes, int64_t size) {
  return {bytes.data(), static_cast<std::size_t>(size)};
}

/// Where z is what no zero point makes, the offsets stay as they are; the kernels have those of 16
/// bits.
Status unpack_groups(const Int4Operand& from, cudaStream_t stream, Unpacked& to) {
  const int64_t count = from.rows * from.groups();
  const int width = info(from.type).bits / 8;
  const bool has_offsets = from.zeros == nullptr;
  SUBBYTE_TRY(to.scales, GpuBytes::allocate(count * width));
  SUBBYTE_TRY(to.zeros, GpuBytes::allocate(count));
  if (has_offsets && width == 2) {
    SUBBYTE_TRY(to.offsets, GpuBytes::allocate(count * 2));
  }
  SUBBYTE_TRY(const GpuBytes memory, GpuBytes::allocate(kFaultBytes));
  auto* const scales = const_cast<std::byte*>(from.scales->bytes.data());
  cuda::Int4Groups groups;
  groups.scales = scales;
  groups.zeros = has_offsets ? scales + width : const_cast<std::byte*>(from.zeros->bytes.data());
  groups.type = element_of(from.type);
  groups.has_offsets = has_offsets;
  groups.step = has_offsets ? 2 : 1;
  groups.rows = from.rows;
  groups.groups = from.groups();
  const cuda::CanonicalGroups made = {to.scales.data(), to.zeros.data(), to.offsets.data(),
                                      groups.type};
  SUBBYTE_TRY(const cuda::Int4Fault fault,
              cuda::unpack_groups(made, groups, memory.data(), stream));
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

Result<std::shared_ptr<GpuMatrix>> import_int4pack_on_gpu(const Int4Operand& operand, int device,
                                                          void* stream, Executor& host) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  const auto on = static_cast<cudaStream_t>(stream);
  Unpacked made;
  const int64_t bytes = operand.rows * operand.cols / 2;
  SUBBYTE_TRY(made.codes, GpuBytes::allocate(bytes));
  cuda::Int4Codes codes = {cuda::Int4Order::kRows, operand.rows, operand.cols};
  if (operand.zeros == nullptr) codes.order = order_of(operand.cpu_tile, operand.cuda_tiles);
  SUBBYTE_CHECK(cuda::unpack_int4(made.codes.data(), operand.weight->bytes.data(), codes, on));
  SUBBYTE_CHECK(unpack_groups(operand, on, made));
  made.view.rows = operand.rows;
  made.view.cols = operand.cols;
  made.view.codes = span_of(made.codes, bytes);
  Description description;
  description.view = made.view;
  description.device = device;
  return GpuMatrix::pack(description, stream, host);
}

Result<MatrixOnGpu> GpuMatrix::State::unpack(cudaStream_t stream) const {
  MatrixView shape = held();
  const int64_t count = shape.rows * shape.groups();
  MatrixOnGpu made;
  if (dense) return MatrixOnGpu::of(dense->view());
  const auto add = [&](int64_t bytes) { return made.allocate(bytes); };
  const int64_t scale_width = info(shape.format.scale).bits / 8;
  const int64_t zero_width = zero_bytes(shape.format.zero);
  SUBBYTE_TRY(std::byte* const codes, add(shape.rows * shape.row_bytes()));
  SUBBYTE_TRY(std::byte* const scales, add(count * scale_width));
  SUBBYTE_TRY(std::byte* const zeros, add(count * zero_width));
  SUBBYTE_CHECK(cuda::unpack_on_device(codes, scales, zeros, packed.data(), format, stream));
  shape.codes = {codes, static_cast<std::size_t>(shape.rows * shape.row_bytes())};
  shape.scales = {scales, static_cast<std::size_t>(count * scale_width)};
  shape.zeros = {zeros, static_cast<std::size_t>(count * zero_width)};
  if (format.gather_begin < format.bytes) {
    shape.input_order = {reinterpret_cast<const uint32_t*>(packed.data() + format.gather_begin),
                         static_cast<std::size_t>(shape.cols)};
  }
  shape.codebook = codebook;
  made.set_view(shape);
  return made;
}

MatrixView GpuMatrix::State::held() const {
  if (dense) {
    MatrixView of_dense = dense->view();
    of_dense.codes = {};
    return of_dense;
  }
  MatrixView packed_view;
  packed_view.format = format.source;
  packed_view.rows = format.rows;
  packed_view.cols = format.cols;
  packed_view.tensor_scale = tensor_scale;
  return packed_view;
}

MatrixView GpuMatrix::held() const {
  return state_->held();
}

Result<Matrix> GpuMatrix::to_host(void* stream) const {
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  const auto on = static_cast<cudaStream_t>(stream);
  SUBBYTE_TRY(const MatrixOnGpu canonical, state_->unpack(on));
  SUBBYTE_TRY(Matrix copy, copy_to_host(canonical.view(), state_->index, stream));
  const auto codebook =
      std::make_shared<std::vector<float>>(copy.view.codebook.begin(), copy.view.codebook.end());
  copy.view.codebook = *codebook;
  copy.owners.push_back(codebook);
  return copy;
}

namespace {

/// Memory that a handle of tensors keeps.
Result<std::byte*> add_tensor(const char* name, DType dtype, const Shape& shape,
                              std::vector<subbyte_tensors::Tensor>& to) {
  ExportedTensor tensor = {"", dtype, shape, {}};
  SUBBYTE_TRY(GpuBytes bytes, GpuBytes::allocate(static_cast<int64_t>(tensor.num_bytes())));
  std::byte* const data = bytes.data();
  const auto kept = std::make_shared<GpuBytes>(std::move(bytes));
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

Status GpuMatrix::export_int4pack(const Int4Target& target, void* stream,
                                  std::vector<subbyte_tensors::Tensor>& to) const {
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  const auto on = static_cast<cudaStream_t>(stream);
  SUBBYTE_TRY(const MatrixOnGpu canonical, state_->unpack(on));
  const MatrixView& view = canonical.view();
  SUBBYTE_CHECK(check_groups(target, view));
  SUBBYTE_TRY(std::byte* const words,
              add_tensor("weight", target.weight_dtype, target.weight_shape, to));
  cuda::Int4Codes codes = {cuda::Int4Order::kRows, view.rows, view.cols};
  if (!target.is_xpu) codes.order = order_of(target.cpu_tile, target.cuda_tiles);
  SUBBYTE_CHECK(cuda::pack_int4(words, view.codes.data(), codes, on));
  cuda::Int4Groups groups;
  groups.type = element_of(target.type);
  groups.rows = view.rows;
  groups.groups = view.groups();
  groups.has_offsets = !target.is_xpu;
  groups.step = target.is_xpu ? 1 : 2;
  SUBBYTE_TRY(std::byte* const scales, add_tensor(target.is_xpu ? "scales" : "scales_and_zeros",
                                                  target.groups_dtype, target.groups_shape, to));
  groups.scales = scales;
  groups.zeros = scales + info(target.type).bits / 8;
  if (target.is_xpu) {
    SUBBYTE_TRY(groups.zeros, add_tensor("zeros", DType::kI8, target.groups_shape, to));
  }
  cuda::CanonicalGroups from;
  from.type = element_of(view.format.scale);
  from.scales = const_cast<std::byte*>(view.scales.data());
  auto* const zeros = const_cast<std::byte*>(view.zeros.data());
  const bool has_offsets = is_offset(view.format.zero);
  from.offsets = has_offsets ? zeros : nullptr;
  from.zeros = view.zeros.empty() || has_offsets ? nullptr : zeros;
  SUBBYTE_TRY(const GpuBytes memory, GpuBytes::allocate(kFaultBytes));
  SUBBYTE_TRY(
      const cuda::Int4Fault fault,
      cuda::pack_groups(groups, from, target.is_xpu ? kMaxXpuZero : kMaxZero, memory.data(), on));
  if (fault.index < 0) return {};
  return fault_of(fault, target, view.groups());
}

}  // namespace subbyte::c
