#include "models/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/quote.h"
#include "models/checkpoint.h"
#include "models/head_bits.h"
#include "models/memory_need.h"
#include "models/model_family.h"
#include "models/step_recorder.h"
#include "models/weight_loader.h"

namespace subbyte {

namespace {

constexpr std::array kFamilies = {
#define SUBBYTE_MODEL(name) &name##_family,
#include "models/models.def"
#undef SUBBYTE_MODEL
};

Result<CheckpointParts> open_model(const ModelFiles& files) {
  CheckpointParts checkpoint = open_checkpoint(files);
  SUBBYTE_CHECK(checkpoint.check_model());
  return checkpoint;
}

/// Finds the first operation of a step whose results are not all finite. Of the ranks of a group
/// one is seen, and of stages those of this process; of the others what they give it.
class NotFinite : public StepObserver {
 public:
  void observe(const Op& op, ValueId, std::span<const float> numbers) override {
    const auto is_finite = [](float number) { return std::isfinite(number); };
    if (std::holds_alternative<SelectOp>(op.what))
      return;  // lists may be short, the rest unwritten
    if (!first_.empty()) return;
    const bool attends = std::holds_alternative<AttendOp>(op.what);
    const bool is_of_ranks = std::holds_alternative<AllReduceOp>(op.what) ||
                             std::holds_alternative<AllGatherOp>(op.what);
    if (!std::ranges::all_of(numbers, is_finite)) {
      first_ = op.name;
      if (is_of_ranks) first_ = op.name.substr(0, op.name.rfind('.')) + " on another rank";
      if (std::holds_alternative<ReceiveOp>(op.what)) first_ = "a stage in another process";
      reads_cache_ = attends || (is_of_ranks && follows_attention_);
    }
    follows_attention_ = attends || (follows_attention_ && !is_of_ranks);
  }
  /// Empty while all numbers are finite.
  const std::string& first() const { return first_; }
  /// Says whether they come of keys and values in the cache, whose numbers were finite before.
  bool reads_cache() const { return reads_cache_; }

 private:
  std::string first_;
  bool reads_cache_ = false;
  bool follows_attention_ = false;  // and nothing was exchanged since
};

LoadOptions with_step_tokens(LoadOptions options, const Backend& backend) {
  if (options.step_tokens != 0) return options;
  options.step_tokens = backend.prompt_chunk();
  if (options.cache_positions > 0) {
    options.step_tokens = std::min(options.step_tokens, options.cache_positions);
  }
  return options;
}

}  // namespace

std::span<const ModelFamily* const> all_families() {
  return kFamilies;
}

const ModelFamily* find_family(std::string_view model_type) {
  for (const ModelFamily* family : kFamilies) {
    const auto has = [&](const auto& names, auto... name) {
      return std::ranges::find(names, model_type, name...) != names.end();
    };
    if (has(family->model_types, &ModelType::name) || has(family->containers)) return family;
    const auto is_wrapper = [&](const ModelType& type) {
      return !type.wrapper.empty() && type.wrapper == model_type;
    };
    if (std::ranges::any_of(family->model_types, is_wrapper)) return family;
  }
  return nullptr;
}

const ModelFamily& family_of(const ModelConfig& config) {
  return *find_family(config.model_type);
}

const ModelType& type_of(const ModelConfig& config) {
  return *std::ranges::find(family_of(config).model_types, config.model_type, &ModelType::name);
}

Status Model::check(const Batch& batch, std::span<const Part> before) const {
  const int64_t choices_before = Batch{before}.num_choices();
  if (batch.parts.empty()) return Error{"batch.parts", "a batch of no sequences"};
  std::vector<const Sequence*> seen;
  for (const Part& part : batch.parts) {
    const auto tokens = std::ssize(part.tokens);
    if (part.sequence == nullptr || tokens == 0 || part.num_logits < 0 ||
        part.num_logits > tokens || &part.sequence->pool() != &batch.parts[0].sequence->pool()) {
      return Error{
          "batch.parts",
          fmt::format("part {}: expected a sequence of the pool of the others, at least one "
                      "token and 0 to {} logits, found {}",
                      std::ssize(seen), tokens, part.num_logits)};
    }
    if (std::ranges::find(seen, part.sequence) != seen.end()) {
      return Error{"batch.parts", "a sequence stands in two parts of a batch"};
    }
    seen.push_back(part.sequence);
    for (const int32_t token : part.tokens) {
      if (is_pending_token(token) && token >= pending_token(choices_before - 1)) continue;
      SUBBYTE_CHECK(check_tokens({&token, 1}));
    }
  }
  return check_pool(batch.parts.front().sequence->pool());
}

Status Model::check_pool(const KvPool& pool) const {
  if (pool.layout() == plan().cache) return {};
  return Error{"batch.parts", "a pool of another model: it keeps other heads, layers or states"};
}

Status Model::check_tokens(std::span<const int32_t> tokens) const {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < config_.vocab_size) continue;
    return Error{"model.token_range", fmt::format("token {} is outside the vocabulary [0, {})",
                                                  token, config_.vocab_size)};
  }
  return {};
}

Status Model::submit(Backend& backend, const Batch& batch, std::span<const Part> before) const {
  SUBBYTE_CHECK(check(batch, before));
  for (const Part& part : batch.parts) {
    Status status = part.sequence->reserve(std::ssize(part.tokens));
    if (status.ok()) continue;
    // Pages that the parts before it have taken for this step.
    for (const Part& other : batch.parts) other.sequence->truncate(other.sequence->length());
    return status;
  }
  backend.submit(*step_, batch);
  for (const Part& part : batch.parts) part.sequence->advance(std::ssize(part.tokens));
  return {};
}

Status Model::forward(Backend& backend, const Batch& batch, Logits& logits) const {
  SUBBYTE_CHECK(submit(backend, batch));
  Status status = backend.wait(logits);
  for (const Part& part : batch.parts) {
    Sequence& sequence = *part.sequence;
    if (status.ok()) {
      sequence.settle(sequence.length());
    } else {
      sequence.truncate(sequence.length() - std::ssize(part.tokens));
    }
  }
  return status;
}

Error Model::locate_not_finite(Backend& backend, const Batch& batch, const Error& error) const {
  NotFinite seen;
  Logits logits;
  const Status again = forward(backend, {batch.parts, &seen}, logits);
  if (!again.ok() || seen.first().empty()) return error;
  const bool is_f16 =
      seen.reads_cache() && batch.parts.front().sequence->pool().type() == Element::kF16;
  return {error.code,
          fmt::format("{}; the first numbers that are not finite are those of {}{}", error.message,
                      seen.first(),
                      is_f16 ? ", whose keys or values a cache in f16 does not hold beyond 65504; "
                               "--kv-cache-type bf16 does"
                             : "")};
}

Status Model::verify_unchanged() const {
  for (const std::weak_ptr<const MappedFile>& file : files_) {
    if (const auto mapped = file.lock()) SUBBYTE_CHECK(mapped->verify_unwritten());
  }
  return {};
}

Result<KvPool> Model::make_kv_pool(Backend& backend, Element type, const CacheSize& size) const {
  return backend.make_kv_pool(plan().cache, type, size);
}

Result<StepPlan> plan_of(const ModelConfig& config, const LoadFacts& facts,
                         const WeightBytes& bytes) {
  StepRecorder step(config, facts, nullptr, &bytes);
  family_of(config).record(config, step);
  return std::move(step).plan();
}

namespace {

Result<std::unique_ptr<CompiledStep>> compile(const ModelConfig& config, const LoadFacts& facts,
                                              const ModelWeights& weights, Backend& backend) {
  StepRecorder step(config, facts, &weights);
  family_of(config).record(config, step);
  SUBBYTE_TRY(StepPlan plan, std::move(step).plan());
  return backend.compile(std::move(plan));
}

LoadFacts facts_of(std::span<const FoundTensor> tensors) {
  LoadFacts facts;
  for (const FoundTensor& tensor : tensors) {
    if (tensor.infos.empty()) continue;
    const ModuleInfo& info = tensor.infos.front();
    if (tensor.spec.name == kTable) facts.table = info.format.element;
    if (!info.tensors.empty() && info.tensors.front()->cols != nullptr) facts.reads_tiles = true;
    if (tensor.spec.role != TensorRole::kExpertsGateUp) continue;
    const auto differs = [&](const ModuleInfo& other) { return other.format != info.format; };
    if (std::ranges::any_of(tensor.infos, differs)) facts.has_two_formats = true;
  }
  return facts;
}

}  // namespace

Status check_loading(const ModelFiles& files, Backend& backend, Reads reads) {
  SUBBYTE_TRY(const CheckpointParts opened, open_model(files));
  ImportContext context = opened.context(backend.host());
  context.keeps_cols = true;
  SUBBYTE_TRY(const auto tensors, opened.find_tensors(context));
  WeightLoader loader(context, *opened.model, backend, {}, reads);
  SUBBYTE_CHECK(loader.load(tensors));
  const auto step = compile(*opened.model, {}, loader.weights(), backend);
  return step.ok() ? Status() : step.error();
}

Result<MemoryNeed> memory_need(const ModelFiles& files, Backend& backend,
                               const LoadOptions& options) {
  SUBBYTE_TRY(const CheckpointParts opened, open_model(files));
  ImportContext context = opened.context(backend.host());
  context.keeps_cols = true;
  SUBBYTE_TRY(const auto tensors, opened.find_tensors(context));
  const MachineMemory& memory = *backend.memory();
  SUBBYTE_TRY(const WeightNeed weights, weight_need(tensors, options.head_bits, form_of(memory)));
  SUBBYTE_TRY(const StepPlan plan, plan_of(*opened.model, facts_of(tensors)));
  return memory_need(tensors, weights, plan, with_step_tokens(options, backend), memory);
}

Result<StepPlan> plan_of(const ModelFiles& files, Executor& pool, const MatrixBytes& matrix_bytes) {
  SUBBYTE_TRY(const CheckpointParts opened, open_model(files));
  SUBBYTE_TRY(const auto tensors, opened.find_tensors(opened.context(pool)));
  SUBBYTE_TRY(const WeightNeed weights, weight_need(tensors, 16, matrix_bytes));
  return plan_of(*opened.model, facts_of(tensors), weights.bytes);
}

Result<std::unique_ptr<Model>> load_model(const ModelFiles& files, Backend& backend,
                                          const LoadOptions& given) {
  const LoadOptions options = with_step_tokens(given, backend);
  SUBBYTE_CHECK(check_head_bits(options.head_bits));
  SUBBYTE_TRY(const CheckpointParts opened, open_model(files));
  const ModelConfig& config = *opened.model;
  ImportContext context = opened.context(backend.host());
  context.keeps_cols = true;
  SUBBYTE_TRY(const auto tensors, opened.find_tensors(context));
  const LoadFacts facts = facts_of(tensors);
  MachineMemory* const memory = backend.memory();
  if (memory != nullptr) {
    SUBBYTE_TRY(StepPlan plan, plan_of(config, facts));
    SUBBYTE_CHECK(backend.check_operations(plan));
    SUBBYTE_CHECK(backend.check_cache(plan.cache, options.cache_type));
    SUBBYTE_TRY(const WeightNeed weights,
                weight_need(tensors, options.head_bits, form_of(*memory)));
    SUBBYTE_TRY(plan, plan_of(config, facts, weights.bytes));
    const MemoryNeed need = memory_need(tensors, weights, plan, options, *memory);
    SUBBYTE_CHECK(memory->reserve(need, plan, step_size(options)));
  }
  WeightLoader loader(context, config, backend, options);
  const Status loaded = loader.load(tensors);
  // After an error, too: what was reserved goes back.
  const Status finished = memory == nullptr ? Status() : memory->finish_loading();
  SUBBYTE_CHECK(loaded);
  SUBBYTE_CHECK(finished);
  SUBBYTE_CHECK(opened.tensors->verify_unchanged());
  SUBBYTE_TRY(auto step, compile(config, facts, loader.weights(), backend));
  return loader.finish(std::move(step), facts);
}

}  // namespace subbyte
