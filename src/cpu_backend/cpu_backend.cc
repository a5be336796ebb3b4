#include "cpu_backend/cpu_backend.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "cpu_backend/kv_memory.h"
#include "cpu_backend/rank_head.h"
#include "cpu_backend/row_choosers.h"
#include "cpu_backend/step_runner.h"
#include "device/machines.h"

namespace subbyte {
namespace {

Status check_experts(Execution& execution, const ExpertMatrices& experts) {
  for (const std::vector<Matrix>* matrices : {&experts.gate_up, &experts.down}) {
    for (const Matrix& matrix : *matrices) SUBBYTE_CHECK(check_linear(execution, matrix.view));
  }
  SUBBYTE_CHECK(check_shapes(experts));
  const int64_t hidden = experts.down[0].view.rows;
  const int64_t inner = experts.down[0].view.cols;
  if (execution.mxfp8_experts() && (hidden % 32 != 0 || inner % 32 != 0)) {
    return Error{"linear.unsupported",
                 "experts: expected inputs in 32s for activations in mxfp8, "
                 "found " +
                     std::to_string(hidden) + " of gate and up, " + std::to_string(inner) +
                     " of down"};
  }
  return {};
}

class CpuBackend : public Backend {
 public:
  CpuBackend(std::unique_ptr<Execution> execution, std::shared_ptr<Exchange> exchange)
      : execution_(std::move(execution)), exchange_(std::move(exchange)) {}

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
    return device::measure_read_bandwidth(memory, execution_->pool());
  }

  Executor& host() override { return execution_->pool(); }

  // --- loading

  using Backend::upload;

  Result<Weight> upload_joined(std::vector<Matrix> matrices, std::vector<float> bias) override {
    for (const Matrix& matrix : matrices) SUBBYTE_CHECK(check_linear(*execution_, matrix.view));
    SUBBYTE_TRY(Weight weight, joined_sizes(matrices, bias));
    for (const Matrix& matrix : matrices) weight.bytes += matrix.view.bytes();
    weight.storage =
        std::make_shared<const CpuWeight>(CpuWeight{std::move(matrices), std::move(bias)});
    return weight;
  }

  Result<Experts> upload(ExpertMatrices experts) override {
    SUBBYTE_CHECK(check_experts(*execution_, experts));
    const MatrixView& down = experts.down.front().view;
    Experts uploaded = {std::ssize(experts.down), experts.top_k, down.rows, down.cols, nullptr};
    uploaded.storage = std::make_shared<const ExpertMatrices>(std::move(experts));
    return uploaded;
  }

  Result<Vector> upload(std::vector<float> numbers) override {
    const auto size = std::ssize(numbers);
    return Vector{size, std::make_shared<const std::vector<float>>(std::move(numbers))};
  }

  Status check_cache(const CacheLayout&, Element) const override { return {}; }

  Result<KvPool> make_kv_pool(const CacheLayout& layout, Element type,
                              const CacheSize& size) override {
    std::vector<KvGroup> groups;
    for (const CacheGroup& group : layout.groups) {
      const int64_t units = cache_units(group, size);
      std::unique_ptr<KvMemory> memory;
      if (group.is_state()) {
        SUBBYTE_TRY(memory, CpuStateMemory::create(group, units));
      } else {
        SUBBYTE_TRY(memory, CpuKvMemory::create(kv_shape(group, type), units));
      }
      groups.emplace_back(group, units, std::move(memory));
    }
    return KvPool(layout, type, size, std::move(groups));
  }

  Result<std::unique_ptr<CompiledStep>> compile(StepPlan plan) override {
    SUBBYTE_CHECK(check_plan(plan, exchange_.get()));
    return std::unique_ptr<CompiledStep>(std::make_unique<CpuCompiledStep>(std::move(plan)));
  }

  // --- a step

  void submit(const CompiledStep& step, const Batch& batch) override {
    execution_->pool().stay_awake(true);
    wants_logits_ = batch.num_logits() > 0;
    vocab_size_ = step.plan().vocab_size();
    try {
      error_ = runner_.run(static_cast<const CpuCompiledStep&>(step), batch);
      if (error_.ok()) error_ = find_results(batch);
    } catch (const std::bad_alloc&) {
      error_ = Error{"memory", "not enough memory for a step"};
    }
    // The other ranks would wait for what does not come.
    if (!error_.ok() && exchange_ != nullptr) exchange_->leave(error_.error().message);
  }

  Status wait(Logits& logits) override {
    execution_->pool().stay_awake(false);
    SUBBYTE_CHECK(std::exchange(error_, {}));
    logits.tokens.swap(tokens_);
    logits.values.swap(runner_.logits());
    logits.sent.swap(runner_.sent());
    logits.vocab_size = wants_logits_ ? vocab_size_ : 0;
    return {};
  }

 private:
  Status find_results(const Batch& batch) {
    if (const AllGatherOp* const parts = runner_.head_parts()) {
      return rank_head_.run(*parts, runner_.own_logits(), batch, {runner_.logits(), tokens_});
    }
    choose_tokens(batch);
    keep_wanted_rows(batch);
    return {};
  }

  void choose_tokens(const Batch& batch) {
    std::vector<RowChoice> choices;
    int64_t row = 0;
    for (const Part& part : batch.parts) {
      row += part.num_head_rows();
      if (part.choice) choices.push_back({&*part.choice, row - 1});
    }
    tokens_.assign(choices.size(), kNoToken);
    const auto logits = std::span<const float>(runner_.logits());
    choosers_.run(*execution_, std::ssize(choices), [&](int64_t i, RowChooser& chooser) {
      tokens_[i] = choose_of_row(choices[i], logits, vocab_size_, chooser.of_all);
    });
  }

  /// Leaves out those that were computed for choices alone.
  void keep_wanted_rows(const Batch& batch) {
    const int64_t wanted = batch.num_logits();
    if (wanted == batch.num_head_rows()) return;
    std::vector<float>& logits = runner_.logits();
    auto from = logits.cbegin();
    auto to = logits.begin();
    for (const Part& part : batch.parts) {
      to = std::copy_n(from, part.num_logits * vocab_size_, to);
      from += part.num_head_rows() * vocab_size_;
    }
    logits.resize(wanted * vocab_size_);
  }

  std::unique_ptr<Execution> execution_;
  std::shared_ptr<Exchange> exchange_;  // with the other ranks, if there are some
  StepRunner runner_{*execution_, exchange_.get()};
  RankHead rank_head_{*execution_, exchange_.get()};
  RowChoosers choosers_;
  // Of the step that was submitted.
  Status error_;
  std::vector<int32_t> tokens_;  // chosen
  bool wants_logits_ = false;
  int64_t vocab_size_ = 0;
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const ExecutionOptions& options,
                                                  std::shared_ptr<Exchange> exchange) {
  SUBBYTE_TRY(auto execution, Execution::create(options));
  return std::unique_ptr<Backend>(
      std::make_unique<CpuBackend>(std::move(execution), std::move(exchange)));
}

}  // namespace subbyte
