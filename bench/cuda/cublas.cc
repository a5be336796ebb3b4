#include "bench/cuda/cublas.h"

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace subbyte::bench {
namespace {

/// The header overloads the name.
using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,
                                  int, const void* alpha, const void* a, cudaDataType, int lda,
                                  const void* b, cudaDataType, int ldb, const void* beta, void* c,
                                  cudaDataType, int ldc, cublasComputeType_t, cublasGemmAlgo_t);

}  // namespace

struct Cublas::Functions {
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  GemmEx gemm = nullptr;
};

namespace {

constexpr std::size_t kWorkspace = std::size_t{32} << 20;  // what cuBLAS wants on Hopper

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::unique_ptr<Cublas> Cublas::load(std::string& why) {
  void* library = dlopen("libcublas.so.13", RTLD_NOW);
  if (library == nullptr) {
    why = dlerror();
    return nullptr;
  }
  std::unique_ptr<Cublas> cublas(new Cublas);
  cublas->functions_ = std::make_unique<Functions>();
  Functions& f = *cublas->functions_;
  if (!find(library, "cublasCreate_v2", f.create) ||
      !find(library, "cublasDestroy_v2", f.destroy) ||
      !find(library, "cublasSetStream_v2", f.set_stream) ||
      !find(library, "cublasSetWorkspace_v2", f.set_workspace) ||
      !find(library, "cublasGemmEx", f.gemm)) {
    why = "libcublas.so.13 lacks a function";
    return nullptr;
  }
  cublasHandle_t handle = nullptr;
  if (f.create(&handle) != CUBLAS_STATUS_SUCCESS ||
      cudaMalloc(&cublas->workspace_, kWorkspace) != cudaSuccess) {
    why = "cublasCreate failed";
    return nullptr;
  }
  cublas->handle_ = handle;
  return cublas;
}

Cublas::~Cublas() {
  if (handle_ != nullptr) functions_->destroy(static_cast<cublasHandle_t>(handle_));
  cudaFree(workspace_);
}

bool Cublas::multiply(void* y, const void* x, const void* w, int64_t m, int64_t n, int64_t k,
                      void* stream) {
  const cublasHandle_t handle = static_cast<cublasHandle_t>(handle_);
  functions_->set_stream(handle, static_cast<cudaStream_t>(stream));
  functions_->set_workspace(handle, workspace_, kWorkspace);
  const float one = 1;
  const float zero = 0;
  // Column-major: y^T[n][m] = w[n][k] x^T[k][m].
  return functions_->gemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, static_cast<int>(n),
                          static_cast<int>(m), static_cast<int>(k), &one, w, CUDA_R_16F,
                          static_cast<int>(k), x, CUDA_R_16F, static_cast<int>(k), &zero, y,
                          CUDA_R_16F, static_cast<int>(n), CUBLAS_COMPUTE_32F,
                          CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace subbyte::bench
