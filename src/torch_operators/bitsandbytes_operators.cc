// quantize_4bit and dequantize_4bit of bitsandbytes with their arguments.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/block_kernels.h"
#include "kernels/cuda/ops/other_layouts.h"
#include "torch_operators/bitsandbytes_tables.h"
#include "torch_operators/gpu.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

/// Of a GPU.
cuda::NibbleBlocks blocks_of(const Tensor& packed, const Tensor& absmax, const Tensor& numbers,
                             int64_t blocksize) {
  return {packed.data<uint8_t>(),       absmax.data<float>(), numbers.data(),
          element_of(numbers.format()), numbers.count(),      blocksize};
}

// ---- to codes --------------------------------------------------------------------------------

constexpr float kLeastScale = 1e-38F;

/// One block as bitsandbytes has it: whole blocks are multiplied by the inverse of their largest
/// magnitude, and a last one that is not whole is divided by it.
float quantize_block(std::span<float> x, bool whole) {
  float largest = 0;
  for (const float value : x) {
    const float magnitude = std::fabs(value);
    if (magnitude > largest || std::isnan(magnitude)) largest = magnitude;  // NaN stays
  }
  const float scale = std::max(largest, kLeastScale);
  for (float& value : x) {
    value = std::clamp(whole ? value * (1.0F / scale) : value / scale, -1.0F, 1.0F);
  }
  return whole ? largest : scale;
}

struct Quantization {
  explicit Quantization(Arguments& arguments)
      : a(arguments.packed_tensor("A")),
        blocksize(arguments.integer()),
        quant_type(arguments.text()),
        storage(arguments.dtype()) {}

  int64_t blocks() const { return (a.count() + blocksize - 1) / blocksize; }

  Tensor a;
  int64_t blocksize;
  std::string quant_type;
  int32_t storage;
};

void quantize_all(Machine& machine, const Quantization& in, const Rising& table, std::byte* packed,
                  float* absmax) {
  const int64_t n = in.a.count();
  const Format format = in.a.format();
  const int64_t width = info(format).bits / 8;
  machine.executor().parallel_for(in.blocks(), 64, [&](int64_t begin, int64_t end, int) {
    std::vector<float> x(static_cast<std::size_t>(in.blocksize) + 1);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * in.blocksize;
      const int64_t count = std::min(in.blocksize, n - first);
      load_numbers(x.data(), in.a.data() + first * width, count, format);
      absmax[block] =
          quantize_block({x.data(), static_cast<std::size_t>(count)}, count == in.blocksize);
      x[static_cast<std::size_t>(count)] = 0;  // what fills the last byte
      for (int64_t i = 0; i < count; i += 2) {
        packed[(first + i) / 2] = std::byte(table.code(x[static_cast<std::size_t>(i)]) << 4 |
                                            table.code(x[static_cast<std::size_t>(i + 1)]));
      }
    }
  });
}

Status quantize_4bit(Arguments& arguments, Results& results) {
  const Quantization in(arguments);
  SUBBYTE_CHECK(check_floats(in.a));
  SUBBYTE_CHECK(check_blocksize(in.blocksize));
  SUBBYTE_TRY(const Table table, table_of(in.quant_type));
  const Numbers& n = numbers();
  const int64_t width = in.storage == n.f32                           ? 4
                        : in.storage == n.f16 || in.storage == n.bf16 ? 2
                                                                      : 1;
  if (width == 1 && in.storage != n.u8) {
    return refuse("quant_storage", "u8, f16, bf16 or f32", name_of(in.storage));
  }
  const int64_t bytes = (in.a.count() + 1) / 2;
  if (bytes % width != 0) {
    return refuse("quant_storage", "a type whose elements fill " + std::to_string(bytes) + " bytes",
                  name_of(in.storage));
  }
  Tensor packed = Tensor::empty(std::array{bytes / width, int64_t{1}}, in.storage, in.a);
  Tensor absmax = Tensor::empty(std::array{in.blocks()}, n.f32, in.a);
  if (!in.a.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(in.a));
    const Rising rising(table);
    SUBBYTE_CHECK(cuda::quantize_nibbles(blocks_of(packed, absmax, in.a, in.blocksize),
                                         {rising.codes, rising.middles}, gpu.stream()));
  } else if (in.a.count() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    quantize_all(machine, in, Rising(table), packed.data(), absmax.data<float>());
  }
  results.add(std::move(packed));
  results.add(std::move(absmax));
  return {};
}

// ---- from codes ------------------------------------------------------------------------------

/// Bytes and scales for n numbers. Codes torch.argument.
Status check_packed(const Tensor& packed, const Tensor& absmax, int64_t n, int64_t blocksize) {
  SUBBYTE_CHECK(check_blocksize(blocksize));
  if (packed.num_bytes() != (n + 1) / 2) {
    return refuse(packed,
                  std::to_string((n + 1) / 2) + " bytes for " + std::to_string(n) + " numbers");
  }
  SUBBYTE_CHECK(check_dtype(absmax, {numbers().f32}));
  const int64_t blocks = (n + blocksize - 1) / blocksize;
  if (absmax.count() == blocks) return {};
  return refuse(absmax, std::to_string(blocks) + " scales");
}

struct Dequantization {
  explicit Dequantization(Arguments& arguments)
      : a(arguments.packed_tensor("A")),
        absmax(arguments.packed_tensor("absmax")),
        blocksize(arguments.integer()),
        quant_type(arguments.text()),
        shape(arguments.integers()),
        dtype(arguments.dtype()) {}

  Result<Table> checked() const {
    SUBBYTE_TRY(const int64_t n, count());
    SUBBYTE_CHECK(check_packed(a, absmax, n, blocksize));
    SUBBYTE_CHECK(check_device(absmax, a));
    const Numbers& types = numbers();
    if (dtype != types.f32 && dtype != types.f16 && dtype != types.bf16) {
      return refuse("dtype", "f32, f16 or bf16", name_of(dtype));
    }
    return table_of(quant_type);
  }

  Tensor a;
  Tensor absmax;
  int64_t blocksize;
  std::string quant_type;
  std::vector<int64_t> shape;
  int32_t dtype;

 private:
  Result<int64_t> count() const {
    int64_t n = 1;
    for (const int64_t size : shape) {
      if (size < 0 || __builtin_mul_overflow(n, size, &n)) {
        return refuse("shape", "sizes of a tensor", shown(shape));
      }
    }
    return n;
  }
};

Status dequantize_to(const Dequantization& in, const Table& table, Tensor& out) {
  const int64_t n = out.count();
  if (n == 0) return {};
  if (!out.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(out));
    return cuda::dequantize_nibbles(blocks_of(in.a, in.absmax, out, in.blocksize), table,
                                    gpu.stream());
  }
  SUBBYTE_TRY(Machine machine, Machine::borrow());
  const Format format = out.format();
  const int64_t width = info(format).bits / 8;
  const auto element = format == Format::kF32   ? Element::kF32
                       : format == Format::kF16 ? Element::kF16
                                                : Element::kBF16;
  const auto store = machine.kernels().vectors->blocks->store[static_cast<int>(element)];
  constexpr int64_t kRun = 1024;
  machine.executor().parallel_for(n, 16 * kRun, [&](int64_t begin, int64_t end, int) {
    std::array<float, kRun> x;
    for (int64_t first = begin; first < end; first += kRun) {
      const int64_t last = std::min(first + kRun, end);
      unpack(x.data(), in.a.data(), table, in.absmax.span<const float>(), in.blocksize, first,
             last);
      store(out.data() + first * width, x.data(), last - first);
    }
  });
  return {};
}

Status dequantize_4bit(Arguments& arguments, Results& results) {
  const Dequantization in(arguments);
  SUBBYTE_TRY(const Table table, in.checked());
  SUBBYTE_TRY(Tensor out, results.result(in.shape, in.dtype, in.a));
  SUBBYTE_CHECK(dequantize_to(in, table, out));
  results.add(std::move(out));
  return {};
}

constexpr Operator kOperators[] = {
    {"quantize_4bit(Tensor A, int blocksize, str quant_type, ScalarType quant_storage) -> "
     "(Tensor, Tensor)",
     kernel<quantize_4bit>, kernel<quantize_4bit>},
    {"dequantize_4bit(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, "
     "ScalarType dtype) -> Tensor",
     kernel<dequantize_4bit>, kernel<dequantize_4bit>},
    {"dequantize_4bit.out(Tensor A, Tensor absmax, int blocksize, str quant_type, int[] shape, "
     "ScalarType dtype, Tensor(a!) out) -> ()",
     kernel_out<dequantize_4bit, 6>, kernel_out<dequantize_4bit, 6>},
};

}  // namespace

std::span<const Operator> bitsandbytes_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
