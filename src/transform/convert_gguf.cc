#include "transform/convert_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "checkpoints/containers/gguf_tokenizer_writer.h"
#include "checkpoints/containers/gguf_writer.h"
#include "checkpoints/unread_parts.h"
#include "engine/generation_config.h"
#include "models/gguf_writing.h"
#include "text/chat_template.h"
#include "transform/gguf_steps.h"
#include "transform/rewrite.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;

// Of the bytes that are written: to be raised when the same source becomes other bytes.
constexpr int kResumeRevision = 1;
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";
constexpr uint64_t kMaxTokenizer = uint64_t{256} << 20;

Result<json::Value> value_of(const ModelFiles& files, const char* name) {
  if (!files.has(name)) return json::Value();
  SUBBYTE_TRY(SideFile file, files.read(name));
  return std::move(file.value);
}

Status add_tokenizer(const ModelFiles& files, const ModelConfig& model, bool allow_lossy,
                     GgufKeys& keys, std::vector<std::string>& notices) {
  SUBBYTE_TRY(std::optional<std::string> text, files.text(kTokenizer));
  const fs::path path = files.directory() / kTokenizer;
  if (!text) {
    SUBBYTE_TRY(const MappedFile file, json::open_file(path.native(), kMaxTokenizer));
    text = std::string(json::text_of(file));
  }
  GgufTokenizerSource source = {.tokenizer = *text,
                                .where = path.native(),
                                .ends = model.eos_tokens,
                                .num_ids = static_cast<uint64_t>(model.vocab_size),
                                .allow_lossy = allow_lossy};
  SUBBYTE_TRY(source.config, value_of(files, kTokenizerConfig));
  SUBBYTE_TRY(source.templates, named_chat_templates(files));
  return add_gguf_tokenizer(source, keys, notices);
}

/// "Qwen2.5-7B" of a directory "there/Qwen2.5-7B/" or a file of that name.
std::string name_of(const fs::path& model) {
  const fs::path named = model.has_filename() ? model : model.parent_path();
  return (named.extension() == ".gguf" ? named.stem() : named.filename()).string();
}

/// How the makers of the model sample from it, wherever they say so. Greedy is temperature 0.
Status add_sampling(const ModelFiles& files, GgufKeys& keys) {
  SUBBYTE_TRY(const Sampling said, read_generation_config(files));
  const std::pair<std::optional<double>, std::string_view> numbers[] = {
      {said.temperature, "general.sampling.temp"},
      {said.top_p, "general.sampling.top_p"},
      {said.min_p, "general.sampling.min_p"},
      {said.repetition_penalty, "general.sampling.penalty_repeat"}};
  for (const auto& [number, key] : numbers) {
    if (number) keys.number(key, static_cast<float>(*number));
  }
  if (said.top_k) {  // all tokens: 0
    keys.whole("general.sampling.top_k", static_cast<uint32_t>(std::max<int64_t>(*said.top_k, 0)));
  }
  return {};
}

/// Tensors of parts that no file has, such as those that see.
std::vector<std::string> left_out(const TensorSource& tensors) {
  std::set<std::string> parts;
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (!is_in_unread_part(tensors, name)) continue;
    parts.insert(name.substr(0, name.find('.', name.find('.') + 1)));
  }
  if (parts.empty()) return {};
  return {fmt::format("left out, as no model in GGUF has them: tensors of {}{}", *parts.begin(),
                      parts.size() == 1 ? "" : " and others")};
}

/// The keys of the file, and the tensors that belong to them.
struct Head {
  GgufKeys keys;
  std::vector<WriteStep> steps;
};

Result<Head> head_of(const CheckpointParts& source, const GgufArchitecture& architecture,
                     const json::Object& config, const std::string& name) {
  const ModelConfig& model = *source.model;
  Head head;
  std::vector<GgufConfigTensor> tensors;
  SUBBYTE_CHECK(add_gguf_config(architecture, model, config, head.keys, tensors));
  head.keys.text("general.name", name);
  SUBBYTE_CHECK(add_sampling(source.files, head.keys));
  for (GgufConfigTensor& tensor : tensors) {
    WriteStep step;
    step.tensors = {{tensor.name, DType::kF32, {tensor.numbers.size()}}};
    step.make = [numbers = std::move(tensor.numbers)](const PutBytes& put) {
      return put(0, std::as_bytes(std::span(numbers)));
    };
    head.steps.push_back(std::move(step));
  }
  return head;
}

/// The file up to the last tensor of the keys.
Result<GgufFile> beginning_of(const WeightFile& file, std::span<const WriteStep> steps,
                              const fs::path& path) {
  std::string bytes = file.head;
  for (const WriteStep& step : steps) {
    const TensorEntry& entry =
        *std::ranges::find(file.tensors, step.tensors.front().name, &TensorEntry::name);
    bytes.resize(file.head.size() + entry.begin, '\0');
    SUBBYTE_CHECK(step.make([&](std::size_t, std::span<const std::byte> part) -> Status {
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size());
      return {};
    }));
  }
  return GgufFile::of_beginning(MappedFile::of(std::as_bytes(std::span(bytes)), path));
}

}  // namespace

Result<ConvertReport> convert_to_gguf(const fs::path& model, const CheckpointParts& source,
                                      const fs::path& destination, const ConvertOptions& options,
                                      Executor& pool, const ByteProgress& progress) {
  SUBBYTE_CHECK(source.check_model());
  const ImportContext context = source.context(pool);
  SUBBYTE_TRY(const auto* architecture, gguf_architecture_for(*source.model));
  SUBBYTE_TRY(const auto found, source.find_tensors(context));
  SUBBYTE_TRY(const json::Object whole, source.config->object());
  SUBBYTE_TRY(const auto text, text_part_of(whole));
  const json::Object& config = text ? *text : whole;
  SUBBYTE_TRY(Head head, head_of(source, *architecture, config, name_of(model)));
  Rewrite rewrite = {.source = model,
                     .tensors = *source.tensors,
                     .file = destination.filename().string(),
                     .notice = options.notice,
                     .notices = left_out(*source.tensors),
                     .check = options.check,
                     .progress = progress};
  if (source.files.has(kTokenizer)) {
    SUBBYTE_CHECK(add_tokenizer(source.files, *source.model, options.allow_lossy, head.keys,
                                rewrite.notices));
  } else {
    rewrite.notices.push_back("no tokenizer.json: the file is without a tokenizer");
  }
  const std::size_t num_own = head.steps.size();
  rewrite.steps = std::move(head.steps);
  ConvertLoss loss = {options.allow_lossy};
  SUBBYTE_TRY(auto steps, plan_gguf_steps(context, *source.model, *architecture, found, loss));
  std::ranges::move(steps, std::back_inserter(rewrite.steps));
  SUBBYTE_TRY(rewrite.weights, lay_out_gguf(head.keys, rewrite.steps, rewrite.file));
  SUBBYTE_TRY(const GgufFile beginning,
              beginning_of(rewrite.weights.files.front(), std::span(rewrite.steps).first(num_own),
                           destination));
  SUBBYTE_CHECK(check_gguf_config(beginning, *architecture, *source.model, config));
  if (!options.allow_lossy) {
    rewrite.resumes = {{"revision", kResumeRevision}, {"format", kGgufFormat}};
  }
  SUBBYTE_CHECK(write_rewrite(rewrite, destination));
  const auto is_quantized = [](const WriteStep& step) {
    return step.tensors.front().dtype == DType::kBlocks;
  };
  const auto converted = std::ranges::count_if(rewrite.steps, is_quantized);
  return ConvertReport{.format = std::string(kGgufFormat),
                       .converted_matrices = converted,
                       .kept_tensors = std::ssize(rewrite.steps) - converted,
                       .source_bytes = source.tensors->total_bytes(),
                       .result_bytes = count_bytes(rewrite.steps),
                       .rounded_matrices = loss.rounded,
                       .loss = loss.all,
                       .worst = loss.worst};
}

}  // namespace subbyte
