// gemv_4bit and gemm_4bit of bitsandbytes with their arguments.

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
  const auto count = static_cast<std::size_t>(in.rows * in.cols);
  auto bytes = allocate_bytes(count * sizeof(float));
  unpack(reinterpret_cast<float*>(bytes.get()), in.b.data(), in.table, in.absmax, in.blocksize, 0,
         in.rows * in.cols);
  matrix.view.codes = {bytes.get(), count * sizeof(float)};
  matrix.owners.push_back(std::move(bytes));
  return matrix;
}

struct Product {
  explicit Product(Arguments& arguments)
      : a(arguments.packed_tensor("A")),
        b(arguments.packed_tensor("B")),
        shape(arguments.integers()),
        absmax(arguments.packed_tensor("absmax")) {}

  Status check(int64_t blocksize, int64_t scales) const {
    SUBBYTE_CHECK(check_floats(a));
    if (shape.size() != 2 || shape[0] < 0 || shape[1] < 1 || shape[0] > 1 << 24 ||
        shape[1] > 1 << 24) {
      return refuse("shapeB", "[N, K] up to 2^24", shown(shape));
    }
    if (a.dim() < 1 || a.size(-1) != shape[1]) {
      return refuse(a, "a last dimension of " + std::to_string(shape[1]));
    }
    SUBBYTE_CHECK(check_blocksize(blocksize));
    const int64_t n = shape[0] * shape[1];
    if (b.num_bytes() != (n + 1) / 2) {
      return refuse(b, std::to_string((n + 1) / 2) + " bytes");
    }
    const int64_t blocks = (n + blocksize - 1) / blocksize;
    return scales == blocks
               ? Status()
               : refuse("absmax", std::to_string(blocks) + " scales", std::to_string(scales));
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
  explicit Gemv(Arguments& arguments)
      : product(arguments), code(arguments.packed_tensor("code")), blocksize(arguments.integer()) {}

  Status check() const {
    SUBBYTE_CHECK(check_dtype(product.absmax, {numbers().f32}));
    SUBBYTE_CHECK(product.check(blocksize, product.absmax.count()));
    SUBBYTE_CHECK(check_dtype(code, {numbers().f32}));
    return code.count() == 16 ? Status() : refuse(code, "16 values");
  }
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

Status gemv_4bit(Arguments& arguments, Results& results) {
  const Gemv in(arguments);
  SUBBYTE_CHECK(in.check());
  Tensor out = Tensor::empty(product_sizes(in.product.a, in.product.shape[0]), in.product.a.dtype(),
                             in.product.a);
  SUBBYTE_CHECK(in.multiply_to(out));
  results.add(std::move(out));
  return {};
}

Status gemv_4bit_out(Arguments& arguments, Results&) {
  const Gemv in(arguments);
  Tensor out = arguments.tensor("out");
  SUBBYTE_CHECK(in.check());
  SUBBYTE_CHECK(
      check_out(out, product_sizes(in.product.a, in.product.shape[0]), in.product.a.dtype()));
  return in.multiply_to(out);
}

/// The second quantization of scales: bytes of a table, in blocks of 256 that have a factor.
struct Nested {
  explicit Nested(Arguments& arguments)
      : bytes(arguments.optional_tensor("absmax_8bit")),
        code(arguments.optional_tensor("absmax_code")),
        offset(arguments.optional_tensor("absmax_offset")) {}

  static constexpr int64_t kBlock = 256;

  Status check(const Tensor& absmax) const {
    SUBBYTE_CHECK(check_dtype(absmax, {numbers().f32}));
    if (!bytes) return {};
    SUBBYTE_CHECK(check_dtype(*bytes, {numbers().u8}));
    if (!code || code->dtype() != numbers().f32 || code->count() != kBlock) {
      return refuse("absmax_code", "f32 [256]", code ? shown(code->sizes()) : "none");
    }
    if (!offset || offset->dtype() != numbers().f32 || offset->count() != 1) {
      return refuse("absmax_offset", "one f32", offset ? shown(offset->sizes()) : "none");
    }
    if (absmax.count() == (bytes->count() + kBlock - 1) / kBlock) return {};
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

Status gemm_4bit(Arguments& arguments, Results& results) {
  const Product in(arguments);
  const int64_t blocksize = arguments.integer();
  const std::string quant_type = arguments.text();
  const std::optional<Tensor> bias = arguments.optional_tensor("bias");
  const Nested nested(arguments);
  SUBBYTE_CHECK(nested.check(in.absmax));
  SUBBYTE_CHECK(in.check(blocksize, nested.bytes ? nested.bytes->count() : in.absmax.count()));
  SUBBYTE_TRY(const Table table, table_of(quant_type));
  if (bias) {
    SUBBYTE_CHECK(check_floats(*bias));
    SUBBYTE_CHECK(check_sizes(*bias, {in.shape[0]}));
  }
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
  Tensor out = Tensor::empty(product_sizes(in.a, in.shape[0]), in.a.dtype(), in.a);
  SUBBYTE_CHECK(multiply_kept(in.a,
                              {"gemm_4bit", {in.shape[0], in.shape[1], blocksize}, quant_type},
                              sources, make, bias, out));
  results.add(std::move(out));
  return {};
}

constexpr Operator kOperators[] = {
    {"gemv_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize) -> "
     "Tensor",
     kernel<gemv_4bit>, kernel<gemv_4bit>},
    {"gemv_4bit.out(Tensor A, Tensor B, int[] shapeB, Tensor absmax, Tensor code, int blocksize, "
     "Tensor(a!) out) -> ()",
     kernel<gemv_4bit_out>, kernel<gemv_4bit_out>},
    {"gemm_4bit(Tensor A, Tensor B, int[] shapeB, Tensor absmax, int blocksize, str quant_type, "
     "Tensor? bias=None, Tensor? absmax_8bit=None, Tensor? absmax_code=None, "
     "Tensor? absmax_offset=None) -> Tensor",
     kernel<gemm_4bit>, kernel<gemm_4bit>},
};

}  // namespace

std::span<const Operator> bitsandbytes_products() {
  return kOperators;
}

}  // namespace subbyte::torch_operators
