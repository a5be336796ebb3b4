#include "kernels/cpu/linear.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/check_linear.h"
#include "kernels/cpu/linear_pass.h"
#include "matrix/alternate_rows.h"

namespace subbyte {
namespace {

// Activations that a thread takes at a time to pack them: one or two microseconds.
constexpr int64_t kPackGrain = 1 << 14;
// Activations of an input that each thread packs for itself: what one thread has packed the others
// fetch from its cache, which takes as long, and they would be woken once more for it. The second
// holds for one input of which there are numbers of 16 bits.
constexpr int64_t kPackedByEach = kPackGrain;
constexpr int64_t kNumbersPackedByEach = 1 << 16;
constexpr int kMostInputsOfEach = 8;
// Items that a thread should have, so that the last ones are small; and the activations below which
// a block is not worth decoding the weights once more.
constexpr int64_t kItemsOfThread = 8;
constexpr int64_t kLeastBlock = 128;

bool bf16_holds(const WeightFormat& format) {
  return (format.element == Format::kE2M1 && format.scale == Format::kE8M0) ||
         format.element == Format::kBF16;
}

/// The activations that some products share, and where they are packed.
struct Input {
  LinearProduct product;  // the first of them
  std::size_t first;      // its number
  const cpu::PackedLayout* layout;
  int64_t offset;  // bytes in the execution's buffer
  int64_t stride;  // bytes of one pack

  int64_t num_packs() const { return ceil_div(product.m, layout->rows_per_pack); }

  int64_t floats() const { return product.m * product.weights->cols; }

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

/// Says whether a product reads the floats of all rows of x, of which nothing is known.
bool is_plain(const LinearProduct& product) {
  return product.x_rows.empty() && product.x_numbers == nullptr && !product.x_is_bf16;
}

/// A product that is ready but for its rows and its scratch memory.
struct Step {
  const cpu::KernelVariant& variant;
  cpu::MatmulTask task;
  std::size_t input;
  const MatrixView* weights;
  const MatrixView* decoded;  // nullptr: the kernel decodes

  /// Says whether another product differs from this one in its numbers alone.
  bool serves(const LinearProduct& product) const {
    const int64_t stride = product.y_stride > 0 ? product.y_stride : product.weights->rows;
    const float* bias = product.bias.empty() ? nullptr : product.bias.data();
    return is_plain(product) && weights == product.weights && task.y_stride == stride &&
           task.bias == bias;
  }
};

/// What a thread has packed for itself.
struct PackedByThread {
  uint64_t group = 0;
  int task = 0;
  uint32_t inputs = 0;  // bits
};
thread_local constinit PackedByThread packed_by_thread;

/// A number of its own for each group of products, from 1 on.
uint64_t next_group() {
  static constinit std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace

/// The work of one linear_group().
class ProductGroup {
 public:
  ProductGroup(Execution& execution, const LinearPass& pass)
      : execution_(execution),
        kernels_(execution.kernels()),
        precision_(pass.is_exact ? cpu::Precision::kF32 : execution.precision()),
        set_size_(pass.set_size),
        makes_rows_(pass.make_rows != nullptr) {}

  Status add(std::span<const LinearProduct> products) {
    for (const LinearProduct& product : products) SUBBYTE_CHECK(add(product));
    scratch_bytes_ = round_up(scratch_bytes_, 64);
    cut_sets();
    return {};
  }

  /// Takes the numbers of these products, if it was made for them.
  bool takes(const Execution& execution, std::span<const LinearProduct> products,
             const LinearPass& pass) {
    const bool is_alike = &execution == &execution_ && products.size() == steps_.size() &&
                          makes_rows_ == (pass.make_rows != nullptr);
    if (!is_alike) return false;
    for (std::size_t i = 0; i < products.size(); ++i) {
      const Input& input = inputs_[steps_[i].input];
      if (!steps_[i].serves(products[i]) || !is_plain(input.product) ||
          input.product.m != products[i].m ||
          products[input.first].x.data() != products[i].x.data()) {
        return false;
      }
    }
    for (Input& input : inputs_) input.product.x = products[input.first].x;
    for (std::size_t i = 0; i < products.size(); ++i) steps_[i].task.y = products[i].y.data();
    return true;
  }

  void run(const LinearPass& pass, AfterPart after) {
    pass_ = &pass;
    const int64_t threads = execution_.pool().size();
    scratch_ = execution_.buffer(Execution::Slot::kScratch, scratch_bytes_ * threads);
    number_ = is_packed_by_each() ? next_group() : 0;
    const int64_t copies = number_ != 0 ? threads : 1;
    packed_ = execution_.buffer(Execution::Slot::kActivations, packed_bytes_ * copies);
    if (number_ == 0) pack();
    for (Step& step : steps_) {
      const Input& input = inputs_[step.input];
      step.task.x = {packed_ + input.offset, input.product.m, input.stride};
    }
    multiply(after);
  }

 private:
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
    task.x.rows = product.m;
    const MatrixView* decoded = is_decoded(*product.weights) ? product.weights : nullptr;
    steps_.push_back({variant, task, input_of(product, variant.layout), product.weights, decoded});
    const int64_t floats = decoded == nullptr ? 0 : decoded_bytes(steps_.back());
    scratch_bytes_ = std::max(scratch_bytes_, floats + kernels_.scratch_bytes(weights.cols));
    return {};
  }

  bool is_packed_by_each() const {
    if (execution_.pool().size() == 1) return false;
    if (makes_rows_) return true;
    const Input& first = inputs_.front();
    if (inputs_.size() == 1 && first.product.x_numbers != nullptr) {
      return first.floats() <= kNumbersPackedByEach;
    }
    return inputs_.size() <= kMostInputsOfEach &&
           std::ranges::all_of(inputs_,
                               [](const Input& input) { return input.floats() <= kPackedByEach; });
  }

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
    inputs_.push_back(
        {product, steps_.size(), layout, packed_bytes_, layout->bytes(k) + layout->padding});
    packed_bytes_ += inputs_.back().num_packs() * inputs_.back().stride;
    const int64_t copies = layout->rows_per_pack * k * static_cast<int64_t>(sizeof(float));
    const bool copied = makes_rows_ || !product.x_rows.empty() ||
                        product.weights->format.rotation != 0 || reads_numbers(product);
    if (copied) scratch_bytes_ = std::max(scratch_bytes_, copies * (makes_rows_ ? 2 : 1));
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

  /// The packs of a task's own of an input, which are made if they are not there yet; bytes from
  /// packed_ to them.
  int64_t packed_for(std::size_t input, int task) const {
    if (number_ == 0) return 0;
    const int64_t place = task * packed_bytes_;
    PackedByThread& done = packed_by_thread;
    if (done.group != number_ || done.task != task) done = {number_, task, 0};
    const uint32_t bit = 1u << input;
    if ((done.inputs & bit) != 0) return place;
    done.inputs |= bit;
    const Input& of = inputs_[input];
    for (int64_t i = 0; i < of.num_packs(); ++i) {
      pack(of, i, numbers_of(of, i, task), packed_ + place);
    }
    return place;
  }

  /// The floats of a pack, rather than those of x, which another thread may have made.
  const float* numbers_of(const Input& input, int64_t i, int task) const {
    const LinearProduct& product = input.product;
    const int64_t first = i * input.layout->rows_per_pack;
    const int64_t rows = rows_of_pack(input, i);
    auto* const floats = reinterpret_cast<float*>(scratch_of(task));
    if (makes_rows_) return (*pass_->make_rows)(first, rows, task, floats);
    if (!reads_numbers(product)) return rows_of(product, first, rows, scratch_of(task));
    const int64_t k = product.weights->cols;
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

  /// How the work of a set is cut up: grains of rows of weights, and where there are few of them
  /// for the number of threads, blocks of activations. Items of one block follow each other, so
  /// that a thread reads few activations, of which there are more bytes than of weights.
  ///
  ///                     block 0    block 1
  ///   grain 0 of rows   item 0     item 2
  ///   grain 1           item 1     item 3
  struct Cut {
    int64_t first_item;
    int64_t grain;  // rows
    int64_t grains;
    int64_t block;  // activations
  };

  std::span<const Step> steps_of(int64_t set) const {
    return std::span(steps_).subspan(set * set_size_, set_size_);
  }

  /// Rows of activations that its products read.
  int64_t rows_of_set(int64_t set) const { return steps_of(set).front().task.x.rows; }

  Cut cut(int64_t set, int64_t first_item) const {
    Cut cut = {first_item, 1, 1, 1};
    for (const Step& step : steps_of(set)) {
      cut.grain = std::max(cut.grain, step.variant.layout->row_grain);
      cut.block = std::lcm(cut.block, step.variant.layout->rows_per_pack);
    }
    const int64_t m = rows_of_set(set);
    cut.grains = ceil_div(steps_of(set).front().task.row_end, cut.grain);
    const int64_t threads = execution_.pool().size();
    const int64_t wanted = threads == 1 ? 1 : ceil_div(kItemsOfThread * threads, cut.grains);
    const int64_t most = std::max<int64_t>(1, m / kLeastBlock);
    cut.block = round_up(ceil_div(m, std::min(wanted, most)), cut.block);
    return cut;
  }

  void cut_sets() {
    int64_t items = 0;
    for (int64_t set = 0; set < std::ssize(steps_) / set_size_; ++set) {
      cuts_.push_back(cut(set, items));
      const Cut& last = cuts_.back();
      items += last.grains * static_cast<int64_t>(ceil_div(rows_of_set(set), last.block));
    }
    cuts_.push_back({items, 1, 1, 1});
  }

  /// The items of all sets, one set after the other, are one loop whose parts are claimed: a thread
  /// that has got the expert with many tokens takes fewer of the others.
  void multiply(AfterPart after) {
    const int threads = execution_.pool().size();
    const int64_t items = cuts_.back().first_item;
    execution_.pool().parallel_for(items, 1, [&](int64_t begin, int64_t end, int task) {
      if (pass_->next != nullptr) expect_reads(*pass_->next, task, threads);
      int64_t set =
          std::ranges::upper_bound(cuts_, begin, {}, &Cut::first_item) - cuts_.begin() - 1;
      for (; begin < end; ++set) {
        const int64_t last = std::min(end, cuts_[set + 1].first_item);
        multiply_items(set, cuts_[set], begin, last, task, after);
        begin = last;
      }
    });
  }

  /// Grains of one block are one run of rows.
  void multiply_items(int64_t set, const Cut& cut, int64_t begin, int64_t end, int task,
                      AfterPart after) const {
    const int64_t m = rows_of_set(set);
    for (begin -= cut.first_item, end -= cut.first_item; begin < end;) {
      const int64_t block = begin / cut.grains;
      const int64_t first = block * cut.grains;
      const int64_t last = std::min(end, first + cut.grains);
      const int64_t first_m = block * cut.block;
      multiply_part({set, (begin - first) * cut.grain, (last - first) * cut.grain, first_m,
                     std::min(cut.block, m - first_m)},
                    task, after);
      begin = last;
    }
  }

  void multiply_part(DonePart part, int task, AfterPart after) const {
    part.end = std::min(part.end, steps_of(part.set).front().task.row_end);
    for (const Step& step : steps_of(part.set)) {
      cpu::MatmulTask one = step.task;
      const int64_t packs = part.first_m / step.variant.layout->rows_per_pack;
      one.x.data += packed_for(step.input, task) + packs * one.x.stride;
      one.x.rows = part.num_m;
      one.y += part.first_m * one.y_stride;
      one.row_begin = part.begin;
      one.row_end = part.end;
      one.scratch = scratch_of(task);
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
  bool makes_rows_;
  std::vector<Input> inputs_;
  std::vector<Step> steps_;
  std::vector<Cut> cuts_;             // of each set, and where the last one ends
  const LinearPass* pass_ = nullptr;  // that runs
  int64_t packed_bytes_ = 0;
  uint8_t* packed_ = nullptr;
  uint64_t number_ = 0;        // where each thread packs for itself
  int64_t scratch_bytes_ = 0;  // of one thread
  uint8_t* scratch_ = nullptr;
};

bool makes_rows(Execution& execution, int64_t m, int64_t cols) {
  return execution.pool().size() > 1 && m * cols <= kPackedByEach;
}

Status linear_pass(Execution& execution, std::span<const LinearProduct> products,
                   const LinearPass& pass, AfterPart after) {
  if (products.empty()) return {};
  if (pass.kept == nullptr) {
    ProductGroup group(execution, pass);
    SUBBYTE_CHECK(group.add(products));
    group.run(pass, after);
    return {};
  }
  std::shared_ptr<ProductGroup>& kept = *pass.kept;
  if (kept == nullptr || !kept->takes(execution, products, pass)) {
    auto group = std::make_shared<ProductGroup>(execution, pass);
    SUBBYTE_CHECK(group->add(products));
    kept = std::move(group);
  }
  kept->run(pass, after);
  return {};
}

Status linear_group(Execution& execution, std::span<const LinearProduct> products) {
  return linear_pass(execution, products, {}, kNothingAfter);
}

Status linear_group(Execution& execution, std::span<const LinearProduct> products, int64_t set_size,
                    AfterPart after) {
  return linear_pass(execution, products, {.set_size = set_size}, after);
}

Status linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
              const MatrixView& weights, std::span<const float> bias) {
  const LinearProduct product = {y, x, m, &weights, bias};
  return linear_pass(execution, {&product, 1}, {}, kNothingAfter);
}

Status exact_linear(Execution& execution, std::span<float> y, std::span<const float> x, int64_t m,
                    const MatrixView& weights, std::span<const float> bias) {
  const LinearProduct product = {y, x, m, &weights, bias};
  return linear_pass(execution, {&product, 1}, {.is_exact = true}, kNothingAfter);
}

}  // namespace subbyte
