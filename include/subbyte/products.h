#pragma once
// Products with packed matrices on the CPU, and blocks of small floats there.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "subbyte/blocks.h"
#include "subbyte/device.h"
#include "subbyte/matrix.h"

namespace subbyte {  // of the library's own layers
class Execution;
namespace device {
struct HostWeights;
}  // namespace device
}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

/// Weights as products read them, made by Cpu::prepare(). Several threads may use them.
using PreparedWeights = std::shared_ptr<const device::HostWeights>;

/// y[i][n] = sum over k of x[i][k] w(n, k), + bias[n], for i < m: a product of `m` rows of
/// activations.
struct Product {
  PreparedWeights weights = {};
  std::span<const float> x = {};     // [m][cols]
  std::span<float> y = {};           // [m][rows]; overlaps no x and no other y
  int64_t m = 1;                     // at least 1
  std::span<const float> bias = {};  // [rows], or empty
};

/// The CPU for single operations: threads, the kernels of this machine, and buffers that are used
/// again. One thread at a time uses it. Models have machines of their own (session.h).
class Cpu {
 public:
  /// DeviceOptions::device is "cpu" or "auto". Codes: device.unsupported (another device, or
  /// activations that a GPU alone has), isa.unknown, isa.unsupported, execution.options (threads
  /// given and asked for as well, or not 0 to 4096).
  static Result<Cpu> open(const DeviceOptions& options = {});

  Cpu(Cpu&&) noexcept;
  Cpu& operator=(Cpu&&) noexcept;
  ~Cpu();

  /// The instruction set of its kernels: "avx512vnni".
  std::string isa() const;

  /// Checks that a kernel reads a matrix of this kind as it is stored. Codes: linear.unsupported,
  /// which says what kernels read; those of Matrix::of(), here and below.
  Status check(const MatrixView& weights) const;

  /// The weights for products, of every format, once for as many products as there are: where a
  /// kernel reads them they stay where they lie, which the result keeps; float zero points are
  /// multiplied apart, and what no kernel reads is dequantized to four bytes a weight. For this
  /// instruction set. Code: linear.unsupported (no rows or no columns).
  Result<PreparedWeights> prepare(const Matrix& matrix);

  /// y = x W^T + bias. Codes: linear.argument (sizes that disagree), linear.unsupported (weights
  /// that were prepared for another instruction set).
  Status linear(const PreparedWeights& weights, std::span<const float> x, std::span<float> y,
                int64_t m = 1, std::span<const float> bias = {});
  /// Several products at once, such as q, k and v, each with the same bits as alone; what they
  /// read in common is packed once. Nothing is computed where one of them cannot be.
  Status linear(std::span<const Product> products);

  /// All weights of a matrix as `number`, f32, f16 or bf16: [rows][cols], columns in the order of
  /// the inputs. Computed in f32 and rounded to nearest even. Codes: blocks.input (another number),
  /// matrix.argument (another size of `out`, in bytes, or an address that is no multiple of a
  /// number's size).
  Status dequantize(const MatrixView& matrix, Format number, std::span<std::byte> out);

  /// Quantizes x [rows][cols] of blocks.input, aligned as its numbers are. On any machine the same
  /// bits, those of FlashInfer's operators with ScaleRule::kCeil. Codes: those of
  /// check_block_quantization(); blocks.buffer (sizes that are not those that `blocks` says).
  Status quantize_blocks(const BlockQuantization& blocks, std::span<const std::byte> x,
                         std::span<std::byte> codes, std::span<std::byte> scales);

 private:
  Cpu(std::shared_ptr<Executor> threads, std::unique_ptr<Execution> execution);
  std::shared_ptr<Executor> threads_;  // of the caller, if there are some
  std::unique_ptr<Execution> execution_;
};

SUBBYTE_END_NAMESPACE
