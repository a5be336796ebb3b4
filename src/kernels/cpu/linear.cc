#include "kernels/cpu/linear.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/checked.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/check_linear.h"
#include "matrix/alternate_rows.h"

namespace subbyte {
namespace {

// Activations that a thread takes at a time to pack them: one or two microseconds.
constexpr int64_t kPackGrain = 1 << 14;
// Activations that each thread packs for itself: what one thread has packed the others fetch from
// its cache, which takes as long, and they would be woken once more for it.
constexpr int64_t kPackedByEach = 1 << 16;
// Items that a thread should have, so that the last ones are small; and the activations below which
// a block is not worth decoding the weights once more.
constexpr int64_t kItemsOfThread = 4;
constexpr int64_t kLeastBlock = 128;

bool bf16_holds(const WeightFormat& format) {
  return (format.element == Format::kE2M1 && format.scale == Format::kE8M0) ||
         format.element == Format::kBF16;
}

/// The activations that some products share, and where they are packed.
struct Input {
  const LinearProduct& product;  // the first of them
  const cpu::PackedLayout* layout;
  int64_t offset;  // bytes in the execution's buffer
  int64_t stride;  // bytes of one pack

  int64_t num_packs() const { return ceil_div(product.m, layout->rows_per_pack); }

  /// Says whether each thread is to pack it for itself.
  bool is_for_each_thread() const {
    return product.x_numbers != nullptr && product.m * product.weights->cols <= kPackedByEach;
  }

  bool supports(const LinearProduct& other, const cpu::PackedLayout* its_layout) const {
    return layout == its_layout && product.x.data() == other.x.data() && product.m == other.m &&
           product.weights->cols == other.weights->cols &&
           product.weights->format.rotation == other.weights->format.rotation &&
           std::ranges::equal(product.x_rows, other.x_rows) &&
           std::ranges::equal(product.weights->input_order, other.weights->input_order);
  }
};

cpu::Weights kernel_weights(const MatrixView& weights) {
  if (!is_decoded(weights)) return cpu::weights_of(weights);
  MatrixView floats;
  floats.cols = weights.cols;
  return cpu::weights_of(floats);
}

/// A product that is ready but for its rows and its scratch memory.
struct Step {
  const cpu::KernelVariant& variant;
  cpu::MatmulTask task;
  std::size_t input;
  const MatrixView* decoded;  // nullptr: the kernel decodes
};

/// The work of one linear_group().
class Group {
 public:
  Group(Execution& execution, cpu::Precision precision, int64_t set_size)
      : execution_(execution),
        kernels_(execution.kernels()),
        precision_(precision),
        set_size_(set_size) {}

  Status add(const LinearProduct& product) {
    const cpu::MatmulKernel* kernel = cpu::find_matmul(kernels_, kernel_format(*product.weights));
    if (kernel == nullptr) return refuse_format(kernels_, *product.weights);
    if (product.m < 1) {
      return refuse_weights(*product.weights, "expected at least one row of activations");
    }
    const cpu::Weights weights = kernel_weights(*product.weights);
    const cpu::KernelVariant& variant = choose(product, *kernel, weights);
    cpu::MatmulTask task;
    task.weights = weights;
    task.y = product.y.data();
    task.y_stride = product.y_stride > 0 ? product.y_stride : product.weights->rows;
    task.bias = product.bias.empty() ? nullptr : product.bias.data();
    task.row_end = product.weights->rows;
    const MatrixView* decoded = is_decoded(*product.weights) ? product.weights : nullptr;
    steps_.push_back({variant, task, input_of(product, variant.layout), decoded});
    const int64_t floats = decoded == nullptr ? 0 : decoded_bytes(steps_.back());
    scratch_bytes_ = std::max(scratch_bytes_, floats + kernels_.scratch_bytes(weights.cols));
    return {};
  }

  void run(AfterPart after) {
    scratch_bytes_ = round_up(scratch_bytes_, 64);
    const int64_t threads = execution_.pool().size();
    scratch_ = execution_.buffer(Execution::Slot::kScratch, scratch_bytes_ * threads);
    const bool alone = threads > 1 && inputs_.size() == 1 && inputs_.front().is_for_each_thread();
    if (alone) has_packed_.assign(threads, 0);
    packed_ =
        execution_.buffer(Execution::Slot::kActivations, packed_bytes_ * (alone ? threads : 1));
    if (!alone) pack();
    for (Step& step : steps_) {
      const Input& input = inputs_[step.input];
      step.task.x = {packed_ + input.offset, input.product.m, input.stride};
    }
    multiply(after);
  }

 private:
  const cpu::KernelVariant& choose(const LinearProduct& product, const cpu::MatmulKernel& kernel,
                                   const cpu::Weights& weights) const {
    const auto with = [&](cpu::Precision precision) -> const cpu::KernelVariant& {
      return cpu::choose_variant(kernels_, kernel, weights, product.m, precision,
                                 execution_.batch_invariant());
    };
    if (product.x_is_bf16 && bf16_holds(product.weights->format)) {
      const cpu::KernelVariant& variant = with(cpu::Precision::kBF16);
      if (variant.layout->keeps_bf16) return variant;
    }
    return with(precision_);
  }

  /// The number of the input that serves `product`, which is made if there is none.
  std::size_t input_of(const LinearProduct& product, const cpu::PackedLayout* layout) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs_[i].supports(product, layout)) return i;
    }
    const int64_t k = product.weights->cols;
    inputs_.push_back({product, layout, packed_bytes_, layout->bytes(k) + layout->padding});
    packed_bytes_ += inputs_.back().num_packs() * inputs_.back().stride;
    const int64_t copies = layout->rows_per_pack * k * static_cast<int64_t>(sizeof(float));
    const bool copied =
        !product.x_rows.empty() || product.weights->format.rotation != 0 || reads_numbers(product);
    if (copied) scratch_bytes_ = std::max(scratch_bytes_, copies);
    return inputs_.size() - 1;
  }

  uint8_t* scratch_of(int thread) const { return scratch_ + thread * scratch_bytes_; }

  void pack() {
    int64_t packs = 0;
    int64_t floats = 0;
    for (const Input& input : inputs_) {
      packs += input.num_packs();
      floats += input.product.m * input.product.weights->cols;
    }
    const int64_t grain = kPackGrain * packs / std::max<int64_t>(floats, 1);
    execution_.pool().parallel_for(packs, grain, [this](int64_t begin, int64_t end, int thread) {
      for (const Input& input : inputs_) {
        const int64_t last = std::min(end, input.num_packs());
        for (int64_t i = std::max<int64_t>(begin, 0); i < last; ++i) {
          pack(input, i,
               rows_of(input.product, i * input.layout->rows_per_pack, rows_of_pack(input, i),
                       scratch_of(thread)),
               packed_);
        }
        begin -= input.num_packs();
        end -= input.num_packs();
      }
    });
  }

  static int64_t rows_of_pack(const Input& input, int64_t i) {
    const int64_t most = input.layout->rows_per_pack;
    return std::min(most, input.product.m - i * most);
  }

  void pack(const Input& input, int64_t i, const float* rows, uint8_t* packed) const {
    const MatrixView& weights = *input.product.weights;
    const uint32_t* gather = weights.input_order.empty() ? nullptr : weights.input_order.data();
    input.layout->pack(packed + input.offset + i * input.stride, rows, rows_of_pack(input, i),
                       gather, weights.cols);
  }

  /// The packs of a thread alone, where they are not there yet; bytes from packed_ to them.
  int64_t packed_alone(int thread) {
    if (has_packed_.empty()) return 0;
    const int64_t place = thread * packed_bytes_;
    if (has_packed_[thread] != 0) return place;
    has_packed_[thread] = 1;
    const Input& input = inputs_.front();
    for (int64_t i = 0; i < input.num_packs(); ++i) {
      pack(input, i, numbers_of(input, i, scratch_of(thread)), packed_ + place);
    }
    return place;
  }

  /// The floats of a pack, rather than those of x, which another thread may have made.
  const float* numbers_of(const Input& input, int64_t i, uint8_t* scratch) const {
    const LinearProduct& product = input.product;
    const int64_t first = i * input.layout->rows_per_pack;
    const int64_t rows = rows_of_pack(input, i);
    if (!reads_numbers(product)) return rows_of(product, first, rows, scratch);
    const int64_t k = product.weights->cols;
    auto* const floats = reinterpret_cast<float*>(scratch);
    kernels_.vectors->blocks->load[static_cast<int>(product.x_element)](
        floats, product.x_numbers + first * k * element_bytes(product.x_element), rows * k);
    return floats;
  }

  static bool reads_numbers(const LinearProduct& product) {
    return product.x_numbers != nullptr && product.x_element != Element::kF32 &&
           product.x_rows.empty() && product.weights->format.rotation == 0;
  }

  /// Rows of the product's activations, one after the other: in x, or copied to `scratch`, where
  /// they are rotated if the weights are.
  const float* rows_of(const LinearProduct& product, int64_t first, int64_t rows,
                       uint8_t* scratch) const {
    const float* x = product.x.data();
    const int64_t k = product.weights->cols;
    const int64_t rotation = product.weights->format.rotation;
    const auto row = [&](int64_t i) {
      return x + (product.x_rows.empty() ? first + i : product.x_rows[first + i]) * k;
    };
    if (rotation == 0 && (product.x_rows.empty() || rows == 1)) return row(0);
    auto* copies = reinterpret_cast<float*>(scratch);
    for (int64_t i = 0; i < rows; ++i) std::copy_n(row(i), k, copies + i * k);
    if (rotation != 0) kernels_.vectors->blocks->rotate(copies, rows * k, rotation);
    return copies;
  }

  /// How the work of a set is cut up: grains of rows of weights, and each of these, where there are
  /// few for the number of threads, by blocks of activations.
  ///
  ///                     block 0    block 1
  ///   grain 0 of rows   item 0     item 1        items of one grain follow each other, as its
  ///   grain 1           item 2     item 3        weights are in the cache
  struct Cut {
    int64_t first_item;
    int64_t grain;  // rows
    int64_t block;  // activations
    int64_t num_blocks;
  };

  std::span<const Step> steps_of(int64_t set) const {
    return std::span(steps_).subspan(set * set_size_, set_size_);
  }

  Cut cut(int64_t set, int64_t first_item) const {
    Cut cut = {first_item, 1, 1, 1};
    for (const Step& step : steps_of(set)) {
      cut.grain = std::max(cut.grain, step.variant.layout->row_grain);
      cut.block = std::lcm(cut.block, step.variant.layout->rows_per_pack);
    }
    const Step& first = steps_of(set).front();
    const int64_t m = first.task.x.rows;
    const int64_t grains = ceil_div(first.task.row_end, cut.grain);
    const int64_t threads = execution_.pool().size();
    const int64_t wanted = threads == 1 ? 1 : ceil_div(kItemsOfThread * threads, grains);
    const int64_t most = std::max<int64_t>(1, m / kLeastBlock);
    cut.block = round_up(ceil_div(m, std::min(wanted, most)), cut.block);
    cut.num_blocks = ceil_div(m, cut.block);
    return cut;
  }

  /// The items of all sets, one set after the other, are one loop whose parts are claimed: a thread
  /// that has got the expert with many tokens takes fewer of the others.
  void multiply(AfterPart after) {
    std::vector<Cut> cuts;
    int64_t items = 0;
    for (int64_t set = 0; set < std::ssize(steps_) / set_size_; ++set) {
      cuts.push_back(cut(set, items));
      const int64_t rows = steps_of(set).front().task.row_end;
      items += static_cast<int64_t>(ceil_div(rows, cuts.back().grain)) * cuts.back().num_blocks;
    }
    cuts.push_back({items, 1, 1, 1});
    execution_.pool().parallel_for(items, 1, [&](int64_t begin, int64_t end, int task) {
      const int64_t place = packed_alone(task);
      int64_t set = std::ranges::upper_bound(cuts, begin, {}, &Cut::first_item) - cuts.begin() - 1;
      for (; begin < end; ++set) {
        const int64_t last = std::min(end, cuts[set + 1].first_item);
        multiply_items(set, cuts[set], begin, last, {task, place}, after);
        begin = last;
      }
    });
  }

  struct Task {
    int number;
    int64_t packed;  // from packed_ to what it reads
  };

  /// Grains that are not cut are one run of rows.
  void multiply_items(int64_t set, const Cut& cut, int64_t begin, int64_t end, Task task,
                      AfterPart after) const {
    begin -= cut.first_item;
    end -= cut.first_item;
    const int64_t m = steps_of(set).front().task.x.rows;
    if (cut.num_blocks == 1) {
      multiply_part({set, begin * cut.grain, end * cut.grain, 0, m}, task, after);
      return;
    }
    for (; begin < end; ++begin) {
      const int64_t row = begin / cut.num_blocks * cut.grain;
      const int64_t first_m = begin % cut.num_blocks * cut.block;
      multiply_part({set, row, row + cut.grain, first_m, std::min(cut.block, m - first_m)}, task,
                    after);
    }
  }

  void multiply_part(DonePart part, Task task, AfterPart after) const {
    part.end = std::min(part.end, steps_of(part.set).front().task.row_end);
    for (const Step& step : steps_of(part.set)) {
      cpu::MatmulTask one = step.task;
      const int64_t packs = part.first_m / step.variant.layout->rows_per_pack;
      one.x.data += task.packed + packs * one.x.stride;
      one.x.rows = part.num_m;
      one.y += part.first_m * one.y_stride;
      one.row_begin = part.begin;
      one.row_end = part.end;
      one.scratch = scratch_of(task.number);
      step.decoded == nullptr ? step.variant.multiply(one) : multiply_decoded(step, one);
    }
    after(part);
  }

  /// Of as many rows as one grain has.
  static int64_t decoded_bytes(const Step& step) {
    return static_cast<int64_t>(
        round_up(step.variant.layout->row_grain * step.task.weights.row_bytes, 64));
  }

  /// The rows of `task`, grain after grain, which are the only rows of a task each.
  void multiply_decoded(const Step& step, const cpu::MatmulTask& task) const {
    auto* const floats = reinterpret_cast<float*>(task.scratch);
    for (int64_t row = task.row_begin; row < task.row_end;) {
      const int64_t count = std::min(step.variant.layout->row_grain, task.row_end - row);
      cpu::dequantize_stored(subbyte::rows_of(*step.decoded, row, count), floats, kernels_);
      cpu::MatmulTask few = task;
      few.weights.codes = task.scratch;
      few.scratch += decoded_bytes(step);
      few.y += row;
      if (few.bias != nullptr) few.bias += row;
      few.row_begin = 0;
      few.row_end = count;
      step.variant.multiply(few);
      row += count;
    }
  }

  Execution& execution_;
  const cpu::Kernels& kernels_;
  cpu::Precision precision_;
  int64_t set_size_;
  std::vector<Input> inputs_;
  std::vector<Step> steps_;
  int64_t packed_bytes_ = 0;
  uint8_t* packed_ = nullptr;
  std::vector<uint8_t> has_packed_;  // of each thread, where each packs for itself
  int64_t scratch_bytes_ = 0;        // of one thread
  uint8_t* scratch_ = nullptr;
};

Status run_group(Execution& execution, cpu::Precision precision,
                 std::span<const LinearProduct> products, int64_t set_size, AfterPart after) {
  if (products.empty()) return {};
  Group group(execution, precision, set_size);
  for (const LinearProduct& product : products) SUBBYTE_CHECK(group.add(product));
  group.run(after);
  return {};
}

constexpr auto kNothingAfter = [](const DonePart&) {};

}  // namespace

Status linear_group(Execution& execution, std::span<const LinearProduct> products) {
  return run_group(execution, execution.precision(), products, 1, kNothingAfter);
}

Status linear_group(Execution& execution, std::span<const LinearProduct> products, int64_t set_size,
                    AfterPart after) {
  return run_group(execution, execution.precision(), products, set_size, after);
}

Status linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
              const MatrixView& weights, std::span<const float> bias) {
  const LinearProduct product = {y, x, m, &weights, bias};
  return run_group(execution, execution.precision(), {&product, 1}, 1, kNothingAfter);
}

Status exact_linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                    const MatrixView& weights, std::span<const float> bias) {
  const LinearProduct product = {y, x, m, &weights, bias};
  return run_group(execution, cpu::Precision::kF32, {&product, 1}, 1, kNothingAfter);
}

}  // namespace subbyte
