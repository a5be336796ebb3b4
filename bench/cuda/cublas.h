#pragma once
// cuBLAS, found at run time: a vendor's measure beside ours, not something that we need.

#include <cstdint>
#include <memory>
#include <string>

namespace subbyte::bench {

class Cublas {
 public:
  /// nullptr where libcublas cannot be loaded; `why` says why.
  static std::unique_ptr<Cublas> load(std::string& why);
  ~Cublas();

  /// y[m][n] = x[m][k] w[n][k]^T, fp16 with sums in float32, on the stream (a cudaStream_t).
  bool multiply(void* y, const void* x, const void* w, int64_t m, int64_t n, int64_t k,
                void* stream);

 private:
  Cublas() = default;
  struct Functions;
  std::unique_ptr<Functions> functions_;
  void* handle_ = nullptr;
  void* workspace_ = nullptr;
};

}  // namespace subbyte::bench
