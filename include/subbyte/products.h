#pragma once
// Products with packed matrices on the CPU.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "subbyte/device.h"
#include "subbyte/matrix.h"

SUBBYTE_BEGIN_WRAPPED_NAMESPACE

/// y[i][n] = sum over k of x[i][k] w(n, k), + bias[n], for i < m: a product of `m` rows of
/// activations. It multiplies by the weights as they are stored; nothing is unpacked before.
struct Product {
  Matrix weights;
  std::span<const float> x = {};     // [m][cols]
  std::span<float> y = {};           // [m][rows]; overlaps no x and no other y
  int64_t m = 1;                     // at least 1
  std::span<const float> bias = {};  // [rows], or empty
};

/// The CPU for single operations: threads, the kernels of this machine, and buffers that are used
/// again. One thread at a time uses it. Models have machines of their own (session.h).
class Cpu {
 public:
  /// DeviceOptions::device is "cpu" or "auto". Codes: device.unsupported (another device),
  /// isa.unknown, isa.unsupported, execution.options (threads given and asked for as well, or not
  /// 0 to 4096).
  static Result<Cpu> open(const DeviceOptions& options = {});

  Cpu(Cpu&&) noexcept;
  Cpu& operator=(Cpu&&) noexcept;
  ~Cpu();

  /// The instruction set of its kernels: "avx512vnni".
  std::string isa() const;

  /// Checks that a kernel reads a matrix of this kind as it is stored. Code: linear.unsupported,
  /// which says what kernels read.
  Status check(const Matrix& weights) const;

  /// y = x W^T + bias, for every format: float zero points are multiplied apart, and weights that
  /// no kernel reads are dequantized at the first product, to four bytes each, which the matrix
  /// keeps. Code: linear.argument (sizes that disagree).
  Status linear(const Matrix& weights, std::span<const float> x, std::span<float> y, int64_t m = 1,
                std::span<const float> bias = {});
  /// Several products at once, such as q, k and v, each with the same bits as alone; what they
  /// read in common is packed once. Nothing is computed where one of them cannot be.
  Status linear(std::span<const Product> products);

  /// All weights of a matrix as `number`, f32, f16 or bf16: [rows][cols], columns in the order of
  /// the inputs. Computed in f32 and rounded to nearest even. Codes: blocks.input (another number),
  /// matrix.argument (another size of `out`, in bytes, or an address that is no multiple of a
  /// number's size).
  Status dequantize(const Matrix& matrix, Format number, std::span<std::byte> out);

  struct State;  // of the library
  State& state() { return *state_; }

 private:
  explicit Cpu(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

SUBBYTE_END_NAMESPACE
