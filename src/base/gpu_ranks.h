#pragma once

namespace subbyte {

/// GPUs that one model is divided among at most: as many as a machine's switch of NVLink joins, and
/// as kernels that sum over a group are made for (kernels/cuda/exchange/peer_group.h).
inline constexpr int kMaxGpuRanks = 8;

}  // namespace subbyte
