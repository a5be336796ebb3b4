// Products of matrices, and the loads and stores of their fragments.
#include "matrices.h"

#include "report.h"

namespace subbyte::interpreter {
namespace {

constexpr int kLanes = 32;

uint32_t part_of(const Thread& thread, const Operand& operand, int i) {
  const bool is_vector = operand.kind == OperandKind::kVector;
  return static_cast<uint32_t>(value_of(thread, is_vector ? operand.parts[i] : operand));
}

int num_parts(const Operand& operand) {
  return operand.kind == OperandKind::kVector ? static_cast<int>(operand.parts.size()) : 1;
}

/// Row-major numbers.
struct Numbers {
  explicit Numbers(int rows, int num_columns)
      : columns(num_columns), values(size_t(rows) * num_columns) {}
  double& at(int row, int column) { return values[size_t(row) * columns + column]; }

  int columns;
  std::vector<double> values;
};

double dot(Numbers& a, int row, Numbers& b, int column) {
  double sum = 0;
  for (int k = 0; k < a.columns; ++k) sum += a.at(row, k) * b.at(column, k);
  return sum;
}

// --- fragments in registers: PTX ISA 9.0, "Matrix Fragments for mma.m16n8k16 with floating point
// type" and of the other shapes, and "Register Fragments" of wgmma, whose warps have 16 of its 64
// rows each in the same order. Lane 4 r + c has numbers of rows r and r + 8. A register has `per`
// neighbours of a row.

int per_register(Type type) {
  return 4 / width(type);
}

/// A: register r has rows r % 2 * 8 + lane / 4 and, from column r / 2 * 4 `per`, neighbours.
void read_a(const Warp& warp, const Operand& registers, Type type, Numbers& a) {
  const int per = per_register(type);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < num_parts(registers); ++r) {
      const uint32_t bits = part_of(*warp.thread[lane], registers, r);
      const int row = lane / 4 + r % 2 * 8;
      const int column = lane % 4 * per + r / 2 * 4 * per;
      for (int i = 0; i < per; ++i) a.at(row, column + i) = element(type, bits, i);
    }
  }
}

/// B, whose columns are rows here.
void read_b(const Warp& warp, const Operand& registers, Type type, Numbers& b) {
  const int per = per_register(type);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int r = 0; r < num_parts(registers); ++r) {
      const uint32_t bits = part_of(*warp.thread[lane], registers, r);
      const int k = lane % 4 * per + r * 4 * per;
      for (int i = 0; i < per; ++i) b.at(lane / 4, k + i) = element(type, bits, i);
    }
  }
}

/// Row and column of number i of the accumulators of a lane.
int accumulator_row(int lane, int i) {
  return lane / 4 + (i / 2 % 2) * 8;
}
int accumulator_column(int lane, int i) {
  return i / 4 * 8 + lane % 4 * 2 + i % 2;
}

// --- wgmma

/// A matrix in shared memory: PTX ISA 9.0, "Matrix Descriptor Format", "Strides", "Asynchronous
/// Warpgroup Level Matrix Shared Memory Layout". Addresses and offsets are in units of 16 bytes.
class SharedMatrix {
 public:
  SharedMatrix(Cta& cta, uint64_t descriptor, Type type, bool transposed)
      : cta_(cta), type_(type), transposed_(transposed), size_(width(type)) {
    start_ = field(descriptor, 0);
    leading_ = field(descriptor, 16);
    stride_ = field(descriptor, 32);
    constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
    swizzle_ = kModes[descriptor >> 62];
    if ((descriptor >> 49 & 7) != 0) stop("a matrix whose pattern has an offset is not known");
    if (transposed && swizzle_ != Swizzle::k128) stop("no such transposed matrix is known");
  }

  /// Number k of row (of A) or column (of B) mn.
  double number(int mn, int k) const {
    const uint64_t address =
        swizzled(transposed_ ? address_across(mn, k) : address_along(mn, k), swizzle_);
    uint32_t bits = 0;
    std::memcpy(&bits, shared_memory(cta_, in_cta(cta_, address), size_), size_);
    return element(type_, bits, 0);
  }

 private:
  static uint64_t field(uint64_t descriptor, int shift) {
    return (descriptor >> shift & 0x3fff) << 4;
  }

  /// Neighbours of k are neighbours in memory: groups of 8 rows, `stride` apart, of as many bytes
  /// as the swizzle repeats after; without one, of 16 bytes, `leading` apart.
  uint64_t address_along(int mn, int k) const {
    const uint64_t in_row = uint64_t(k) * size_;
    const uint64_t group = start_ + uint64_t(mn / 8) * stride_;
    switch (swizzle_) {
      case Swizzle::kNone:
        return group + mn % 8 * 16 + in_row / 16 * leading_ + in_row % 16;
      case Swizzle::k128:
        return group + mn % 8 * 128 + in_row;
      case Swizzle::k64:
        return group + mn % 8 * 64 + in_row;
      default:
        return group + mn % 8 * 32 + in_row;
    }
  }

  /// Neighbours of mn are neighbours in memory: 64 in 128 bytes, `leading` apart, and groups of 8
  /// numbers of k, `stride` apart.
  uint64_t address_across(int mn, int k) const {
    return start_ + uint64_t(mn % 64) * size_ + k % 8 * 128 + uint64_t(mn / 64) * leading_ +
           uint64_t(k / 8) * stride_;
  }

  Cta& cta_;
  Type type_;
  bool transposed_;
  size_t size_;
  uint64_t start_, leading_, stride_;
  Swizzle swizzle_;
};

bool flag_of(const Instruction& in, size_t operand) {
  return in.operands.size() > operand && in.operands[operand].value != 0;
}

uint64_t descriptor_of(const Warp& warp, const Operand& operand) {
  const uint64_t descriptor = value_of(*warp.thread[0], operand);
  for (const Thread* thread : warp.thread) {
    if (value_of(*thread, operand) != descriptor) stop("descriptors differ in a warp");
  }
  return descriptor;
}

void read_shared(const SharedMatrix& matrix, int first, int count, Numbers& numbers) {
  for (int i = 0; i < count; ++i) {
    for (int k = 0; k < numbers.columns; ++k) numbers.at(i, k) = matrix.number(first + i, k);
  }
}

}  // namespace

/// The 16 rows of a warp of its warpgroup. A barrier of the warpgroup is not needed, as wgmma
/// exchanges nothing between its warps.
void multiply_warpgroup(Warp& warp, const Instruction& in) {
  Cta& cta = *warp.thread[0]->cta;
  const Operand& left = in.operands[1];
  const bool in_registers = left.kind == OperandKind::kVector;
  for (size_t sign : {4, 5}) {
    if (in.operands.size() > sign && in.operands[sign].value != 1) stop("no sign is known");
  }
  Numbers a(16, in.k);
  Numbers b(in.n, in.k);
  const bool b_transposed = flag_of(in, in_registers ? 6 : 7);
  read_shared(SharedMatrix(cta, descriptor_of(warp, in.operands[2]), in.type3, b_transposed), 0,
              in.n, b);
  if (in_registers) {
    read_a(warp, left, in.type2, a);
  } else {
    const int first = warp.thread[0]->index / kLanes % 4 * 16;
    read_shared(SharedMatrix(cta, descriptor_of(warp, left), in.type2, flag_of(in, 6)), first, 16,
                a);
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    Thread& thread = *warp.thread[lane];
    const bool adds = value_of(thread, in.operands[3]) != 0;
    for (int i = 0; i < in.n / 2; ++i) {
      const Operand& sum = in.operands[0].parts[i];
      const double before = adds ? float_of(value_of(thread, sum)) : 0;
      const double product = dot(a, accumulator_row(lane, i), b, accumulator_column(lane, i));
      set(thread, sum, bits_of(static_cast<float>(before + product)));
    }
  }
}

void multiply(Warp& warp, const Instruction& in) {
  if (num_parts(in.operands[1]) * per_register(in.type2) * 2 != in.k)
    stop("no such shape is known");
  Numbers a(16, in.k);
  Numbers b(8, in.k);
  read_a(warp, in.operands[1], in.type2, a);
  read_b(warp, in.operands[2], in.type3, b);
  for (int lane = 0; lane < kLanes; ++lane) {
    Thread& thread = *warp.thread[lane];
    for (int i = 0; i < 4; ++i) {
      const double product = dot(a, accumulator_row(lane, i), b, accumulator_column(lane, i));
      const uint64_t before = value_of(thread, in.operands[3].parts[i]);
      const uint64_t after =
          in.type == Type::kS32
              ? low_bits(Type::kS32, before + static_cast<uint64_t>(static_cast<int64_t>(product)))
              : bits_of(static_cast<float>(float_of(before) + product));
      set(thread, in.operands[0].parts[i], after);
    }
  }
}

// --- ldmatrix, stmatrix, movmatrix: PTX ISA 9.0 under these names. Matrices are of 8 x 8 numbers
// of 16 bits; lane 4 r + c has numbers 2 c and 2 c + 1 of row r. Lane 8 m + r says where row r of
// matrix m is.

namespace {

struct Matrix8 {
  uint16_t number[8][8];

  uint32_t pair(int lane, bool transposes) const {
    const int r = lane / 4;
    const int c = lane % 4 * 2;
    const uint32_t low = transposes ? number[c][r] : number[r][c];
    const uint32_t high = transposes ? number[c + 1][r] : number[r][c + 1];
    return low | high << 16;
  }
  void set_pair(int lane, bool transposes, uint32_t bits) {
    const int r = lane / 4;
    const int c = lane % 4 * 2;
    (transposes ? number[c][r] : number[r][c]) = static_cast<uint16_t>(bits);
    (transposes ? number[c + 1][r] : number[r][c + 1]) = static_cast<uint16_t>(bits >> 16);
  }
};

uint8_t* row_of(Warp& warp, const Operand& address, int matrix, int row) {
  Thread& thread = *warp.thread[8 * matrix + row];
  here.thread = thread.index;
  return memory_at(thread, Space::kShared, address_of(thread, address), 16);
}

const Operand& register_of(const Operand& registers, int matrix) {
  return registers.kind == OperandKind::kVector ? registers.parts[matrix] : registers;
}

int num_matrices(const Instruction& in) {
  return in.n == 0 ? 1 : in.n;
}

}  // namespace

void load_fragments(Warp& warp, const Instruction& in) {
  // The registers may be those of the addresses.
  Matrix8 matrices[4];
  for (int m = 0; m < num_matrices(in); ++m) {
    for (int r = 0; r < 8; ++r) {
      std::memcpy(matrices[m].number[r], row_of(warp, in.operands[1], m, r), 16);
    }
  }
  for (int m = 0; m < num_matrices(in); ++m) {
    for (int lane = 0; lane < kLanes; ++lane) {
      set(*warp.thread[lane], register_of(in.operands[0], m),
          matrices[m].pair(lane, in.transposes));
    }
  }
}

void store_fragments(Warp& warp, const Instruction& in) {
  for (int m = 0; m < num_matrices(in); ++m) {
    Matrix8 matrix;
    for (int lane = 0; lane < kLanes; ++lane) {
      const uint64_t bits = value_of(*warp.thread[lane], register_of(in.operands[1], m));
      matrix.set_pair(lane, in.transposes, static_cast<uint32_t>(bits));
    }
    for (int r = 0; r < 8; ++r) {
      std::memcpy(row_of(warp, in.operands[0], m, r), matrix.number[r], 16);
    }
  }
}

void transpose_matrix(Warp& warp, const Instruction& in) {
  Matrix8 matrix;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t bits = value_of(*warp.thread[lane], in.operands[1]);
    matrix.set_pair(lane, false, static_cast<uint32_t>(bits));
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    set(*warp.thread[lane], in.operands[0], matrix.pair(lane, true));
  }
}

}  // namespace subbyte::interpreter
