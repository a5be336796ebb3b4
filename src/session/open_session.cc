// Opening a session, the names of its options, and its parts.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/processes.h"
#include "engine/generation_config.h"
#include "models/memory_need.h"
#include "session/follower.h"
#include "session/not_enough_memory.h"
#include "session/session.h"

namespace subbyte {
namespace {

constexpr int64_t kUsualContext = 4096;
constexpr int64_t kMaxSequences = 65536;

constexpr std::pair<std::string_view, CacheType> kCacheTypes[] = {{"bf16", CacheType::kBF16},
                                                                  {"f16", CacheType::kF16},
                                                                  {"f32", CacheType::kF32},
                                                                  {"fp8", CacheType::kE4M3},
                                                                  {"fp8_e4m3", CacheType::kE4M3}};

Status check_size(const SessionOptions& size) {
  const bool has_sequences = size.max_sequences >= 1 && size.max_sequences <= kMaxSequences;
  const bool has_room =
      size.cache_positions >= 1 && kv_pages(size.cache_positions) * kPagePositions >= size.context;
  if (size.max_slowdown != 0 && !(size.max_slowdown > 1)) {
    return Error{"session.slowdown", fmt::format("max_slowdown: expected a number above 1, or 0, "
                                                 "found {}",
                                                 size.max_slowdown)};
  }
  if (size.context >= 1 && has_sequences && has_room) return {};
  return Error{"session.size",
               fmt::format("expected 1 to {} sequences, a context of at least one position, and a "
                           "cache that holds it; found {}, {} and a cache of {} positions",
                           kMaxSequences, size.max_sequences, size.context, size.cache_positions)};
}

/// With the sizes that nobody has said.
SessionOptions with_sizes(SessionOptions size, const ModelConfig& config) {
  if (size.context == 0) size.context = std::min(kUsualContext, config.max_positions);
  if (size.cache_positions == 0 && size.max_sequences <= kMaxSequences) {
    size.cache_positions = size.max_sequences * size.context;
  }
  return size;
}

LoadOptions load_options(const SessionOptions& size) {
  const int64_t scored_rows = size.scores_prompts ? kScoredPromptTokens : 0;
  return {.head_bits = size.head_bits,
          .progress = size.progress,
          .cache_type = element_of(size.cache_type),
          .cache_positions = size.cache_positions,
          .keeps_prefixes = size.prefix_cache,
          .state_cache_bytes = size.state_cache_bytes,
          .step_tokens = size.step_tokens,
          .step_sequences = size.max_sequences,
          .step_logits = size.max_sequences + scored_rows};
}

/// Bytes that a share of a GPU's memory leaves to the cache of a session. Those that a step takes
/// grow a little with the cache.
Result<int64_t> bytes_beside_weights(double share, const ReadyModel& ready, LoadOptions options,
                                     const CacheLayout& layout) {
  const MachineMemory* const memory = ready.backend->memory();
  if (memory == nullptr) {
    return Error{"usage.cache_memory",
                 "--gpu-memory-utilization is a share of a GPU's memory, and the model runs on the "
                 "CPU: --kv-cache-memory-bytes says how much the cache takes"};
  }
  Result<int64_t> least = memory->free_bytes();
  if (Exchange* const others = exchange_of(*ready.backend)) least = least_free(*others, least);
  SUBBYTE_TRY(const int64_t free, std::move(least));
  const auto budget = static_cast<int64_t>(share * static_cast<double>(free));
  SUBBYTE_TRY(MemoryNeed need, memory_need(ready.files, *ready.backend, options));
  options.cache_positions = positions_within(options, layout, budget - need.sum() + need.cache);
  SUBBYTE_TRY(need, memory_need(ready.files, *ready.backend, options));
  return budget - need.sum() + need.cache;
}

}  // namespace

Result<int64_t> positions_within(const CacheMemory& memory, const ReadyModel& ready,
                                 const SessionOptions& given) {
  SessionOptions size = given;
  size.cache_positions = size.context;
  if (size.step_tokens <= 0) size.step_tokens = ready.backend->prompt_chunk();
  const LoadOptions options = load_options(size);
  SUBBYTE_TRY(const StepPlan plan, plan_of(ready.config));
  int64_t bytes = memory.bytes;
  if (bytes == 0) {
    SUBBYTE_TRY(bytes, bytes_beside_weights(memory.share, ready, options, plan.cache));
  }
  const int64_t positions = positions_within(options, plan.cache, bytes);
  if (positions >= size.context) return positions;
  const int64_t least =
      cache_bytes(plan.cache, options.cache_type, cache_size(options, plan.cache));
  return Error{
      "usage.cache_memory",
      fmt::format("a cache of {} bytes has no room for a context of {} tokens, which wants "
                  "{}; a shorter one (--ctx-size) wants less",
                  std::max<int64_t>(bytes, 0), size.context, least)};
}

Status check_cache_memory(const ReadyModel& ready, const SessionOptions& given, bool is_loaded) {
  if (ready.backend->memory() != nullptr) return {};
  SUBBYTE_TRY(const StepPlan plan, plan_of(ready.config));
  SessionOptions size = with_sizes(given, ready.config);
  if (!check_size(size).ok()) return {};  // which loading says
  if (size.step_tokens <= 0) size.step_tokens = ready.backend->prompt_chunk();
  const LoadOptions options = load_options(size);
  const auto bytes = static_cast<double>(
      cache_bytes(plan.cache, options.cache_type, cache_size(options, plan.cache)));
  const FreeMemory free = free_memory();
  // Several processes may be on as many hosts, which are taken to be as large as this one.
  const Exchange* const others = exchange_of(*ready.backend);
  const double parts = others == nullptr ? 1 : others->size();
  const double weights = is_loaded ? 0 : weight_bytes(ready.files);
  const double room = std::max(0.0, parts * free.bytes - weights);
  if (bytes <= room) return {};
  const int64_t fits = std::max(positions_within(options, plan.cache, static_cast<int64_t>(room)),
                                kv_pages(size.context) * kPagePositions);
  if (size.cache_positions <= fits) return {};
  const std::string_view where =
      others == nullptr ? free.limit : "in as many machines as processes";
  return Error{"usage.cache_memory",
               fmt::format("a cache of {} tokens wants {:.0f} MB, and {:.0f} MB are free {} beside "
                           "the weights, which is enough for {}",
                           size.cache_positions, bytes / 1e6, room / 1e6, where, fits)};
}

Element element_of(CacheType type) {
  switch (type) {
    case CacheType::kF32:
      return Element::kF32;
    case CacheType::kBF16:
      return Element::kBF16;
    case CacheType::kE4M3:
      return Element::kE4M3;
    case CacheType::kF16:
      break;
  }
  return Element::kF16;
}

Result<Session> Session::open(const std::filesystem::path& model, const SessionOptions& options) {
  SUBBYTE_TRY(ReadyModel ready,
              ReadyModel::open(model.string(), options.device, {.on_choice = options.on_device}));
  SUBBYTE_TRY(std::unique_ptr<TextSetup> text, TextSetup::read(ready.files, ready.config));
  SUBBYTE_TRY(text->sampling, read_sampling_defaults(ready.files, options.sampling));
  if (!options.chat_template.empty()) {
    text->chat_template =
        ChatTemplate::compile(options.chat_template, "chat_template", ready.files);
    if (!text->chat_template->ok()) return text->chat_template->error();
  }
  SUBBYTE_CHECK(check_context(ready.config, options.context));
  if (options.cache_positions > 0) SUBBYTE_CHECK(check_cache_memory(ready, options));
  return load(std::move(ready), std::move(text), options);
}

Result<Session> Session::load(ReadyModel opened, std::shared_ptr<const TextSetup> text,
                              const SessionOptions& given) {
  SessionOptions size = with_sizes(given, opened.config);
  SUBBYTE_CHECK(check_size(size));
  const LoadOptions options = load_options(size);
  std::optional<KvPool> pool;
  const bool is_on_gpu = opened.backend->memory() != nullptr;
  SUBBYTE_CHECK(opened.load(options, [&](const Model& model) -> Status {
    Backend& machine = *opened.backend;
    // The CPU may have taken the place of a GPU, of which more was asked than requests can use.
    const bool is_more = size.cache_positions > size.max_sequences * size.context;
    if (is_on_gpu && is_more) SUBBYTE_CHECK(check_cache_memory(opened, size, true));
    if (given.step_tokens <= 0) size.step_tokens = machine.prompt_chunk();
    LoadOptions known = options;
    known.step_tokens = size.step_tokens;
    auto made =
        model.make_kv_pool(machine, options.cache_type, cache_size(known, model.plan().cache));
    const bool is_on_host = machine.memory() == nullptr;
    if (!made.ok() && made.error().code == "kv.memory" && is_on_host) {
      return not_enough_memory(opened.files, opened.config, options);
    }
    SUBBYTE_TRY(pool, std::move(made));
    return {};
  }));
  return Session(
      std::make_unique<State>(std::move(opened), std::move(text), *std::move(pool), size));
}

Session::Session(std::unique_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

ModelInfo Session::model() const {
  const ModelConfig& config = ready().config;
  return {.type = config.model_type,
          .num_layers = config.num_layers,
          .hidden_size = config.hidden_size,
          .vocab_size = config.vocab_size,
          .max_positions = config.max_positions,
          .weight_bytes = ready().model->weight_bytes(),
          .stop_tokens = config.eos_tokens,
          .directory = ready().files.directory(),
          .device = ready().backend->description()};
}

const Tokenizer& Session::tokenizer() const {
  return text().tokenizer;
}

int64_t Session::context() const {
  return state_->context;
}

const ReadyModel& Session::ready() const {
  return state_->ready;
}

const TextSetup& Session::text() const {
  return *state_->text;
}

const std::shared_ptr<const TextSetup>& Session::shared_text() const {
  return state_->text;
}

const KvPool& Session::cache() const {
  return state_->pool;
}

const Scheduler& Session::scheduler() const {
  return state_->scheduler;
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::optional<CacheType> find_cache_type(std::string_view name) {
  if (name == "e4m3") return CacheType::kE4M3;
  for (const auto& [known, type] : kCacheTypes) {
    if (known == name) return type;
  }
  return std::nullopt;
}

std::vector<std::string> cache_type_names() {
  std::vector<std::string> names;
  for (const auto& [name, type] : kCacheTypes) names.emplace_back(name);
  return names;
}

SUBBYTE_END_NAMESPACE
