// Packed matrices on a GPU, their plans and their products.

#include "c_interface/errors.h"
#include "c_interface/gpu_state.h"
#include "c_interface/products.h"
#include "c_interface/weights.h"
#include "kernels/cuda/ops/dequantize.h"
#include "kernels/gpu/supported_format.h"

namespace subbyte::c {

using gpu::Number;
using gpu::PackedFormat;

namespace {

constexpr std::size_t kKeptPlans = 256;

}  // namespace

namespace {

/// Packs what lies on the GPU; the stream is waited for.
Status pack_into(GpuMatrix::State& state, const MatrixView& on_gpu, cudaStream_t stream) {
  state.tensor_scale = on_gpu.tensor_scale;
  state.codebook.assign(on_gpu.codebook.begin(), on_gpu.codebook.end());
  SUBBYTE_TRY(state.packed, GpuBytes::allocate(state.format.bytes));
  SUBBYTE_CHECK(cuda::pack_on_device(state.packed.data(), on_gpu, state.format,
                                     static_cast<cuda::Stream>(stream)));
  const cudaError_t error = cudaStreamSynchronize(stream);
  if (error != cudaSuccess) return gpu_error("cuda.launch", "packing the weights", error);
  for (const Number number : {Number::kF16, Number::kBF16}) {
    state.arguments[static_cast<std::size_t>(number)] =
        cuda::weight_arguments(state.packed.data(), state.format, state.tensor_scale, number);
  }
  return {};
}

MatrixView outline(MatrixView view) {
  view.codes = view.scales = view.zeros = {};
  view.codebook = {};
  view.input_order = {};
  return view;
}

}  // namespace

Result<std::shared_ptr<GpuMatrix>> GpuMatrix::upload(Matrix matrix, gpu::RowOrder order, int device,
                                                     void* stream, Executor& host) {
  const CurrentDevice current(device);
  SUBBYTE_CHECK(current.status());
  auto state = std::make_unique<State>();
  state->index = device;
  state->view = outline(matrix.view);
  SUBBYTE_TRY(state->device, cuda::query_device(device));
  state->row_order = order;
  SUBBYTE_TRY(matrix, gpu::support(std::move(matrix), host));
  const auto on = static_cast<cudaStream_t>(stream);
  if (is_dense(matrix.view.format)) {
    SUBBYTE_TRY(state->dense, DenseOnGpu::create(matrix.view, false, on));
    return std::make_shared<GpuMatrix>(std::move(state));
  }
  SUBBYTE_TRY(state->format, gpu::packed_format(matrix.view, order));
  SUBBYTE_TRY(const MatrixOnGpu staged, MatrixOnGpu::copy(matrix.view, on));
  SUBBYTE_CHECK(pack_into(*state, staged.view(), on));
  return std::make_shared<GpuMatrix>(std::move(state));
}

Result<std::shared_ptr<GpuMatrix>> GpuMatrix::pack(const Description& from, void* stream,
                                                   Executor& host) {
  const CurrentDevice current(from.device);
  SUBBYTE_CHECK(current.status());
  const auto on = static_cast<cudaStream_t>(stream);
  SUBBYTE_TRY(MatrixOnGpu staged, MatrixOnGpu::gather(from, on));
  if (!staged.can_be_supported()) {
    SUBBYTE_TRY(Matrix copy, copy_to_host(staged.view(), from.device, stream));
    SUBBYTE_CHECK(check_input_order(copy.view.input_order));
    return upload(std::move(copy), from.row_order, from.device, stream, host);
  }
  auto state = std::make_unique<State>();
  state->index = from.device;
  state->view = outline(from.view);
  state->row_order = from.row_order;
  SUBBYTE_TRY(state->device, cuda::query_device(from.device));
  SUBBYTE_CHECK(staged.support(on));
  if (is_dense(staged.view().format)) {
    SUBBYTE_TRY(state->dense, DenseOnGpu::create(staged.view(), true, on));
    return std::make_shared<GpuMatrix>(std::move(state));
  }
  SUBBYTE_TRY(const gpu::PackedFacts facts, staged.find_facts(on));
  SUBBYTE_TRY(state->format, gpu::packed_format(staged.view(), from.row_order, facts));
  SUBBYTE_CHECK(pack_into(*state, staged.view(), on));
  return std::make_shared<GpuMatrix>(std::move(state));
}

GpuMatrix::GpuMatrix(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuMatrix::~GpuMatrix() = default;

Result<cuda::Plan> GpuMatrix::State::plan_of(const PlanKey& key) {
  const uint64_t mixed = static_cast<uint64_t>(key.m) * 0x9E3779B97F4A7C15u +
                         4 * static_cast<uint64_t>(key.number) + 2 * key.aligned +
                         key.batch_invariant;
  const std::scoped_lock lock(mutex);
  if (plans.empty()) plans.resize(kKeptPlans);
  KeptPlan& slot = plans[(mixed ^ mixed >> 32) % kKeptPlans];
  if (slot.key == key) return slot.plan;
  cuda::PlanOptions options;
  options.batch_invariant = key.batch_invariant;
  SUBBYTE_TRY(const cuda::Plan plan,
              cuda::plan_linear({format, key.number, key.m, key.aligned}, device, options));
  slot = {key, plan};
  return plan;
}

namespace {

Result<Number> number_of(const subbyte_product& product) {
  if (product.number == SUBBYTE_F16) return Number::kF16;
  if (product.number == SUBBYTE_BF16) return Number::kBF16;
  return refuse("product.number", "SUBBYTE_F16 or SUBBYTE_BF16 on a GPU", product.number);
}

bool is_aligned(const subbyte_product& product, const std::byte* x, int64_t cols) {
  return ((product.x_stride | cols) % 8) == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

/// The matrices of a batch that follow each other are one.
bool is_joined(const subbyte_product& p) {
  return p.batch == 1 ||
         (p.x_batch_stride == p.m * p.x_stride && p.y_batch_stride == p.m * p.y_stride &&
          (p.residual == nullptr || p.residual_batch_stride == p.m * p.residual_stride));
}

/// Of memory of this GPU: anything else would end the process's work there.
Status check_place(const char* name, const void* address, int device) {
  if (address == nullptr || device_of(address) == device) return {};
  return refuse(name, "memory of GPU " + std::to_string(device) + ", where the matrix is",
                "another address");
}

}  // namespace

Status GpuMatrix::State::run(const subbyte_product& p, int64_t m, const std::byte* x, std::byte* y,
                             const std::byte* residual) {
  SUBBYTE_TRY(const Number number, number_of(p));
  const auto stream = static_cast<cudaStream_t>(p.stream);
  if (dense) {
    SUBBYTE_TRY(std::byte* const sums, workspaces.find(dense->workspace_bytes(m), stream));
    const bool pairs = row_order == gpu::RowOrder::kGateUpPairs;
    return dense->multiply(p, m, x, y, residual, pairs, sums);
  }
  SUBBYTE_TRY(const cuda::Plan plan,
              plan_of({m, number, is_aligned(p, x, format.cols), p.batch_invariant != 0}));
  SUBBYTE_TRY(std::byte* const workspace, workspaces.find(plan.workspace_bytes, stream));
  cuda::LinearCall call;
  call.weights = arguments[static_cast<std::size_t>(number)];
  call.format = &format;
  call.x = x;
  call.y = y;
  call.bias = p.bias;
  call.residual = residual;
  call.x_stride = p.x_stride;
  call.y_stride = p.y_stride;
  call.residual_stride = p.residual_stride;
  call.m = m;
  call.activation = gate_of(p.activation);
  call.unary = unary_of(p.activation);
  call.swiglu = clamp_of(p);
  call.dependent_launch = p.dependent_launch != 0;
  return cuda::run_linear(plan, call, number, workspace, stream);
}

Status GpuMatrix::multiply(const subbyte_product& p) {
  if (p.m * p.batch == 0) return {};
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  SUBBYTE_CHECK(check_place("product.x", p.x, state_->index));
  SUBBYTE_CHECK(check_place("product.y", p.y, state_->index));
  const auto* x = static_cast<const std::byte*>(p.x);
  auto* y = static_cast<std::byte*>(p.y);
  const auto* residual = static_cast<const std::byte*>(p.residual);
  if (is_joined(p)) return state_->run(p, p.m * p.batch, x, y, residual);
  for (int64_t i = 0; i < p.batch; ++i) {
    SUBBYTE_CHECK(
        state_->run(p, p.m, x + 2 * i * p.x_batch_stride, y + 2 * i * p.y_batch_stride,
                    residual == nullptr ? nullptr : residual + 2 * i * p.residual_batch_stride));
  }
  return {};
}

Status GpuMatrix::reserve(const subbyte_product& p) {
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  SUBBYTE_TRY(const Number number, number_of(p));
  const int64_t m = is_joined(p) ? p.m * p.batch : p.m;
  if (m == 0) return {};
  if (state_->dense) {
    SUBBYTE_CHECK(state_->workspaces.find(state_->dense->workspace_bytes(m),
                                          static_cast<cudaStream_t>(p.stream)));
    return {};
  }
  for (const bool aligned : {false, true}) {  // batches may begin anywhere
    SUBBYTE_TRY(const cuda::Plan plan,
                state_->plan_of({m, number, aligned, p.batch_invariant != 0}));
    SUBBYTE_CHECK(
        state_->workspaces.find(plan.workspace_bytes, static_cast<cudaStream_t>(p.stream)));
  }
  return {};
}

Status GpuMatrix::dequantize(Format number, void* out, void* stream) const {
  const CurrentDevice current(state_->index);
  SUBBYTE_CHECK(current.status());
  SUBBYTE_CHECK(check_place("out", out, state_->index));
  const Element element = number == Format::kF32   ? Element::kF32
                          : number == Format::kF16 ? Element::kF16
                                                   : Element::kBF16;
  if (state_->dense) {
    return state_->dense->dequantize(element, out, static_cast<cudaStream_t>(stream));
  }
  return cuda::dequantize(state_->packed.data(), state_->format, state_->tensor_scale, element, out,
                          static_cast<cuda::Stream>(stream));
}

int GpuMatrix::device() const {
  return state_->index;
}

int64_t GpuMatrix::bytes() const {
  return state_->dense ? state_->dense->bytes() : state_->format.bytes;
}

const MatrixView& GpuMatrix::view() const {
  return state_->view;
}

}  // namespace subbyte::c
