#include "kernels/cuda/group_gemm/group_gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <initializer_list>
#include <new>
#include <string>
#include <vector>

#include "kernels/cuda/experts/route.h"
#include "kernels/cuda/group_gemm/groups.h"

namespace subbyte::cuda {
namespace {

constexpr WeightFormat kMxfp4 = {Format::kE2M1, Format::kE8M0, Zero::kNone, 32};
constexpr int64_t kMaxSize = int64_t{1} << 22;  // of a packed matrix
constexpr int64_t kMaxRows = int64_t{1} << 30;

Error refuse(std::string_view code, const std::string& argument, const std::string& expected,
             const std::string& found) {
  return {code, "group_gemm: " + argument + ": expected " + expected + ", found " + found};
}

Status check_shape(const GroupGemmShape& s) {
  if (s.groups < 1 || s.groups > kMaxExperts) {
    return refuse("group_gemm.groups", "groups", "1 to " + std::to_string(kMaxExperts),
                  std::to_string(s.groups));
  }
  if (s.n < 8 || s.n > kMaxSize || s.n % 8 != 0) {
    return refuse("group_gemm.n", "n", "a multiple of 8 up to 2^22", std::to_string(s.n));
  }
  const int64_t unit = s.order == GroupWeights::kFlashinfer ? 128 : 32;
  if (s.k < unit || s.k > kMaxSize || s.k % unit != 0) {
    return refuse("group_gemm.k", "k", "a multiple of " + std::to_string(unit) + " up to 2^22",
                  std::to_string(s.k));
  }
  return {};
}

Status check_pointer(std::string_view code, const char* name, const void* pointer,
                     uintptr_t alignment) {
  if (pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % alignment == 0) return {};
  return refuse(code, name,
                "device memory at a multiple of " + std::to_string(alignment) + " bytes",
                pointer == nullptr ? "null" : "another address");
}

Status check_hint(std::string_view code, const char* name, int value,
                  std::initializer_list<int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  std::string expected;
  for (const int one : allowed) expected += (expected.empty() ? "" : ", ") + std::to_string(one);
  return refuse(code, name, expected, std::to_string(value));
}

Status check_type(std::string_view code, const char* name, Format found,
                  std::initializer_list<Format> allowed, const char* expected) {
  if (std::find(allowed.begin(), allowed.end(), found) != allowed.end()) return {};
  return refuse(code, name, expected,
                found == Format::kNone ? "none" : std::string(info(found).name));
}

Status check_call(const GroupGemmCall& call) {
  if (call.m < 0 || call.m > kMaxRows) {
    return refuse("group_gemm.m", "m", "0 to 2^30", std::to_string(call.m));
  }
  SUBBYTE_CHECK(check_type("group_gemm.a_dtype", "a_dtype", call.a_dtype,
                           {Format::kE4M3, Format::kE5M2}, "e4m3 or e5m2"));
  SUBBYTE_CHECK(check_type("group_gemm.out_dtype", "out_dtype", call.out_dtype,
                           {Format::kBF16, Format::kF16}, "bf16 or f16"));
  SUBBYTE_CHECK(check_hint("group_gemm.mma_sm", "mma_sm", call.mma_sm, {1, 2}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_m", "tile_m", call.tile_m, {128}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_n", "tile_n", call.tile_n, {32, 64, 128, 192, 256}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_k", "tile_k", call.tile_k, {128, 256}));
  if (call.m == 0) return {};
  SUBBYTE_CHECK(check_pointer("group_gemm.a", "a", call.a, 16));
  SUBBYTE_CHECK(check_pointer("group_gemm.a_scale", "a_scale", call.a_scale, 4));
  SUBBYTE_CHECK(check_pointer("group_gemm.m_indptr", "m_indptr", call.m_indptr, 4));
  SUBBYTE_CHECK(check_pointer("group_gemm.weights", "weights", call.weights, 256));
  return check_pointer("group_gemm.out", "out", call.out, 16);
}

Status launched(const char* what) {
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return {};
  return Error{"cuda.launch",
               std::string("group_gemm: ") + what + ": " + cudaGetErrorString(error)};
}

int64_t align(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

}  // namespace

Result<GroupGemm> GroupGemm::create(const GroupGemmShape& shape, const Device& device) try {
  SUBBYTE_CHECK(check_shape(shape));
  // The packed form does not depend on what the weights are.
  MatrixView weights;
  weights.format = kMxfp4;
  weights.rows = shape.n;
  weights.cols = shape.k;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(shape.n * weights.row_bytes()));
  weights.codes = zeros;
  weights.scales = std::span(zeros).first(static_cast<std::size_t>(shape.n * weights.groups()));
  SUBBYTE_TRY(const PackedFormat format, gpu::packed_format(weights));
  return GroupGemm(shape, format, device);
} catch (const std::bad_alloc&) {
  return Error{"group_gemm.out_of_memory", "group_gemm: no memory for weights of one group"};
}

GroupGemm::GroupGemm(const GroupGemmShape& shape, const PackedFormat& format, const Device& device)
    : shape_(shape),
      format_(format),
      device_(device),
      has_large_m_(has_large_m(format, Number::kBF16, device)) {}

int64_t GroupGemm::prepare_bytes() const {
  return shape_.order == GroupWeights::kCheckpoint ? 0 : shape_.groups * shape_.n * (shape_.k / 32);
}

ExpertTiles GroupGemm::tiles_of(int64_t m) const {
  return expert_tiles(m, {.experts = shape_.groups,
                          .top_k = 1,
                          .batch_invariant = false,
                          .has_large_m = has_large_m_});
}

int64_t GroupGemm::workspace_bytes(int64_t m) const {
  return align(m * padded_k() * 2) + tiles_of(m).count * int64_t{sizeof(ExpertTile)};
}

const float* GroupGemm::gains_of(const std::byte* weights) const {
  return reinterpret_cast<const float*>(weights + shape_.groups * format_.bytes);
}

Status GroupGemm::prepare(std::byte* to, const void* b, const void* b_scale, std::byte* memory,
                          Stream stream) const {
  SUBBYTE_CHECK(check_pointer("group_gemm.weights", "weights", to, 256));
  SUBBYTE_CHECK(check_pointer("group_gemm.b", "b", b, 16));
  SUBBYTE_CHECK(check_pointer("group_gemm.b_scale", "b_scale", b_scale, 4));
  const void* scales = b_scale;
  if (shape_.order == GroupWeights::kFlashinfer) {
    SUBBYTE_CHECK(check_pointer("group_gemm.memory", "memory", memory, 256));
    run_plain_scales({memory, b_scale, shape_.groups, shape_.n, shape_.k}, stream);
    scales = memory;
  }
  MatrixView group;
  group.format = kMxfp4;
  group.rows = shape_.n;
  group.cols = shape_.k;
  const auto code_bytes = static_cast<std::size_t>(shape_.n * group.row_bytes());
  const auto scale_bytes = static_cast<std::size_t>(shape_.n * group.groups());
  for (int64_t i = 0; i < shape_.groups; ++i) {
    group.codes = {static_cast<const std::byte*>(b) + i * code_bytes, code_bytes};
    group.scales = {static_cast<const std::byte*>(scales) + i * scale_bytes, scale_bytes};
    SUBBYTE_CHECK(pack_on_device(to + i * format_.bytes, group, format_, stream));
  }
  const float gain = weight_arguments(to, format_, 1, Number::kBF16).gain;
  run_fill(const_cast<float*>(gains_of(to)), shape_.groups, gain, stream);
  return launched("prepare");
}

Status GroupGemm::run(const GroupGemmCall& call, std::byte* workspace, Stream stream) const {
  SUBBYTE_CHECK(check_call(call));
  if (call.m == 0) return {};
  SUBBYTE_CHECK(check_pointer("group_gemm.workspace", "workspace", workspace, 256));
  ExpertTiles tiles = tiles_of(call.m);
  tiles.are_all_used = false;
  auto* const of_groups = reinterpret_cast<ExpertTile*>(workspace + align(call.m * padded_k() * 2));
  run_group_tiles(
      {call.m_indptr, shape_.groups, call.m, tokens_of(tiles.kernel), of_groups, tiles.count},
      stream);
  run_group_rows({workspace, call.a, call.a_scale, call.m_indptr, shape_.groups, call.m, padded_k(),
                  call.a_dtype},
                 stream);
  SUBBYTE_CHECK(launched("tiles"));
  SUBBYTE_TRY(const ExpertPlan plan, plan_experts(format_, Number::kBF16, tiles, device_, false));
  ExpertsCall product;
  product.weights = weight_arguments(call.weights, format_, 1, Number::kBF16);
  product.format = &format_;
  product.expert_bytes = format_.bytes;
  product.gains = gains_of(call.weights);
  product.x = workspace;
  product.x_stride = padded_k();
  product.x_count = call.m;
  product.y = call.out;
  product.y_stride = shape_.n;
  product.tiles = of_groups;
  product.num_tiles = tiles.count;
  product.y_is_other = call.out_dtype == Format::kF16;
  return run_experts(plan, product, Number::kBF16, stream);
}

}  // namespace subbyte::cuda
