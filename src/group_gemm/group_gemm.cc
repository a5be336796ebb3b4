#include "group_gemm/group_gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "base/checked.h"
#include "foreign_layouts/flashinfer.h"
#include "group_gemm/exact_products.h"
#include "group_gemm/rows.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/execution.h"
#include "kernels/cpu/linear.h"

namespace subbyte::group_gemm {
namespace {

Error refuse(std::string_view code, const std::string& argument, const std::string& expected,
             const std::string& found) {
  return {code, "group_gemm: " + argument + ": expected " + expected + ", found " + found};
}

Status check_hint(std::string_view code, const char* name, int value,
                  std::initializer_list<int> allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  std::string expected;
  for (const int one : allowed) expected += (expected.empty() ? "" : ", ") + std::to_string(one);
  return refuse(code, name, expected, std::to_string(value));
}

/// As many bytes as the product of `sizes`.
Status check_bytes(std::string_view code, const char* name, std::size_t found,
                   std::initializer_list<int64_t> sizes) {
  const std::vector<uint64_t> factors(sizes.begin(), sizes.end());
  const auto expected = checked_product(factors);
  if (expected && found == *expected) return {};
  return refuse(code, name, (expected ? std::to_string(*expected) : "more than 2^64") + " bytes",
                std::to_string(found));
}

std::string name_of(Format format) {
  return format == Format::kNone ? "none" : std::string(info(format).name);
}

Status check_shape(const GroupGemm& g) {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  if (g.n < 8 || g.n > kMaxSize || g.n % 8 != 0) {
    return refuse("group_gemm.n", "n", "a multiple of 8 up to 2^24", std::to_string(g.n));
  }
  if (g.k < 128 || g.k > kMaxSize || g.k % 128 != 0) {
    return refuse("group_gemm.k", "k", "a multiple of 128 up to 2^24", std::to_string(g.k));
  }
  if (g.a_dtype != Format::kE4M3 && g.a_dtype != Format::kE5M2) {
    return refuse("group_gemm.a_dtype", "a_dtype", "e4m3 or e5m2", name_of(g.a_dtype));
  }
  if (g.out_dtype != Format::kBF16 && g.out_dtype != Format::kF16) {
    return refuse("group_gemm.out_dtype", "out_dtype", "bf16 or f16", name_of(g.out_dtype));
  }
  if (const Status groups = check_flashinfer_groups(g.m_indptr); !groups.ok()) {
    return Error{"group_gemm.m_indptr", "group_gemm: " + groups.error().message};
  }
  return {};
}

int64_t groups_of(const GroupGemm& g) {
  return static_cast<int64_t>(g.m_indptr.size()) - 1;
}

constexpr int64_t kBatchRows = 256;
constexpr int64_t kBatchScaleBytes = int64_t{1} << 20;  // of a thread, whose cache keeps them
constexpr int64_t kUnpackGrain = 1 << 14;               // activations: a few microseconds

/// Groups in a row, as many as are unpacked together: one, or more as long as what is unpacked fits
/// the caches of the threads, from where it is read.
struct Batch {
  int64_t first = 0;
  int64_t end = 0;
};

/// Memory of the largest batch.
struct Buffers {
  float* x = nullptr;           // [rows][k]
  float* y = nullptr;           // [rows][n]
  std::byte* scales = nullptr;  // [groups][n][k / 32]
  RowKind* kinds = nullptr;     // [groups][n], of weights
};

/// The work of one call.
class Multiplier {
 public:
  Multiplier(const GroupGemm& gemm, Execution& execution)
      : g_(gemm), execution_(execution), rows_(gemm), kinds_(gemm.m_indptr.back()) {}

  Status run() {
    const std::vector<Batch> batches = divide();
    allocate(batches);
    for (const Batch& batch : batches) {
      unpack(batch);
      SUBBYTE_CHECK(multiply(batch));
      multiply_extreme_rows(batch);
    }
    return {};
  }

 private:
  int64_t rows_of(int64_t first, int64_t end) const {
    return g_.m_indptr[end] - g_.m_indptr[first];
  }
  int64_t scale_bytes() const { return g_.n * (g_.k / kBlockInputs); }

  std::vector<Batch> divide() const {
    std::vector<Batch> batches;
    const int64_t most_bytes = kBatchScaleBytes * execution_.pool().size();
    for (int64_t group = 0; group < groups_of(g_); ++group) {
      if (rows_of(group, group + 1) == 0) continue;
      if (!batches.empty()) {
        Batch& last = batches.back();
        const bool joins = rows_of(last.first, group + 1) <= kBatchRows &&
                           (group + 1 - last.first) * scale_bytes() <= most_bytes;
        if (joins) {
          last.end = group + 1;
          continue;
        }
      }
      batches.push_back({group, group + 1});
    }
    return batches;
  }

  void allocate(std::span<const Batch> batches) {
    int64_t rows = 0;
    int64_t groups = 0;
    for (const Batch& batch : batches) {
      rows = std::max(rows, rows_of(batch.first, batch.end));
      groups = std::max(groups, batch.end - batch.first);
    }
    memory_.x = execution_.floats(Execution::Slot::kExperts, rows * (g_.k + g_.n));
    memory_.y = memory_.x + rows * g_.k;
    uint8_t* const bytes =
        execution_.buffer(Execution::Slot::kGate, groups * (scale_bytes() + g_.n));
    memory_.scales = reinterpret_cast<std::byte*>(bytes);
    memory_.kinds = reinterpret_cast<RowKind*>(bytes + groups * scale_bytes());
  }

  /// Activations and scales of weights are one loop: each of the two is too short to wait for.
  void unpack(const Batch& batch) {
    const int64_t rows_at_once = std::max<int64_t>(1, kUnpackGrain / g_.k);
    const int64_t rows = rows_of(batch.first, batch.end);
    const int64_t runs = ceil_div(rows, rows_at_once);
    const int64_t atoms = ceil_div(g_.n, kAtomRows);
    const auto unpack_items = [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        if (i < runs) {
          unpack_rows(batch, i * rows_at_once, std::min((i + 1) * rows_at_once, rows));
        } else {
          unpack_scales(batch, (i - runs) / atoms, (i - runs) % atoms * kAtomRows);
        }
      }
    };
    execution_.pool().parallel_for(runs + (batch.end - batch.first) * atoms, 1, unpack_items);
  }

  /// Rows [begin, end) of the batch.
  void unpack_rows(const Batch& batch, int64_t begin, int64_t end) {
    const int64_t base = g_.m_indptr[batch.first];
    int64_t group = group_of(base + begin, batch);
    for (int64_t m = base + begin; m < base + end; ++m) {
      while (m >= g_.m_indptr[group + 1]) ++group;
      kinds_[m] = rows_.unpack_activations(memory_.x + (m - base) * g_.k, group, m);
    }
  }

  /// Up to kAtomRows rows of weights from `first` of a group of the batch on.
  void unpack_scales(const Batch& batch, int64_t group_of_batch, int64_t first) {
    const int64_t group = batch.first + group_of_batch;
    if (rows_of(group, group + 1) == 0) return;
    const int64_t row = group_of_batch * g_.n + first;
    rows_.unpack_weight_scales(memory_.scales + row * (g_.k / kBlockInputs), memory_.kinds + row,
                               group, first);
  }

  /// Rows of a group but for those at its end that are no ordinary ones: groups are filled up to 4
  /// rows with zeros.
  int64_t count_rows(int64_t group) const {
    int64_t end = g_.m_indptr[group + 1];
    while (end > g_.m_indptr[group] && kinds_[end - 1] != RowKind::kOrdinary) --end;
    return end - g_.m_indptr[group];
  }

  MatrixView weights_of(int64_t group, const Batch& batch) const {
    MatrixView weights;
    weights.format = {Format::kE2M1, Format::kE8M0, Zero::kNone, kBlockInputs};
    weights.rows = g_.n;
    weights.cols = g_.k;
    const int64_t code_bytes = g_.n * (g_.k / 2);
    weights.codes = g_.b.subspan(group * code_bytes, code_bytes);
    weights.scales = {memory_.scales + (group - batch.first) * scale_bytes(),
                      static_cast<std::size_t>(scale_bytes())};
    return weights;
  }

  Status multiply(const Batch& batch) {
    std::vector<MatrixView> weights;  // that products point to
    std::vector<LinearProduct> products;
    std::vector<int64_t> first_rows;  // of a
    weights.reserve(batch.end - batch.first);
    const int64_t base = g_.m_indptr[batch.first];
    for (int64_t group = batch.first; group < batch.end; ++group) {
      const int64_t begin = g_.m_indptr[group];
      const int64_t m = count_rows(group);
      std::ranges::fill(out_of(begin + m, 0, g_.m_indptr[group + 1] - begin - m), std::byte{0});
      if (m == 0) continue;
      const auto size = static_cast<std::size_t>(m);
      weights.push_back(weights_of(group, batch));
      products.push_back({.y = {memory_.y + (begin - base) * g_.n, size * g_.n},
                          .x = {memory_.x + (begin - base) * g_.k, size * g_.k},
                          .m = m,
                          .weights = &weights.back(),
                          .x_is_bf16 = true});
      first_rows.push_back(begin);
    }
    const auto finish_part = [&](const DonePart& part) {
      look_at_small_rows(products[part.set], first_rows[part.set], batch, part);
      store(products[part.set], first_rows[part.set], part);
    };
    return linear_group(execution_, products, 1, finish_part);
  }

  /// Decides which rows of weights with small scales are extreme. Other threads may decide it for
  /// the same rows at once, by other rows of a.
  void look_at_small_rows(const LinearProduct& product, int64_t first_row, const Batch& batch,
                          const DonePart& part) const {
    const int64_t group = group_of(first_row, batch);
    RowKind* const kinds = kinds_of(group, batch);
    for (int64_t n = part.begin; n < part.end; ++n) {
      const std::atomic_ref<RowKind> kind(kinds[n]);
      if (kind.load(std::memory_order_relaxed) != RowKind::kSmall) continue;
      float least = kSureResult;
      for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
        least = std::min(least, std::fabs(product.y[m * g_.n + n]));
      }
      if (least >= kSureResult) continue;
      const std::byte* const scales = product.weights->scales.data() + n * (g_.k / kBlockInputs);
      const bool is_extreme = rows_.has_small_weights(scales, group, n);
      kind.store(is_extreme ? RowKind::kExtreme : RowKind::kOrdinary, std::memory_order_relaxed);
    }
  }

  /// The group of a row that has one.
  int64_t group_of(int64_t row, const Batch& batch) const {
    int64_t group = batch.first;
    while (row >= g_.m_indptr[group + 1]) ++group;
    return group;
  }

  /// Rounds a part of y to out.
  void store(const LinearProduct& product, int64_t first_row, const DonePart& part) const {
    const auto element = g_.out_dtype == Format::kBF16 ? Element::kBF16 : Element::kF16;
    const auto store = execution_.kernels().vectors->blocks->store[static_cast<int>(element)];
    for (int64_t m = part.first_m; m < part.first_m + part.num_m; ++m) {
      store(out_of(first_row + m, part.begin, 0).data(), product.y.data() + m * g_.n + part.begin,
            part.end - part.begin);
    }
  }

  /// The bytes of out from output n of row m on, of so many rows.
  std::span<std::byte> out_of(int64_t m, int64_t n, int64_t rows) const {
    return g_.out.subspan((m * g_.n + n) * 2, rows * g_.n * 2);
  }

  /// Every product with a row that linear() was not given as it is.
  void multiply_extreme_rows(const Batch& batch) {
    std::vector<std::vector<int64_t>> extreme;  // of a, for each group
    bool any = false;
    for (int64_t group = batch.first; group < batch.end; ++group) {
      std::vector<int64_t>& rows = extreme.emplace_back();
      for (int64_t m = g_.m_indptr[group]; m < g_.m_indptr[group + 1]; ++m) {
        if (kinds_[m] == RowKind::kExtreme) rows.push_back(m);
      }
      const std::span kinds(kinds_of(group, batch), g_.n);
      any |= !rows.empty() || (rows_of(group, group + 1) > 0 &&
                               std::ranges::find(kinds, RowKind::kExtreme) != kinds.end());
    }
    if (!any) return;
    std::vector<int64_t> all(rows_of(batch.first, batch.end));
    std::iota(all.begin(), all.end(), g_.m_indptr[batch.first]);
    std::vector<ExactProducts> products(execution_.pool().size(), ExactProducts(g_, rows_));
    const auto multiply = [&](int64_t begin, int64_t end, int task) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t group = batch.first + i / g_.n;
        const int64_t m = rows_of(group, group + 1);
        std::span<const int64_t> rows = extreme[i / g_.n];
        if (m > 0 && kinds_of(group, batch)[i % g_.n] == RowKind::kExtreme) {
          rows = std::span(all).subspan(rows_of(batch.first, group), m);
        }
        if (!rows.empty()) products[task].multiply(group, i % g_.n, rows);
      }
    };
    execution_.pool().parallel_for(std::ssize(extreme) * g_.n, 8, multiply);
  }

  RowKind* kinds_of(int64_t group, const Batch& batch) const {
    return memory_.kinds + (group - batch.first) * g_.n;
  }

  const GroupGemm& g_;
  Execution& execution_;
  Rows rows_;
  std::vector<RowKind> kinds_;  // of the rows of a
  Buffers memory_;
};

}  // namespace

Status check_group_gemm(const GroupGemm& g) {
  SUBBYTE_CHECK(check_shape(g));
  SUBBYTE_CHECK(check_hint("group_gemm.mma_sm", "mma_sm", g.mma_sm, {1, 2}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_m", "tile_m", g.tile_m, {128}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_n", "tile_n", g.tile_n, {32, 64, 128, 192, 256}));
  SUBBYTE_CHECK(check_hint("group_gemm.tile_k", "tile_k", g.tile_k, {128, 256}));
  const int64_t groups = groups_of(g);
  const int64_t m = g.m_indptr.back();
  const int64_t a_scale_rows = flashinfer_group_row(g.m_indptr, groups);
  SUBBYTE_CHECK(check_bytes("group_gemm.a", "a", g.a.size(), {m, g.k}));
  SUBBYTE_CHECK(check_bytes("group_gemm.b", "b", g.b.size(), {groups, g.n, g.k / 2}));
  SUBBYTE_CHECK(check_bytes("group_gemm.a_scale", "a_scale", g.a_scale.size(),
                            {a_scale_rows, g.k / kBlockInputs}));
  SUBBYTE_CHECK(check_bytes("group_gemm.b_scale", "b_scale", g.b_scale.size(),
                            {groups, FlashinferShape{g.n, g.k}.scale_bytes()}));
  return check_bytes("group_gemm.out", "out", g.out.size(), {m, g.n, 2});
}

Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Execution& execution) try {
  SUBBYTE_CHECK(check_group_gemm(gemm));
  return Multiplier(gemm, execution).run();
} catch (const std::bad_alloc&) {
  return Error{"group_gemm.out_of_memory", "group_gemm: no memory for the activations as floats"};
}

Status group_gemm_mxfp8_mxfp4_nt_groupwise(const GroupGemm& gemm, Executor& executor) {
  SUBBYTE_TRY(const auto execution, Execution::create({.executor = &executor}));
  return group_gemm_mxfp8_mxfp4_nt_groupwise(gemm, *execution);
}

}  // namespace subbyte::group_gemm
