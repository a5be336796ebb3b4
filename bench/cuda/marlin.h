#pragma once
// Marlin (github.com/IST-DASLab/marlin), found at run time: a peer's measure beside ours. None of
// its text is here; docs/benchmarks/README.md says how its library is made.

#include <cstdint>
#include <memory>
#include <string>

namespace subbyte::bench {

class Marlin {
 public:
  /// nullptr where `library` cannot be loaded; `why` says why.
  static std::unique_ptr<Marlin> load(const std::string& library, std::string& why);
  ~Marlin();

  /// It has kernels of INT4 with f16 scales of 128 inputs for such matrices.
  static bool has(int64_t n, int64_t k) { return n % 256 == 0 && k % 128 == 0; }

  /// Bytes of codes, and of the scales after them.
  static int64_t code_bytes(int64_t n, int64_t k) { return n * k / 2; }
  static int64_t bytes(int64_t n, int64_t k) { return code_bytes(n, k) + n * (k / 128) * 2; }

  /// y[m][n] = x[m][k] by a matrix of code_bytes() and scales, f16, on the stream.
  bool multiply(void* y, const void* x, const void* weights, int64_t m, int64_t n, int64_t k,
                void* stream);

 private:
  Marlin() = default;
  struct Functions;
  std::unique_ptr<Functions> functions_;
  void* locks_ = nullptr;
};

}  // namespace subbyte::bench
