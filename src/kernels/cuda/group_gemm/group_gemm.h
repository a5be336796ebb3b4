#pragma once
// FlashInfer's group_gemm_mxfp8_mxfp4_nt_groupwise in the memory of a GPU, from Ampere on
// (group_gemm/group_gemm.h: the same in the memory of the host, and what the arguments mean).
//
//   SUBBYTE_TRY(GroupGemm gemm, GroupGemm::create({groups, n, k, order}, device));
//   ... allocate weight_bytes(), prepare_bytes(), workspace_bytes(m) ...
//   SUBBYTE_CHECK(gemm.prepare(weights, b, b_scale, memory, stream));       once
//   SUBBYTE_CHECK(gemm.run({a, a_scale, m_indptr, m, weights, out}, workspace, stream));
//
// The FP8 numbers of a become BF16, exactly, and the weights too within the kernel; sums are in
// float32 and are rounded once. No call allocates device memory or waits, so all can be captured.

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "formats/format.h"
#include "kernels/cuda/experts/experts.h"

namespace subbyte::cuda {

/// In which order the weights of a group come.
enum class GroupWeights : uint8_t {
  kFlashinfer,  // b [G][N][K / 2], b_scale [G][N in 128s][K / 32] swizzled; K in 128s
  kCheckpoint,  // blocks [G][N][K / 32][16], scales [G][N][K / 32], as gpt-oss has them; K in 32s
};

struct GroupGemmShape {
  int64_t groups = 0;  // at most 4096
  int64_t n = 0;       // in 8s
  int64_t k = 0;       // of the weights; a has K in 128s columns
  GroupWeights order = GroupWeights::kFlashinfer;
};

struct GroupGemmCall {
  const void* a = nullptr;            // FP8 [m][K in 128s]
  const void* a_scale = nullptr;      // E8M0, (m + 127 groups) / 128 * 128 rows, swizzled
  const int32_t* m_indptr = nullptr;  // [groups + 1]: from 0 to m, does not fall, multiples of 4
  int64_t m = 0;
  const std::byte* weights = nullptr;  // of prepare()
  void* out = nullptr;                 // [m][n]
  Format a_dtype = Format::kE4M3;      // or kE5M2
  Format out_dtype = Format::kBF16;    // or kF16
  // Hints, of which no bit of the result depends; the values that FlashInfer takes.
  int mma_sm = 1;       // 1, 2
  int tile_m = 128;     // 128
  int tile_n = 128;     // 32, 64, 128, 192, 256
  int tile_k = 128;     // 128, 256
  bool swap_ab = true;  // any
};

class GroupGemm {
 public:
  /// Codes: group_gemm.groups, group_gemm.n, group_gemm.k, group_gemm.out_of_memory (of the host).
  SUBBYTE_BY_NVCC static Result<GroupGemm> create(const GroupGemmShape& shape,
                                                  const Device& device);

  /// Bytes of device memory: of the prepared weights, of what prepare() works in, and run().
  int64_t weight_bytes() const { return shape_.groups * (format_.bytes + kGainBytes); }
  SUBBYTE_BY_NVCC int64_t prepare_bytes() const;
  SUBBYTE_BY_NVCC int64_t workspace_bytes(int64_t m) const;

  /// Packs the weights of all groups. All pointers are to device memory at multiples of 16 bytes,
  /// `to` and `memory` at multiples of 256. Codes: group_gemm.<argument>, cuda.launch.
  SUBBYTE_BY_NVCC Status prepare(std::byte* to, const void* b, const void* b_scale,
                                 std::byte* memory, Stream stream) const;

  /// The values of m_indptr are not checked, as the GPU alone knows them: wrong ones give wrong
  /// results, but read and write nothing outside of the buffers. Nothing is launched where m is 0.
  /// Codes: group_gemm.<argument> (null or not aligned pointers, m, types, hints), cuda.kernel,
  /// cuda.launch.
  SUBBYTE_BY_NVCC Status run(const GroupGemmCall& call, std::byte* workspace, Stream stream) const;

 private:
  static constexpr int64_t kGainBytes = 4;

  GroupGemm(const GroupGemmShape& shape, const PackedFormat& format, const Device& device);
  int64_t padded_k() const { return (shape_.k + 127) / 128 * 128; }
  const float* gains_of(const std::byte* weights) const;
  ExpertTiles tiles_of(int64_t m) const;

  GroupGemmShape shape_;
  PackedFormat format_;  // of a group
  Device device_;
  bool has_large_m_;
};

}  // namespace subbyte::cuda
