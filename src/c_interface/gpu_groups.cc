// The group GEMM on a GPU.

#include "c_interface/gpu.h"
#include "c_interface/gpu_memory.h"
#include "kernels/cuda/group_gemm.h"

namespace subbyte::c {

struct GpuGroupGemm::State {
  int index = 0;
  cuda::GroupGemm gemm;
  GpuBytes weights;
  Workspaces workspaces;
};

Result<std::shared_ptr<GpuGroupGemm>> GpuGroupGemm::create(const subbyte_group_weights& w,
                                                           int device, void* stream) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  SUBBYTE_TRY(const cuda::Device properties, cuda::query_device(device));
  const auto order =
      w.checkpoint_order != 0 ? cuda::GroupWeights::kCheckpoint : cuda::GroupWeights::kFlashinfer;
  SUBBYTE_TRY(const cuda::GroupGemm gemm,
              cuda::GroupGemm::create({w.groups, w.n, w.k, order}, properties));
  std::unique_ptr<State> state(new State{device, gemm, {}, {}});
  SUBBYTE_TRY(state->weights, GpuBytes::allocate(gemm.weight_bytes()));
  SUBBYTE_TRY(const GpuBytes memory, GpuBytes::allocate(gemm.prepare_bytes()));
  const auto on = static_cast<cudaStream_t>(stream);
  SUBBYTE_CHECK(gemm.prepare(state->weights.data(), w.b, w.b_scale, memory.data(), on));
  const cudaError_t error = cudaStreamSynchronize(on);
  if (error != cudaSuccess) return gpu_error("cuda.launch", "packing the weights", error);
  return std::make_shared<GpuGroupGemm>(std::move(state));
}

GpuGroupGemm::GpuGroupGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuGroupGemm::~GpuGroupGemm() = default;

Status GpuGroupGemm::run(const subbyte_group_call& call, const flashinfer::GroupGemm& options) {
  if (call.m < 0) {
    return Error{"group_gemm.m",
                 "group_gemm: m: expected 0 or more, found " + std::to_string(call.m)};
  }
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  const auto stream = static_cast<cudaStream_t>(call.stream);
  SUBBYTE_TRY(std::byte* const workspace,
              state_->workspaces.find(state_->gemm.workspace_bytes(call.m), stream));
  cuda::GroupGemmCall to;
  to.a = call.a;
  to.a_scale = call.a_scale;
  to.m_indptr = call.m_indptr;
  to.m = call.m;
  to.weights = state_->weights.data();
  to.out = call.out;
  to.a_dtype = options.a_dtype;
  to.out_dtype = options.out_dtype;
  to.mma_sm = options.mma_sm;
  to.tile_m = options.tile_m;
  to.tile_n = options.tile_n;
  to.tile_k = options.tile_k;
  to.swap_ab = options.swap_ab;
  return state_->gemm.run(to, workspace, stream);
}

Status GpuGroupGemm::reserve(int64_t m, void* stream) {
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  SUBBYTE_CHECK(
      state_->workspaces.find(state_->gemm.workspace_bytes(m), static_cast<cudaStream_t>(stream)));
  return {};
}

}  // namespace subbyte::c
