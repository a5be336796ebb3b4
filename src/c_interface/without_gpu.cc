// The functions for GPUs in a build without CUDA: no address leads to one, so only what names a
// device comes here.

#include "c_interface/gpu.h"

namespace subbyte::c {
namespace {

Error none() {
  return {"cuda.device", "this subbyte was built without CUDA (" SUBBYTE_NO_CUDA ")"};
}

}  // namespace

struct GpuMatrix::State {
  MatrixView view;
};
struct GpuGroupGemm::State {};

int device_of(const void*) {
  return -1;
}

Result<std::shared_ptr<GpuMatrix>> import_int4pack_on_gpu(const Int4Operand&, int, void*,
                                                          Executor&) {
  return none();
}

Result<Matrix> copy_to_host(const MatrixView&, int, void*) {
  return none();
}

Status copy_rows(std::byte* to, const void* from, int64_t rows, int64_t width, int64_t stride, int,
                 void*) {
  for (int64_t row = 0; row < rows; ++row) {
    __builtin_memcpy(to + row * width, static_cast<const std::byte*>(from) + row * stride,
                     static_cast<std::size_t>(width));
  }
  return {};
}

Result<std::shared_ptr<GpuMatrix>> GpuMatrix::upload(Matrix, gpu::RowOrder, int, void*, Executor&) {
  return none();
}

Result<std::shared_ptr<GpuMatrix>> GpuMatrix::pack(const Description&, void*, Executor&) {
  return none();
}

GpuMatrix::GpuMatrix(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuMatrix::~GpuMatrix() = default;

Status GpuMatrix::multiply(const subbyte_product&) {
  return none();
}

Status GpuMatrix::reserve(const subbyte_product&) {
  return none();
}

Status GpuMatrix::dequantize(Format, void*, void*) const {
  return none();
}

Result<Matrix> GpuMatrix::to_host(void*) const {
  return none();
}

Status GpuMatrix::export_int4pack(const Int4Target&, void*,
                                  std::vector<subbyte_tensors::Tensor>&) const {
  return none();
}

MatrixView GpuMatrix::held() const {
  return state_->view;
}

int GpuMatrix::device() const {
  return -1;
}

int64_t GpuMatrix::bytes() const {
  return 0;
}

const MatrixView& GpuMatrix::view() const {
  return state_->view;
}

Status dequantize_on_gpu(const MatrixView&, Format, void*, int, void*) {
  return none();
}

Status quantize_blocks_on_gpu(const BlockQuantization&, const void*, void*, void*, int, void*) {
  return none();
}

Status quantize_kbit_on_gpu(const subbyte_kbit&, const void*, Format, int64_t, int) {
  return none();
}

Status dequantize_kbit_on_gpu(const subbyte_kbit&, Format, void*, int) {
  return none();
}

Status repack_kbit_on_gpu(const subbyte_kbit&, const subbyte_kbit&, int) {
  return none();
}

Result<std::shared_ptr<GpuGroupGemm>> GpuGroupGemm::create(const subbyte_group_weights&, int,
                                                           void*) {
  return none();
}

GpuGroupGemm::GpuGroupGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
GpuGroupGemm::~GpuGroupGemm() = default;

Status GpuGroupGemm::run(const subbyte_group_call&, const flashinfer::GroupGemm&) {
  return none();
}

Status GpuGroupGemm::reserve(int64_t, void*) {
  return none();
}

}  // namespace subbyte::c
