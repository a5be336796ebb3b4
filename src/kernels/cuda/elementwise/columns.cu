#include "kernels/cuda/elementwise/columns.h"

#include <algorithm>

#include "kernels/cuda/common/elements.cuh"
#include "kernels/cuda/common/launch.cuh"

namespace subbyte::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kLanes;
constexpr int kRanges = 64;  // of a launch: they are its arguments

struct PlacedRange {
  int32_t from;
  int32_t to;
  int32_t count;
};

struct Ranges {
  PlacedRange all[kRanges];
};

/// A warp for a range of a row. T: what is copied at a time; all is counted in it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    columns(T* y, const T* x, int64_t rows, int64_t y_cols, int64_t x_cols,
            const __grid_constant__ Ranges ranges) {
  begin_operation();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes;
  if (row >= rows) return;
  const PlacedRange range = ranges.all[blockIdx.y];
  for (int i = static_cast<int>(threadIdx.x) % kLanes; i < range.count; i += kLanes) {
    y[row * y_cols + range.to + i] = x[row * x_cols + range.from + i];
  }
}

/// Numbers that a copy has.
constexpr int kWide = 8;

bool is_wide(const ColumnsCall& call, std::span<const ColumnRange> ranges) {
  return call.x_cols % kWide == 0 && call.y_cols % kWide == 0 &&
         std::ranges::all_of(ranges, [](const ColumnRange& range) {
           return range.first % kWide == 0 && range.count % kWide == 0;
         });
}

template <class T>
void launch_ranges(const ColumnsCall& call, std::span<const ColumnRange> ranges, Stream stream) {
  constexpr auto kNumbers = static_cast<int32_t>(sizeof(T) / sizeof(uint16_t));
  int32_t to = 0;
  for (std::size_t at = 0; at < ranges.size(); at += kRanges) {
    const auto some = ranges.subspan(at, std::min<std::size_t>(kRanges, ranges.size() - at));
    Ranges placed = {};
    for (std::size_t i = 0; i < some.size(); ++i) {
      placed.all[i] = {some[i].first / kNumbers, to / kNumbers, some[i].count / kNumbers};
      to += some[i].count;
    }
    const dim3 ctas(static_cast<unsigned>((call.rows + kWarps - 1) / kWarps),
                    static_cast<unsigned>(some.size()));
    launch(columns<T>, {ctas, kThreads}, stream, static_cast<T*>(call.y),
           static_cast<const T*>(call.x), call.rows, call.y_cols / kNumbers, call.x_cols / kNumbers,
           placed);
  }
}

}  // namespace

void run_columns(const ColumnsCall& call, std::span<const ColumnRange> ranges, Stream stream) {
  if (is_wide(call, ranges)) {
    launch_ranges<uint4>(call, ranges, stream);
  } else {
    launch_ranges<uint16_t>(call, ranges, stream);
  }
}

}  // namespace subbyte::cuda
