// quantize_4bit and dequantize_4bit of bitsandbytes with their call.

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/block_kernels.h"
#include "kernels/cuda/layouts/other_layouts.h"
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
  int64_t blocks() const { return (a.count() + blocksize - 1) / blocksize; }

  Tensor a;
  int64_t blocksize;
  int64_t quant_type;
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

Status quantize_4bit(Call& call) {
  const Quantization in = {call.tensor(), call.integer(), call.choice(), call.dtype()};
  SUBBYTE_CHECK(call.check());
  SUBBYTE_CHECK(check_blocksize(in.blocksize));
  const Table& table = table_of(in.quant_type);
  const int64_t bytes = (in.a.count() + 1) / 2;
  if (bytes % bytes_of(in.storage) != 0) {
    return refuse("quant_storage", "a type whose elements fill " + std::to_string(bytes) + " bytes",
                  name_of(in.storage));
  }
  SUBBYTE_TRY(Tensor packed, call.result(0));
  SUBBYTE_TRY(Tensor absmax, call.result(1));
  if (!in.a.on_cpu()) {
    SUBBYTE_TRY(const device::Gpu gpu, gpu_of(in.a));
    const Rising rising(table);
    SUBBYTE_CHECK(cuda::quantize_nibbles(blocks_of(packed, absmax, in.a, in.blocksize),
                                         {rising.codes, rising.middles}, gpu.stream()));
  } else if (in.a.count() > 0) {
    SUBBYTE_TRY(Machine machine, Machine::borrow());
    quantize_all(machine, in, Rising(table), packed.data(), absmax.data<float>());
  }
  SUBBYTE_CHECK(call.add(std::move(packed)));
  return call.add(std::move(absmax));
}

// ---- from codes ------------------------------------------------------------------------------

struct Dequantization {
  Status check(Call& call) const {
    int64_t n = 1;
    for (const int64_t size : shape) {
      if (size < 0 || __builtin_mul_overflow(n, size, &n)) {
        return refuse("shape", "sizes of a tensor", shown(shape));
      }
    }
    SUBBYTE_CHECK(check_blocksize(blocksize));
    if (a.num_bytes() != (n + 1) / 2) {
      return refuse(a,
                    std::to_string((n + 1) / 2) + " bytes for " + std::to_string(n) + " numbers");
    }
    return call.check();
  }

  Tensor a;
  Tensor absmax;
  int64_t blocksize;
  int64_t quant_type;
  std::vector<int64_t> shape;
  int32_t dtype;
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
  const auto store = machine.kernels().vectors->blocks->store[static_cast<int>(element_of(format))];
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

Status dequantize_4bit(Call& call) {
  const Dequantization in = {call.tensor(), call.tensor(),   call.integer(),
                             call.choice(), call.integers(), call.dtype()};
  SUBBYTE_CHECK(in.check(call));
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(dequantize_to(in, table_of(in.quant_type), out));
  return call.add(std::move(out));
}

#define SUBBYTE_DEQUANTIZE                                                            \
  "Tensor A{any}, Tensor absmax{f32 (per(rows, blocksize): scales)}, int blocksize, " \
  "str quant_type{nf4|fp4}, int[] shape{...}, ScalarType dtype{floats}"

constexpr Operator kOperators[] = {
    {"quantize_4bit(Tensor A{floats (n=)}, int blocksize, str quant_type{nf4|fp4}, "
     "ScalarType quant_storage{floats|u8}) -> "
     "(Tensor{quant_storage [per(n, 2) // bytes(quant_storage), 1]}, "
     "Tensor{f32 [per(n, blocksize)]})",
     quantize_4bit},
    {"dequantize_4bit(" SUBBYTE_DEQUANTIZE ") -> Tensor{dtype [...]}", dequantize_4bit},
    {"dequantize_4bit.out(" SUBBYTE_DEQUANTIZE ", Tensor(a!) out{dtype [...]}) -> ()",
     dequantize_4bit},
};

}  // namespace

std::span<const Operator> bitsandbytes_operators() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
