#include "quantize/quantize_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"

namespace subbyte {
namespace {

/// What one thread needs, and the first fault that it met.
struct Worker {
  std::vector<float> weights;
  std::vector<uint8_t> codes;
  int64_t fault_row = -1;
  Error fault;
};

struct Output {
  MatrixView view;
  std::byte* codes;
  std::byte* scales;
  std::byte* zeros;
};

Error shape_error(const WeightFormat& format, int64_t rows, int64_t cols, const char* expected) {
  return {"quantize.shape", "a matrix of " + std::to_string(rows) + " rows and " +
                                std::to_string(cols) + " columns to be quantized as " +
                                to_string(format) + ": expected " + expected};
}

Status check_shape(const WeightFormat& format, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1) return shape_error(format, rows, cols, "at least one of each");
  if (format.group_size < 0) return shape_error(format, rows, cols, "no negative group size");
  // A weight takes 32 bits at most, its own group included, so no size below overflows.
  const auto weights = checked_mul(static_cast<uint64_t>(rows), static_cast<uint64_t>(cols));
  if (!weights || *weights >= (uint64_t{1} << 58)) {
    return shape_error(format, rows, cols, "less than 2^58 weights");
  }
  if (format.group_size != 0 && cols % format.group_size != 0) {
    return shape_error(format, rows, cols, "columns to be a multiple of the group");
  }
  return {};
}

/// Eight codes of kWidth bits, which are kWidth bytes.
template <int kWidth>
void pack_eight(const uint8_t* codes, std::byte* out) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{codes[i]} << (i * kWidth);
  std::memcpy(out, &word, kWidth);
}

/// Little-endian, kWidth bits for each code; the rest of the last byte stays zero.
template <int kWidth>
void pack(std::span<const uint8_t> codes, std::byte* out) {
  std::size_t i = 0;
  for (; i + 8 <= codes.size(); i += 8, out += kWidth) pack_eight<kWidth>(codes.data() + i, out);
  if (i == codes.size()) return;
  std::array<uint8_t, 8> rest = {};
  std::ranges::copy(codes.subspan(i), rest.begin());
  std::array<std::byte, kWidth> packed;
  pack_eight<kWidth>(rest.data(), packed.data());
  std::copy_n(packed.begin(), ((codes.size() - i) * kWidth + 7) / 8, out);
}

void pack_codes(std::span<const uint8_t> codes, int width, std::byte* out) {
  constexpr void (*kPack[])(std::span<const uint8_t>, std::byte*) = {
      pack<1>, pack<2>, pack<3>, pack<4>, pack<5>, pack<6>, pack<7>, pack<8>};
  kPack[width - 1](codes, out);
}

/// Of infinity and NaN all bits of the exponent are set.
bool are_finite(std::span<const float> weights) {
  constexpr uint32_t kExponent = 0x7F800000;
  uint32_t bad = 0;
  for (const float weight : weights) {
    bad |= (std::bit_cast<uint32_t>(weight) & kExponent) == kExponent ? 1 : 0;
  }
  return bad == 0;
}

Status check_finite(std::span<const float> weights, int64_t row) {
  if (are_finite(weights)) return {};
  const auto bad = std::find_if(weights.begin(), weights.end(),
                                [](float weight) { return !std::isfinite(weight); });
  return Error{"quantize.not_finite",
               "row " + std::to_string(row) + ", column " + std::to_string(bad - weights.begin()) +
                   ": expected a finite weight, found " + std::to_string(*bad)};
}

Status quantize_row(Output& output, int64_t row, Worker& worker,
                    const GroupQuantizer& quantize_group) {
  const MatrixView& view = output.view;
  SUBBYTE_CHECK(check_finite(worker.weights, row));
  const FormatInfo& scale = info(view.format.scale);
  const int64_t scale_bytes = scale.bits / 8;
  const int64_t zero_size = zero_bytes(view.format.zero);
  const int64_t size = view.group_size();
  for (int64_t g = 0; g < view.groups(); ++g) {
    GroupCodes group = {.codes = std::span(worker.codes).subspan(g * size, size)};
    quantize_group(std::span<const float>(worker.weights).subspan(g * size, size), group);
    if (!std::isfinite(scale.decode(group.scale))) {
      return Error{"quantize.scale_overflow",
                   "row " + std::to_string(row) + ", columns " + std::to_string(g * size) + " to " +
                       std::to_string(g * size + size - 1) + ": expected a scale of at most " +
                       std::to_string(scale.max) + ", as " + std::string(scale.name) +
                       " holds, found a larger one"};
    }
    const int64_t index = row * view.groups() + g;
    std::memcpy(output.scales + index * scale_bytes, &group.scale, scale_bytes);
    if (zero_size > 0) std::memcpy(output.zeros + index * zero_size, &group.zero, zero_size);
  }
  pack_codes(worker.codes, info(view.format.element).bits, output.codes + row * view.row_bytes());
  return {};
}

/// Zeroed memory for the matrix, and views of it.
Output allocate(Matrix& matrix) {
  MatrixView& view = matrix.view;
  const auto part = [&](int64_t size, std::span<const std::byte>& span) {
    std::shared_ptr<std::byte[]> bytes = allocate_bytes(static_cast<std::size_t>(size));
    span = {bytes.get(), static_cast<std::size_t>(size)};
    std::byte* data = bytes.get();
    matrix.owners.push_back(std::shared_ptr<const void>(std::move(bytes), data));
    return data;
  };
  const int64_t scales = view.rows * view.groups();
  Output output = {};
  output.codes = part(view.rows * view.row_bytes(), view.codes);
  output.scales = part(scales * (info(view.format.scale).bits / 8), view.scales);
  if (view.format.zero != Zero::kNone) {
    output.zeros = part(scales * zero_bytes(view.format.zero), view.zeros);
  }
  output.view = view;
  return output;
}

std::vector<Worker> make_workers(int count, int64_t cols) {
  std::vector<Worker> workers(count);
  for (Worker& worker : workers) {
    worker.weights.resize(cols);
    worker.codes.resize(cols);
  }
  return workers;
}

Result<Matrix> quantize_into(Matrix matrix, const RowReader& read_row, Executor& pool,
                             const GroupQuantizer& quantize_group) {
  Output output = allocate(matrix);
  const MatrixView& view = matrix.view;
  std::vector<Worker> workers = make_workers(pool.size(), view.cols);
  const int64_t grain = std::max<int64_t>(1, 65536 / view.cols);
  pool.parallel_for(view.rows, grain, [&](int64_t begin, int64_t end, int task) {
    Worker& worker = workers[task];
    for (int64_t row = begin; row < end; ++row) {
      read_row(row, worker.weights.data());
      Status status = quantize_row(output, row, worker, quantize_group);
      if (status.ok()) continue;
      if (worker.fault_row < 0 || row < worker.fault_row) {
        worker.fault_row = row;
        worker.fault = std::move(status).error();
      }
      return;
    }
  });
  Worker* first = nullptr;
  for (Worker& worker : workers) {
    if (worker.fault_row < 0) continue;
    if (first == nullptr || worker.fault_row < first->fault_row) first = &worker;
  }
  if (first != nullptr) return std::move(first->fault);
  return matrix;
}

}  // namespace

Result<Matrix> quantize_rows(const WeightFormat& format, int64_t rows, int64_t cols,
                             const RowReader& read_row, Executor& pool,
                             const GroupQuantizer& quantize_group) {
  SUBBYTE_CHECK(check_shape(format, rows, cols));
  Matrix matrix;
  matrix.view.format = format;
  matrix.view.rows = rows;
  matrix.view.cols = cols;
  try {
    return quantize_into(std::move(matrix), read_row, pool, quantize_group);
  } catch (const std::bad_alloc&) {
    return Error{"quantize.out_of_memory", "no memory for a matrix of " + std::to_string(rows) +
                                               " rows and " + std::to_string(cols) +
                                               " columns as " + to_string(format)};
  }
}

float largest_magnitude(std::span<const float> weights) {
  // In lanes, as the compiler may not change the order of comparisons by itself.
  std::array<float, 8> largest = {};
  std::size_t i = 0;
  for (; i + largest.size() <= weights.size(); i += largest.size()) {
    for (std::size_t lane = 0; lane < largest.size(); ++lane) {
      const float size = std::fabs(weights[i + lane]);
      largest[lane] = size > largest[lane] ? size : largest[lane];
    }
  }
  for (; i < weights.size(); ++i) largest[0] = std::max(largest[0], std::fabs(weights[i]));
  return *std::ranges::max_element(largest);
}

double largest_magnitude(int64_t rows, int64_t cols, const RowReader& read_row, Executor& pool) {
  std::vector<float> largest(pool.size());
  const int64_t grain = std::max<int64_t>(1, 65536 / std::max<int64_t>(1, cols));
  pool.parallel_for(rows, grain, [&](int64_t begin, int64_t end, int task) {
    std::vector<float> weights(cols);
    for (int64_t row = begin; row < end; ++row) {
      read_row(row, weights.data());
      largest[task] = std::max(largest[task], largest_magnitude(weights));
    }
  });
  return *std::ranges::max_element(largest);
}

}  // namespace subbyte
