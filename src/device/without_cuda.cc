// In builds without CUDA: no address leads to a GPU, and Gpu::use() says why there is none. So none
// of the kernels below is ever asked for anything.

#include "device/machines.h"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/group_gemm.h"
#include "kernels/cuda/ops/activations.h"
#include "kernels/cuda/ops/dense.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/cuda/ops/hadamard.h"
#include "kernels/cuda/ops/int4_operands.h"
#include "kernels/cuda/ops/kbit.h"
#include "kernels/cuda/ops/other_layouts.h"
#include "kernels/cuda/ops/quantize.h"
#include "kernels/cuda/ops/quantize_weights.h"
#include "kernels/cuda/ops/recast.h"
#include "kernels/cuda/ops/repack.h"
#include "kernels/cuda/ops/route.h"
#include "kernels/cuda/packed_facts.h"

namespace subbyte {
namespace {

Error none() {
  return {"cuda.device", "this subbyte was built without CUDA (" SUBBYTE_NO_CUDA ")"};
}

}  // namespace

namespace device {
namespace {

class NoMemory : public Memory {
 public:
  Result<Buffer> allocate(int64_t, Stream) override { return none(); }
};

}  // namespace

Memory& driver_memory() {
  static NoMemory memory;
  return memory;
}

Memory& pinned_memory() {
  return driver_memory();
}

Result<Buffer> Workspaces::allocate(int64_t, Stream) {
  return none();
}

Result<std::vector<GpuInfo>> list_gpus() {
  return none();
}

double measure_read_bandwidth(std::span<const std::byte>, const Gpu&) {
  return 0;
}

Result<int> count_gpus() {
  return none();
}

bool has_kernels_for_gpus() {
  return false;
}

int gpu_of(const void*) {
  return -1;
}

Result<Gpu> Gpu::use(int, void*, Memory&) {
  return none();
}

Gpu::Gpu(Gpu&& other) noexcept
    : index_(other.index_),
      before_(other.before_),
      stream_(other.stream_),
      memory_(other.memory_) {}

Gpu::~Gpu() = default;

bool Gpu::is_captured() const {
  return false;
}

Status Gpu::wait(std::string_view) const {
  return none();
}

Status Gpu::check_launch(std::string_view) const {
  return none();
}

Status Gpu::copy(std::byte*, const void*, int64_t) const {
  return none();
}

Status Gpu::copy_rows(std::byte*, int64_t, const void*, int64_t, int64_t, int64_t) const {
  return none();
}

Status Gpu::fetch(void*, const void*, int64_t) const {
  return none();
}

Event::~Event() = default;

Status Event::record(const Gpu&) {
  return none();
}

Status Event::wait() const {
  return none();
}

Status put_in_order(int, void*, void*) {
  return none();
}

}  // namespace device

namespace cuda {

Result<Device> query_device(int) {
  return none();
}

Status pack_on_device(std::byte*, const MatrixView&, const PackedFormat&, Stream) {
  return none();
}

Status unpack_on_device(std::byte*, std::byte*, std::byte*, const std::byte*, const PackedFormat&,
                        Stream) {
  return none();
}

Status run_linear(const Plan&, const LinearCall&, Number, void*, Stream) {
  return none();
}

void run_dense(const DenseCall&, Stream) {}

Status run_epilogue(const EpilogueCall&, Stream) {
  return none();
}

Status dequantize(const MatrixView&, Element, void*, Stream) {
  return none();
}

Status check_dequantize(const MatrixView&, Element, const void*) {
  return none();
}

Status dequantize(const std::byte*, const gpu::PackedFormat&, double, Element, void*, Stream) {
  return none();
}

int64_t facts_bytes(int64_t) {
  return 0;
}

Result<MatrixFacts> find_facts(const MatrixView&, std::byte*, Stream) {
  return none();
}

int64_t sort_bytes(int64_t, int64_t) {
  return 0;
}

Result<SortedInputs> sort_by_group(uint32_t*, const int32_t*, int64_t, int64_t, std::byte*,
                                   Stream) {
  return none();
}

Status reorder_codes(std::byte*, const MatrixView&, const uint32_t*, Stream) {
  return none();
}

Status widen_codes(std::byte*, const MatrixView&, int, Stream) {
  return none();
}

Status repeat_groups(std::byte*, int, int64_t, const std::byte*, int, int64_t, int64_t, Stream) {
  return none();
}

Result<float> largest_float(const float*, int64_t, std::byte*, Stream) {
  return none();
}

Status quantize_blocks(const BlockQuantization&, const void*, void*, void*, Stream,
                       const Nvfp4Options&) {
  return none();
}

Status quantize_kbit(const void*, Format, int64_t, const KbitThresholds&, const KbitBuffers&,
                     Stream, bool) {
  return none();
}

Status dequantize_kbit(const KbitDequantization&, Stream) {
  return none();
}

Status quantize_vq(const void*, Format, int64_t, const VqVectors&, const KbitBuffers&, Stream) {
  return none();
}

Status dequantize_vq(const KbitDequantization&, const VqVectors&, Stream) {
  return none();
}

Status repack_kbit(const KbitBuffers&, const KbitBuffers&, int64_t, int64_t, bool, Stream) {
  return none();
}

Status unpack_int4(std::byte*, const std::byte*, const Int4Codes&, Stream) {
  return none();
}

Status pack_int4(std::byte*, const std::byte*, const Int4Codes&, Stream) {
  return none();
}

Result<Int4Fault> unpack_groups(const CanonicalGroups&, const Int4Groups&, std::byte*, Stream) {
  return none();
}

Result<Int4Fault> pack_groups(const Int4Groups&, const CanonicalGroups&, int, std::byte*, Stream) {
  return none();
}

Result<GroupGemm> GroupGemm::create(const GroupGemmShape&, const Device&) {
  return none();
}

int64_t GroupGemm::prepare_bytes() const {
  return 0;
}

int64_t GroupGemm::workspace_bytes(int64_t) const {
  return 0;
}

Status GroupGemm::prepare(std::byte*, const void*, const void*, std::byte*, Stream) const {
  return none();
}

Status GroupGemm::run(const GroupGemmCall&, std::byte*, Stream) const {
  return none();
}

Status run_hadamard(const HadamardCall&, Stream) {
  return none();
}

bool needs_byte_codes(const WeightRounding&, int64_t) {
  return false;
}

Status quantize_weights(const WeightRounding&, const WeightBuffers&, Stream) {
  return none();
}

Status repack_marlin(const MarlinRepack&, Stream) {
  return none();
}

Status narrow_nibbles(const NibbleCodes&, Stream) {
  return none();
}

Status quantize_nibbles(const NibbleBlocks&, const RisingCodes&, Stream) {
  return none();
}

Status dequantize_nibbles(const NibbleBlocks&, const std::array<float, 16>&, Stream) {
  return none();
}

Status dequantize_awq(const AwqWords&, Stream) {
  return none();
}

Status move_scales(const ScaleMove&, Stream) {
  return none();
}

Status run_experts(const ExpertPlan&, const ExpertsCall&, Number, Stream) {
  return none();
}

void run_route(const RouteCall&, Stream) {}
void run_chosen_routes(const RouteCall&, const void*, bool, const float*, Stream) {}
void run_gather_rows(const GatherRowsCall&, Stream) {}
void run_add_routes(const AddRoutesCall&, Stream) {}

}  // namespace cuda
}  // namespace subbyte
