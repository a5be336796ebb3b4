// gemv_4bit and gemm_4bit of bitsandbytes with their call.

#include <algorithm>
#include <array>
#include <numeric>

#include "torch_operators/bitsandbytes_tables.h"
#include "torch_operators/operators.h"
#include "torch_operators/product.h"

namespace subbyte::torch_operators {
namespace {

/// Weights [N, K] that were packed so.
struct Packed {
  const Tensor& b;  // of the host
  std::span<const float> absmax;
  int64_t blocksize;
  int64_t rows;
  int64_t cols;
  Table table;
};

/// The largest number of inputs that divides rows and blocks.
int64_t group_of(const Packed& in) {
  return std::gcd(in.cols, in.blocksize);
}

/// Codes of a table that is not NF4, as indices of a rising codebook of nfl4: equal entries get one
/// code, and what is left over codes that nothing has.
std::array<uint8_t, 16> make_codebook(const Table& table, std::array<float, 16>& codebook) {
  std::array<float, 16> values = table;
  std::ranges::sort(values);
  const auto [first, last] = std::ranges::unique(values);
  auto end = static_cast<std::size_t>(first - values.begin());
  std::array<uint8_t, 16> codes{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    codes[i] = static_cast<uint8_t>(
        std::ranges::lower_bound(values.begin(), values.begin() + end, table[i]) - values.begin());
  }
  for (; end < values.size(); ++end) values[end] = values[end - 1] + 1;
  codebook = values;
  return codes;
}

Matrix packed_matrix(const Packed& in) {
  Matrix matrix;
  MatrixView& view = matrix.view;
  view.rows = in.rows;
  view.cols = in.cols;
  const bool nf4 = in.table == nf4_table();
  view.format = {nf4 ? Format::kNF4 : Format::kNFL4, Format::kF32, Zero::kNone, group_of(in)};
  std::array<uint8_t, 16> recoded{};
  std::iota(recoded.begin(), recoded.end(), uint8_t{0});
  const auto size = static_cast<std::size_t>(in.rows * in.cols / 2);
  const auto groups = static_cast<std::size_t>(in.rows * view.groups());
  auto bytes = allocate_bytes(size + groups * sizeof(float) + sizeof(Table));
  // The codebook comes first, then the scales, so that all are aligned.
  auto* const codebook = reinterpret_cast<std::array<float, 16>*>(bytes.get());
  if (!nf4) {
    recoded = make_codebook(in.table, *codebook);
    view.codebook = *codebook;
  }
  auto* const scales = reinterpret_cast<float*>(bytes.get() + sizeof(Table));
  for (std::size_t i = 0; i < groups; ++i) {
    const auto first = static_cast<int64_t>(i) * view.format.group_size;
    scales[i] = in.absmax[static_cast<std::size_t>(first / in.blocksize)];
  }
  std::byte* const codes = bytes.get() + sizeof(Table) + groups * sizeof(float);
  std::ranges::transform(in.b.span(), codes, [&](std::byte byte) {
    const auto pair = std::to_integer<uint32_t>(byte);
    return std::byte(recoded[pair >> 4] | recoded[pair & 15u] << 4);
  });
  view.codes = {codes, size};
  view.scales = {reinterpret_cast<std::byte*>(scales), groups * sizeof(float)};
  matrix.owners.push_back(std::move(bytes));
  return matrix;
}

/// Rows that end within a byte, or blocks that are no multiples of 8 in a row: floats.
Matrix dense_matrix(const Packed& in) {
  Matrix matrix;
  matrix.view.rows = in.rows;
  matrix.view.cols = in.cols;
  auto* const to = reinterpret_cast<float*>(
      allocate_part(matrix, matrix.view.codes, in.rows * in.cols * int64_t{sizeof(float)}));
  unpack(to, in.b.data(), in.table, in.absmax, in.blocksize, 0, in.rows * in.cols);
  return matrix;
}

struct Product {
  Status check(Call& call, int64_t blocksize) const {
    for (const int64_t size : shape) {
      if (size < 0 || size > 1 << 24) return refuse("shapeB", "[N, K] up to 2^24", shown(shape));
    }
    SUBBYTE_CHECK(check_blocksize(blocksize));
    SUBBYTE_CHECK(call.check());
    if (shape[1] < 1) return refuse("shapeB", "an input", shown(shape));
    const int64_t bytes = (shape[0] * shape[1] + 1) / 2;
    return b.num_bytes() == bytes ? Status() : refuse(b, std::to_string(bytes) + " bytes");
  }

  Tensor a;
  Tensor b;
  std::vector<int64_t> shape;
  Tensor absmax;
};

Matrix matrix_of_packed(const Packed& packed) {
  const bool whole = packed.cols % 2 == 0 && group_of(packed) % 8 == 0;
  return whole ? packed_matrix(packed) : dense_matrix(packed);
}

struct Gemv {
  Status multiply_to(Tensor& out) const {
    const auto make = [&] {
      Packed packed = {product.b.host(), product.absmax.host().span<const float>(),
                       blocksize,        product.shape[0],
                       product.shape[1], {}};
      std::copy_n(code.host().data<const float>(), 16, packed.table.begin());
      return Result<Matrix>(matrix_of_packed(packed));
    };
    const std::array sources = {&product.b, &product.absmax, &code};
    return multiply_kept(product.a,
                         {"gemv_4bit", {product.shape[0], product.shape[1], blocksize}, {}},
                         sources, make, std::nullopt, out);
  }

  Product product;
  Tensor code;
  int64_t blocksize;
};

Status gemv_4bit(Call& call) {
  const Gemv in = {{call.tensor(), call.tensor(), call.integers(), call.tensor()},
                   call.tensor(),
                   call.integer()};
  SUBBYTE_CHECK(in.product.check(call, in.blocksize));
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(in.multiply_to(out));
  return call.add(std::move(out));
}

/// The second quantization of scales: bytes of a table, in blocks of 256 that have a factor.
struct Nested {
  static constexpr int64_t kBlock = 256;

  Status check(const Tensor& absmax, int64_t blocks) const {
    const int64_t scales = bytes ? bytes->count() : absmax.count();
    if (scales != blocks) return refuse("absmax", std::to_string(blocks) + " scales", scales);
    if (!bytes) return {};
    if (!code) return refuse("absmax_code", "f32 [256]", "none");
    if (!offset) return refuse("absmax_offset", "one f32", "none");
    if (absmax.count() == (scales + kBlock - 1) / kBlock) return {};
    return refuse(absmax, "a factor for each 256 of absmax_8bit");
  }
  std::vector<float> scales(const Tensor& absmax) const {
    std::vector<float> values(static_cast<std::size_t>(bytes->count()));
    const auto* const factors = absmax.host().data<const float>();
    const float added = *offset->host().data<const float>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto index = std::to_integer<uint8_t>(bytes->host().data()[i]);
      values[i] = code->host().data<const float>()[index] * factors[i / kBlock] + added;
    }
    return values;
  }

  std::optional<Tensor> bytes;
  std::optional<Tensor> code;
  std::optional<Tensor> offset;
};

Status gemm_4bit(Call& call) {
  const Product in = {call.tensor(), call.tensor(), call.integers(), call.tensor()};
  const int64_t blocksize = call.integer();
  const int64_t quant_type = call.choice();
  const std::optional<Tensor> bias = call.optional_tensor();
  const Nested nested = {call.optional_tensor(), call.optional_tensor(), call.optional_tensor()};
  SUBBYTE_CHECK(in.check(call, blocksize));
  const int64_t n = in.shape[0] * in.shape[1];
  SUBBYTE_CHECK(nested.check(in.absmax, (n + blocksize - 1) / blocksize));
  const Table table = table_of(quant_type);
  const auto make = [&] {
    std::vector<float> scales;
    if (nested.bytes) scales = nested.scales(in.absmax);
    const Packed packed = {
        in.b.host(), nested.bytes ? scales : in.absmax.host().span<const float>(),
        blocksize,   in.shape[0],
        in.shape[1], table};
    return Result<Matrix>(matrix_of_packed(packed));
  };
  const auto address = [](const std::optional<Tensor>& t) { return t ? &*t : nullptr; };
  const std::array<const Tensor*, 5> sources = {&in.b, &in.absmax, address(nested.bytes),
                                                address(nested.code), address(nested.offset)};
  SUBBYTE_TRY(Tensor out, call.result());
  SUBBYTE_CHECK(multiply_kept(in.a,
                              {"gemm_4bit", {in.shape[0], in.shape[1], blocksize, quant_type}, {}},
                              sources, make, bias, out));
  return call.add(std::move(out));
}

#define SUBBYTE_PRODUCT "Tensor A{floats [..., K]}, Tensor B{any}, int[] shapeB{N=, K=}, "
#define SUBBYTE_GEMV                                     \
  SUBBYTE_PRODUCT                                        \
  "Tensor absmax{f32 (per(N * K, blocksize): scales)}, " \
  "Tensor code{f32 (16: values)}, int blocksize"

constexpr Operator kOperators[] = {
    {"gemv_4bit(" SUBBYTE_GEMV ") -> Tensor{A [..., N]}", gemv_4bit},
    {"gemv_4bit.out(" SUBBYTE_GEMV ", Tensor(a!) out{A [..., N]}) -> ()", gemv_4bit},
    {"gemm_4bit(" SUBBYTE_PRODUCT "Tensor absmax{f32}, int blocksize, str quant_type{nf4|fp4}, "
     "Tensor? bias{floats [N]}=None, Tensor? absmax_8bit{u8}=None, "
     "Tensor? absmax_code{f32 (256)}=None, Tensor? absmax_offset{f32 (1: number)}=None) -> "
     "Tensor{A [..., N]}",
     gemm_4bit},
};

}  // namespace

std::span<const Operator> bitsandbytes_products() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
