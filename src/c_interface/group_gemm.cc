// FlashInfer's group GEMM, on the CPU and on GPUs.

#include "group_gemm/group_gemm.h"

#include <limits>

#include "c_interface/context.h"
#include "c_interface/errors.h"
#include "c_interface/gpu.h"
#include "device/group_weights.h"
#include "foreign_layouts/flashinfer.h"

struct subbyte_group_gemm {
  std::shared_ptr<subbyte::c::Context> context;
  subbyte_group_weights weights;
  std::shared_ptr<const subbyte::device::GroupWeights> on_gpu;  // nullptr: on the host
  mutable subbyte::device::Workspaces workspaces;               // of calls on the GPU
};

using namespace subbyte;

namespace {

std::span<const std::byte> bytes_of(const void* data, int64_t bytes) {
  return {static_cast<const std::byte*>(data),
          data == nullptr ? 0 : static_cast<std::size_t>(bytes)};
}

Status check_bytes(std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  for (const auto& [name, bytes] : sizes) {
    if (bytes < 0) return c::refuse(name, "0 or more bytes", bytes);
  }
  return {};
}

constexpr int64_t kMaxGroups = int64_t{1} << 20;

Status create(const subbyte_context* context, const subbyte_group_weights* from, void* stream,
              subbyte_group_gemm** to) {
  SUBBYTE_CHECK(c::check_addresses({{"context", context}, {"gemm", to}}));
  SUBBYTE_TRY(const subbyte_group_weights weights, c::read_struct("weights", from));
  SUBBYTE_CHECK(
      c::check_addresses({{"weights.b", weights.b}, {"weights.b_scale", weights.b_scale}}));
  SUBBYTE_CHECK(check_bytes(
      {{"weights.b_bytes", weights.b_bytes}, {"weights.b_scale_bytes", weights.b_scale_bytes}}));
  if (weights.groups < 0 || weights.groups > kMaxGroups) {
    return c::refuse("weights.groups", "0 to 2^20", weights.groups);
  }
  auto made = std::make_unique<subbyte_group_gemm>();
  made->context = context->shared;
  made->weights = weights;
  const int device = device::gpu_of(weights.b);
  if (device >= 0) {
    SUBBYTE_TRY(const auto gpu, device::Gpu::use(device, stream));
    const auto order = weights.checkpoint_order != 0 ? cuda::GroupWeights::kCheckpoint
                                                     : cuda::GroupWeights::kFlashinfer;
    SUBBYTE_TRY(made->on_gpu,
                device::GroupWeights::pack({weights.groups, weights.n, weights.k, order}, weights.b,
                                           weights.b_scale, gpu));
  } else if (weights.checkpoint_order != 0) {
    return c::refuse("weights.checkpoint_order", "0 on the host", weights.checkpoint_order);
  }
  *to = made.release();
  return {};
}

Result<group_gemm::GroupGemm> read_call(const subbyte_group_gemm& gemm,
                                        const subbyte_group_call& call) {
  group_gemm::GroupGemm g;
  g.n = gemm.weights.n;
  g.k = gemm.weights.k;
  if (call.a_dtype != 0) {
    SUBBYTE_TRY(g.a_dtype, c::format_of("call.a_dtype", call.a_dtype));
  }
  if (call.out_dtype != 0) {
    SUBBYTE_TRY(g.out_dtype, c::format_of("call.out_dtype", call.out_dtype));
  }
  if (call.mma_sm != 0) g.mma_sm = call.mma_sm;
  if (call.tile_m != 0) g.tile_m = call.tile_m;
  if (call.tile_n != 0) g.tile_n = call.tile_n;
  if (call.tile_k != 0) g.tile_k = call.tile_k;
  g.swap_ab = call.swap_ab != 0;
  return g;
}

Status run_on_gpu(const subbyte_group_gemm& gemm, const subbyte_group_call& call,
                  const group_gemm::GroupGemm& options) {
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(gemm.on_gpu->index(), call.stream, gemm.workspaces));
  cuda::GroupGemmCall to;
  to.a = call.a;
  to.a_scale = call.a_scale;
  to.m_indptr = call.m_indptr;
  to.m = call.m;
  to.out = call.out;
  to.a_dtype = options.a_dtype;
  to.out_dtype = options.out_dtype;
  to.mma_sm = options.mma_sm;
  to.tile_m = options.tile_m;
  to.tile_n = options.tile_n;
  to.tile_k = options.tile_k;
  to.swap_ab = options.swap_ab;
  return gemm.on_gpu->run(to, gpu);
}

Status run(const subbyte_group_gemm* gemm, const subbyte_group_call* from) {
  SUBBYTE_CHECK(c::check_addresses({{"gemm", gemm}}));
  SUBBYTE_TRY(const subbyte_group_call call, c::read_struct("call", from));
  if (call.m > 0) {
    SUBBYTE_CHECK(c::check_addresses(
        {{"call.a", call.a}, {"call.a_scale", call.a_scale}, {"call.out", call.out}}));
  }
  SUBBYTE_CHECK(c::check_addresses({{"call.m_indptr", call.m_indptr}}));
  SUBBYTE_TRY(group_gemm::GroupGemm g, read_call(*gemm, call));
  if (gemm->on_gpu != nullptr) return run_on_gpu(*gemm, call, g);
  SUBBYTE_CHECK(check_bytes({{"call.a_bytes", call.a_bytes},
                             {"call.a_scale_bytes", call.a_scale_bytes},
                             {"call.out_bytes", call.out_bytes}}));
  SUBBYTE_CHECK(c::check_on_host({{"call.a", call.a},
                                  {"call.a_scale", call.a_scale},
                                  {"call.m_indptr", call.m_indptr},
                                  {"call.out", call.out}}));
  g.a = bytes_of(call.a, call.a_bytes);
  g.a_scale = bytes_of(call.a_scale, call.a_scale_bytes);
  g.b = bytes_of(gemm->weights.b, gemm->weights.b_bytes);
  g.b_scale = bytes_of(gemm->weights.b_scale, gemm->weights.b_scale_bytes);
  g.m_indptr = {call.m_indptr, static_cast<std::size_t>(gemm->weights.groups + 1)};
  g.out = {static_cast<std::byte*>(call.out),
           call.out == nullptr ? 0 : static_cast<std::size_t>(call.out_bytes)};
  SUBBYTE_TRY(const auto turn, c::Turn::take(gemm->context));
  return group_gemm::group_gemm_mxfp8_mxfp4_nt_groupwise(g, *gemm->context->execution);
}

Status reserve(const subbyte_group_gemm* gemm, int64_t m, void* stream) {
  SUBBYTE_CHECK(c::check_addresses({{"gemm", gemm}}));
  if (m < 0 || m > std::numeric_limits<int32_t>::max()) {
    return c::refuse("m", "0 to 2^31 - 1", m);
  }
  if (gemm->on_gpu == nullptr) return {};
  SUBBYTE_TRY(const auto gpu, device::Gpu::use(gemm->on_gpu->index(), stream, gemm->workspaces));
  return gemm->on_gpu->reserve(m, gpu);
}

Status find_row(const int32_t* m_indptr, int64_t groups, int64_t group, int64_t* row) {
  SUBBYTE_CHECK(c::check_addresses({{"m_indptr", m_indptr}, {"row", row}}));
  if (groups < 0 || groups > kMaxGroups) return c::refuse("groups", "0 to 2^20", groups);
  if (group < 0 || group > groups) {
    return c::refuse("group", "0 to " + std::to_string(groups), group);
  }
  const std::span<const int32_t> all(m_indptr, static_cast<std::size_t>(groups + 1));
  SUBBYTE_CHECK(check_flashinfer_groups(all));
  *row = flashinfer_group_row(all, group);
  return {};
}

}  // namespace

int subbyte_group_gemm_create(subbyte_context* context, const subbyte_group_weights* weights,
                              void* stream, subbyte_group_gemm** gemm) {
  return c::run([&] { return create(context, weights, stream, gemm); });
}

void subbyte_group_gemm_destroy(subbyte_group_gemm* gemm) {
  delete gemm;
}

int subbyte_group_gemm_run(const subbyte_group_gemm* gemm, const subbyte_group_call* call) {
  return c::run([&] { return run(gemm, call); });
}

int subbyte_group_gemm_reserve(const subbyte_group_gemm* gemm, int64_t m, void* stream) {
  return c::run([&] { return reserve(gemm, m, stream); });
}

int subbyte_group_scale_row(const int32_t* m_indptr, int64_t groups, int64_t group, int64_t* row) {
  return c::run([&] { return find_row(m_indptr, groups, group, row); });
}
