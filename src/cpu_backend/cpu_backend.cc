#include "cpu_backend/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/cpu_features.h"
#include "cpu_backend/attention.h"
#include "cpu_backend/experts.h"
#include "cpu_backend/gates.h"
#include "cpu_backend/heads.h"
#include "cpu_backend/kv_memory.h"
#include "cpu_backend/linear.h"
#include "cpu_backend/norm.h"
#include "kernels/cpu/read_bandwidth.h"
#include "matrix/float_rows.h"

namespace subbyte {
namespace {

constexpr uint64_t kCacheMultiple = 2;  // how far beyond the caches a measurement has to be
constexpr int64_t kAngleGrain = 8;      // rows of angles that are worth a thread

/// What a Weight is here: matrices whose outputs follow each other.
struct CpuWeight {
  std::vector<Matrix> parts;
  std::vector<float> bias;  // of all outputs, or empty
};

const CpuWeight& open(const Weight& weight) {
  return *static_cast<const CpuWeight*>(weight.storage.get());
}

std::span<const float> open(const Vector& vector) {
  if (vector.storage == nullptr) return {};
  return *static_cast<const std::vector<float>*>(vector.storage.get());
}

float* data_of(const Tensor& tensor) {
  return static_cast<float*>(tensor.data);
}

std::span<float> floats(const Tensor& tensor) {
  return {data_of(tensor), static_cast<std::size_t>(tensor.rows * tensor.cols)};
}

Error unserved(const char* message) {
  return {"linear.unsupported", message};
}

Status check_experts(Execution& execution, const ExpertMatrices& experts) {
  const std::size_t count = experts.down.size();
  if (count == 0 || experts.gate_up.size() != count || experts.top_k < 1 ||
      experts.top_k > std::ssize(experts.down)) {
    return unserved("expected as many gate_up as down matrices, and top_k of them or more");
  }
  const int64_t hidden = experts.down[0].view.rows;
  const int64_t inner = experts.down[0].view.cols;
  for (std::size_t i = 0; i < count; ++i) {
    const MatrixView& gate_up = experts.gate_up[i].view;
    const MatrixView& down = experts.down[i].view;
    SUBBYTE_CHECK(check_linear(execution, gate_up));
    SUBBYTE_CHECK(check_linear(execution, down));
    if (down.rows != hidden || down.cols != inner || gate_up.cols != hidden ||
        gate_up.rows % 2 != 0 || gate_up.rows / 2 != inner) {
      return unserved("experts: expected gate_up [2 n][hidden] and down [hidden][n], all alike");
    }
  }
  if (execution.mxfp8_experts() && (hidden % 32 != 0 || inner % 32 != 0)) {
    return Error{"linear.unsupported",
                 "experts: expected inputs in 32s for activations in mxfp8, "
                 "found " +
                     std::to_string(hidden) + " of gate and up, " + std::to_string(inner) +
                     " of down"};
  }
  const auto is_bias = [count](const std::vector<float>& bias, int64_t rows) {
    return bias.empty() || bias.size() == count * rows;
  };
  if (!is_bias(experts.gate_up_bias, 2 * inner) || !is_bias(experts.down_bias, hidden)) {
    return unserved("experts: expected a bias for each output of each expert, or none");
  }
  return {};
}

/// The tensors of a step, in buffers that later steps use again.
class TensorArena {
 public:
  void clear() { used_ = 0; }

  float* take(int64_t count) {
    if (used_ == buffers_.size()) buffers_.emplace_back();
    Buffer& buffer = buffers_[used_++];
    if (buffer.count < count) {
      buffer = {};  // first: the contents are not kept
      buffer.memory = allocate_bytes(static_cast<std::size_t>(count) * sizeof(float));
      buffer.count = count;
    }
    return reinterpret_cast<float*>(buffer.memory.get());
  }

 private:
  struct Buffer {
    std::shared_ptr<std::byte[]> memory;
    int64_t count = 0;
  };
  std::vector<Buffer> buffers_;
  std::size_t used_ = 0;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(std::unique_ptr<Execution> execution) : execution_(std::move(execution)) {}

  // --- the machine

  /// 512 are 10 % faster than 128 on 16 processors, and their activations take 8 MB in a model of
  /// hidden size 4096.
  int64_t prompt_chunk() const override { return 512; }
  std::string description() const override {
    const int threads = execution_->pool().size();
    return std::string(execution_->kernels().name) + " kernels, " + std::to_string(threads) +
           (threads == 1 ? " thread" : " threads");
  }

  double measure_read_bandwidth(const Weight& weight) override {
    std::span<const std::byte> memory;
    for (const Matrix& part : open(weight).parts) {
      if (part.view.codes.size() > memory.size()) memory = part.view.codes;
    }
    if (memory.size() < kCacheMultiple * last_level_cache_bytes()) return 0;
    return cpu::measure_read_bandwidth(memory, execution_->pool()).bytes_per_second;
  }

  Executor& host() override { return execution_->pool(); }

  // --- loading

  Result<Weight> upload(Matrix matrix, std::vector<float> bias) override {
    std::vector<Matrix> one;
    one.push_back(std::move(matrix));
    return upload_joined(std::move(one), std::move(bias));
  }

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    Weight weight;
    if (matrices.empty()) return unserved("no matrix");
    weight.cols = matrices.front().view.cols;
    for (const Matrix& matrix : matrices) {
      SUBBYTE_CHECK(check_linear(*execution_, matrix.view));
      if (matrix.view.cols != weight.cols) return unserved("joined matrices of unequal columns");
      weight.rows += matrix.view.rows;
      weight.bytes += matrix.view.bytes();
    }
    if (!bias.empty() && std::ssize(bias) != weight.rows) {
      return unserved("a bias of another size than the rows");
    }
    weight.storage =
        std::make_shared<const CpuWeight>(CpuWeight{std::move(matrices), std::move(bias)});
    return weight;
  }

  Result<Experts> upload(ExpertMatrices experts) override {
    SUBBYTE_CHECK(check_experts(*execution_, experts));
    return Experts{std::make_shared<const ExpertMatrices>(std::move(experts))};
  }

  Result<Vector> upload(std::vector<float> numbers) override {
    const auto size = std::ssize(numbers);
    return Vector{size, std::make_shared<const std::vector<float>>(std::move(numbers))};
  }

  Result<KvPool> make_kv_pool(const KvShape& shape, int64_t num_pages) override {
    SUBBYTE_TRY(auto memory, CpuKvMemory::create(shape, num_pages));
    return KvPool(shape, num_pages, std::move(memory));
  }

  // --- a step

  void begin(const Batch& batch) override {
    batch_ = batch;
    arena_.clear();
    angles_.clear();
    tokens_.clear();
    places_.clear();
    logits_.clear();
    error_ = {};
    pool_ = &batch.parts.front().sequence->pool();
    for (const Part& part : batch.parts) {
      const std::span<const int32_t> pages = part.sequence->pages();
      tokens_.insert(tokens_.end(), part.tokens.begin(), part.tokens.end());
      for (int64_t t = 0; t < std::ssize(part.tokens); ++t) {
        const int64_t position = part.sequence->length() + t;
        places_.push_back({position, pages[position / kKvPagePositions]});
      }
    }
    execution_->pool().stay_awake(true);
  }

  bool is_finite(Tensor x) override {
    if (!error_.ok()) return true;
    return std::all_of(data_of(x), data_of(x) + x.rows * x.cols,
                       [](float number) { return std::isfinite(number); });
  }

  Tensor tensor(int64_t cols) override {
    const int64_t rows = std::ssize(tokens_);
    return {arena_.take(rows * cols), rows, cols};
  }

  void embed(Tensor y, const Weight& table) override {
    if (!is_one_matrix(table)) return;
    const FloatRows rows(open(table).parts.front().view);
    execution_->pool().parallel_for(y.rows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) rows.row(tokens_[i], data_of(y) + i * y.cols);
    });
  }

  void add_norm(Tensor y, Tensor x, Tensor delta, const Norm& norm) override {
    if (delta.data == nullptr) {
      rms_norm(*execution_, floats(y), floats(x), open(norm.weight), norm.eps);
    } else {
      add_rms_norm(*execution_, floats(y), floats(x), floats(delta), open(norm.weight), norm.eps);
    }
  }

  void linear(Tensor y, Tensor x, const Weight& weight) override {
    const std::vector<LinearProduct> products = products_of(floats(y), x, weight);
    keep_error(linear_group(*execution_, products));
  }

  void exact_linear(Tensor y, Tensor x, const Weight& weight) override {
    if (!is_one_matrix(weight)) return;
    const CpuWeight& opened = open(weight);
    keep_error(subbyte::exact_linear(*execution_, floats(y), floats(x), x.rows,
                                     opened.parts.front().view, opened.bias));
  }

  void gated_linear(Tensor y, Tensor x, const Weight& gate_up) override {
    const CpuWeight& opened = open(gate_up);
    if (opened.parts.size() != 2 || opened.parts[0].view.rows != opened.parts[1].view.rows ||
        !opened.bias.empty()) {
      return keep_error(unserved("expected gate and up as two matrices of equal rows, no bias"));
    }
    const Tensor up = {execution_->floats(Execution::Slot::kGate, y.rows * y.cols), y.rows, y.cols};
    const LinearProduct products[] = {{floats(y), floats(x), x.rows, &opened.parts[0].view},
                                      {floats(up), floats(x), x.rows, &opened.parts[1].view}};
    keep_error(linear_group(*execution_, products, 2, [&](const DonePart& part) {
      silu_gate(execution_->kernels(), floats(y), floats(up), y.cols, part);
    }));
  }

  void rotate_and_store(Tensor qkv, const HeadNorms& norms, const Rope& rope,
                        const AttentionShape& shape, int64_t layer) override {
    subbyte::rotate_and_store(*execution_, floats(qkv), shape,
                              {open(norms.q), open(norms.k), norms.eps}, angles_of(rope), places_,
                              cache(), element(), layer);
  }

  void attend(Tensor y, Tensor qkv, const AttentionShape& shape, int64_t layer,
              const Vector& sinks) override {
    std::vector<AttentionPart> parts;
    int64_t row = 0;
    for (const Part& part : batch_.parts) {
      const auto tokens = std::ssize(part.tokens);
      parts.push_back({data_of(qkv) + row * qkv.cols, data_of(y) + row * y.cols, tokens,
                       part.sequence->length(), part.sequence->pages()});
      row += tokens;
    }
    attention(*execution_, parts, qkv.cols, cache().layer(layer), shape, open(sinks));
  }

  void experts(Tensor y, Tensor x, Tensor router_logits, const Experts& experts) override {
    const auto& opened = *static_cast<const ExpertMatrices*>(experts.storage.get());
    std::vector<Route> routes(x.rows * opened.top_k);
    route_top_k(routes, floats(router_logits), router_logits.cols, opened.top_k,
                opened.route_weights);
    keep_error(mixture_of_experts(*execution_, floats(y), floats(x), routes, opened));
  }

  void logits(Tensor x, Tensor delta, const Norm& norm, const Weight& head) override {
    const int64_t rows = batch_.num_head_rows();
    logits_.resize(rows * head.rows);
    if (rows == 0) return;
    const Tensor chosen_x = last_rows(x);
    const Tensor chosen_delta = last_rows(delta);
    const Tensor h = {arena_.take(rows * x.cols), rows, x.cols};
    add_norm(h, chosen_x, chosen_delta, norm);
    const std::vector<LinearProduct> products = products_of(logits_, h, head);
    keep_error(linear_group(*execution_, products));
  }

  void end() override {}

  Status finish(Logits& logits) override {
    execution_->pool().stay_awake(false);
    SUBBYTE_CHECK(std::exchange(error_, {}));
    const int64_t rows = batch_.num_head_rows();
    const int64_t vocabulary = rows == 0 ? 0 : std::ssize(logits_) / rows;
    choose_tokens(vocabulary, logits.tokens);
    logits.values.swap(logits_);
    keep_wanted_rows(logits.values, vocabulary);
    logits.vocab_size = batch_.num_logits() == 0 ? 0 : vocabulary;
    return {};
  }

 private:
  /// The first error of a step is what finish() returns.
  void keep_error(Status status) {
    if (error_.ok()) error_ = std::move(status);
  }
  /// Otherwise an error of the step.
  bool is_one_matrix(const Weight& weight) {
    const bool is_one = open(weight).parts.size() == 1;
    if (!is_one) keep_error(unserved("expected one matrix, found several that are joined"));
    return is_one;
  }

  const CpuKvMemory& cache() const { return static_cast<const CpuKvMemory&>(pool_->memory()); }
  cpu::KvElement element() const { return static_cast<cpu::KvElement>(pool_->shape().type); }

  /// A product for each matrix of `weight`; their results lie side by side in the rows of y.
  static std::vector<LinearProduct> products_of(std::span<float> y, const Tensor& x,
                                                const Weight& weight) {
    const CpuWeight& opened = open(weight);
    std::vector<LinearProduct> products;
    int64_t first = 0;
    for (const Matrix& part : opened.parts) {
      LinearProduct product = {y.subspan(first), floats(x), x.rows, &part.view};
      if (!opened.bias.empty()) {
        product.bias = std::span(opened.bias).subspan(first, part.view.rows);
      }
      product.y_stride = weight.rows;
      products.push_back(product);
      first += part.view.rows;
    }
    return products;
  }

  /// The angles of all rows, computed when a step first needs them.
  RowAngles angles_of(const Rope& rope) {
    const auto known = std::ranges::find(angles_, &rope, &StepAngles::rope);
    if (known != angles_.end()) return known->angles;
    const auto half = std::ssize(rope.inv_freq());
    const Tensor cos = tensor(half);
    const Tensor sin = tensor(half);
    execution_->pool().parallel_for(cos.rows, kAngleGrain, [&](int64_t begin, int64_t end, int) {
      for (int64_t row = begin; row < end; ++row) {
        rope.angles(floats(cos).subspan(row * half, half), floats(sin).subspan(row * half, half),
                    places_[row].position);
      }
    });
    angles_.push_back({&rope, {floats(cos), floats(sin)}});
    return angles_.back().angles;
  }

  void choose_tokens(int64_t vocabulary, std::vector<int32_t>& tokens) {
    tokens.clear();
    int64_t row = 0;
    for (const Part& part : batch_.parts) {
      row += part.num_head_rows();
      if (!part.choice) continue;
      const std::span<const float> last(logits_.data() + (row - 1) * vocabulary, vocabulary);
      const Result<int32_t> token = chooser_.choose(last, *part.choice);
      tokens.push_back(token.ok() ? *token : kNoToken);
    }
  }

  /// Leaves out those that were computed for choices alone.
  void keep_wanted_rows(std::vector<float>& values, int64_t vocabulary) const {
    const int64_t wanted = batch_.num_logits();
    if (wanted == batch_.num_head_rows()) return;
    auto from = values.cbegin();
    auto to = values.begin();
    for (const Part& part : batch_.parts) {
      to = std::copy_n(from, part.num_logits * vocabulary, to);
      from += part.num_head_rows() * vocabulary;
    }
    values.resize(wanted * vocabulary);
  }

  /// The rows whose logits are computed: all of `x`, or copies.
  Tensor last_rows(const Tensor& x) {
    const int64_t rows = batch_.num_head_rows();
    if (rows == x.rows || x.data == nullptr) return x;
    const Tensor chosen = {arena_.take(rows * x.cols), rows, x.cols};
    float* to = data_of(chosen);
    const float* end = data_of(x);  // of the part
    for (const Part& part : batch_.parts) {
      end += std::ssize(part.tokens) * x.cols;
      to = std::copy(end - part.num_head_rows() * x.cols, end, to);
    }
    return chosen;
  }

  struct StepAngles {
    const Rope* rope;
    RowAngles angles;
  };

  std::unique_ptr<Execution> execution_;
  Batch batch_;
  KvPool* pool_ = nullptr;
  std::vector<int32_t> tokens_;   // of all parts
  std::vector<RowPlace> places_;  // of each of them
  std::vector<StepAngles> angles_;
  std::vector<float> logits_;
  TokenChooser chooser_;
  TensorArena arena_;
  Status error_;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const ExecutionOptions& options) {
  SUBBYTE_TRY(auto execution, Execution::create(options));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(execution)));
}

}  // namespace subbyte
