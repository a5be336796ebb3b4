#include "kernels/metal/host_arguments.h"

namespace subbyte::apple {
namespace {

std::string suffix(const gpu::PackedFormat& format, gpu::Number number) {
  std::string name;
  switch (format.decoder) {
    case gpu::DecoderKind::kIntegers:
      name = "_integers" + std::to_string(format.bits);
      break;
    case gpu::DecoderKind::kE2M1:
      name = "_e2m1";
      break;
    case gpu::DecoderKind::kE4M3:
      name = "_e4m3";
      break;
    case gpu::DecoderKind::kCodebook:
      name = "_codebook" + std::to_string(format.bits);
      break;
    case gpu::DecoderKind::kFloats:
      name = "_floats";
      break;
    case gpu::DecoderKind::kVectors:  // which no shader reads
      name = "_vectors" + std::to_string(format.bits);
      break;
  }
  if (gpu::in_superblocks(format)) name += "_superblocks";  // which no shader reads
  if (is_offset(format.source.zero)) name += "_offsets";
  return name + (number == gpu::Number::kF16 ? "_f16" : "_bf16");
}

}  // namespace

Arguments arguments_of(const gpu::PackedFormat& format, double tensor_scale, int tokens) {
  Arguments a{};
  a.rows = static_cast<int32_t>(format.rows);
  a.cols = static_cast<int32_t>(format.cols);
  a.strips = static_cast<int32_t>(format.strips);
  a.tiles = static_cast<int32_t>(format.tiles);
  a.blocks = static_cast<int32_t>(format.blocks);
  a.groups_per_tile = format.groups_per_tile;
  a.tiles_per_block = static_cast<int32_t>(format.tiles_per_block);
  a.zero_bytes = format.zero_bytes;
  a.zero = format.zero;
  a.has_gather = format.gather_begin < format.bytes ? 1 : 0;
  a.tensor_scale = static_cast<float>(tensor_scale);
  a.tokens = tokens;
  a.x_stride = a.cols;
  a.y_stride = a.rows;
  a.scale_kind = format.scale_kind;
  a.row_order = format.row_order;
  return a;
}

std::string small_m_kernel(const gpu::PackedFormat& format, gpu::Number number, int tokens) {
  return (tokens == 1 ? "small_m1" : "small_m8") + suffix(format, number);
}

std::string dequantize_kernel(const gpu::PackedFormat& format, gpu::Number number) {
  return "dequantize" + suffix(format, number);
}

}  // namespace subbyte::apple
