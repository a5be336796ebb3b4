#include "transform/convert_orin.h"

#include <fmt/format.h>

#include <map>

#include "base/free_space.h"
#include "base/model_file.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "json/strict_json.h"
#include "models/model_config.h"

namespace subbyte {
namespace {

namespace fs = std::filesystem;
using Declaration = SafetensorsWriter::Declaration;

constexpr const char* kGeneration = "generation_config.json";

bool has_generation_config(const fs::path& model) {
  return is_there(model_directory(model) / kGeneration);
}

/// What readers of the file take for the config.
Result<ModelConfig> config_of(const OrinHeader& header) {
  const json::Value value = orin_config(header);
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, "ak48"));
  return parse_model_config(object);
}

Status check_same_model(const fs::path& model, const std::string& where, const OrinHeader& header) {
  SUBBYTE_TRY(ModelConfig expected, read_model_config(model));
  SUBBYTE_TRY(ModelConfig found, config_of(header));
  // Where there is no generation_config.json, one is written that has the tokens of end.
  const bool end_is_kept = !has_generation_config(model) || expected.eos_tokens == found.eos_tokens;
  found.eos_tokens = expected.eos_tokens;
  if (found.model_type != expected.model_type) {
    return Error{"export.format",
                 fmt::format("{}: ak48 is for models of the type {}, found {}", where,
                             quote(found.model_type), quote(expected.model_type))};
  }
  if (found != expected) {
    return Error{"export.format",
                 fmt::format("{}: ak48 has no place for what it says beside sizes, such as layers "
                             "with sliding windows",
                             where)};
  }
  if (end_is_kept) return {};
  // Read once more from a copy of generation_config.json alone.
  const std::string generation = (model_directory(model) / kGeneration).string();
  SUBBYTE_TRY(const json::Value value, json::parse_file(generation, kMaxConfigBytes));
  if (value.is_object() && value.contains("eos_token_id") && !value["eos_token_id"].is_null()) {
    return {};
  }
  return Error{"export.format", fmt::format("{}: ak48 has no place for its eos_token_id, and {} "
                                            "does not name it",
                                            where, generation)};
}

using Declared = std::map<std::string_view, const Declaration*>;

Status check_tensor(const TensorEntry& entry, const Declared& declared) {
  const auto found = declared.find(entry.name);
  if (found == declared.end()) {
    return Error{"import.missing", fmt::format("ak48 needs {}, which the model does not have",
                                               quote_name(entry.name))};
  }
  const Declaration& tensor = *found->second;
  if (tensor.dtype != entry.dtype) {
    return Error{"import.dtype", fmt::format("{}: ak48 holds {}, found {}", quote_name(entry.name),
                                             name(entry.dtype), name(tensor.dtype))};
  }
  if (tensor.shape == entry.shape) return {};
  return Error{"import.shape",
               fmt::format("{}: expected {} (config.json), found {}", quote_name(entry.name),
                           to_string(entry.shape), to_string(tensor.shape))};
}

Status check_tensors(const std::vector<TensorEntry>& entries,
                     const std::vector<TensorGroup>& groups) {
  Declared declared;
  for (const TensorGroup& group : groups) {
    for (const Declaration& tensor : group) declared[tensor.name] = &tensor;
  }
  for (const TensorEntry& entry : entries) {
    SUBBYTE_CHECK(check_tensor(entry, declared));
    declared.erase(entry.name);
  }
  if (declared.empty()) return {};
  return Error{"export.surplus", fmt::format("{}: ak48 has no place for this tensor",
                                             quote_name(declared.begin()->first))};
}

}  // namespace

Result<OrinPlan> plan_orin_model(const fs::path& model, const ConfigFile& config,
                                 const std::vector<TensorGroup>& groups) {
  SUBBYTE_TRY(const json::Object object, config.object());
  OrinPlan plan;
  SUBBYTE_TRY(plan.header, orin_header(object));
  SUBBYTE_CHECK(check_same_model(model, config.where, plan.header));
  SUBBYTE_TRY(plan.entries, orin_tensors(plan.header, config.where));
  SUBBYTE_CHECK(check_tensors(plan.entries, groups));
  return plan;
}

Status write_orin_checkpoint(const fs::path& path, const OrinPlan& plan,
                             const std::vector<TensorGroup>& groups, const WriteGroup& write,
                             const ByteProgress& progress) {
  const std::vector<std::byte> header = orin_header_bytes(plan.header);
  const uint64_t total = plan.entries.back().end;
  if (is_file_with(path, header, kOrinHeaderBytes + total)) return {};
  remove_output(path);
  SUBBYTE_CHECK(check_free_space(path.parent_path(), kOrinHeaderBytes + total));
  std::map<std::string_view, const TensorEntry*> entries;
  for (const TensorEntry& entry : plan.entries) entries[entry.name] = &entry;
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, false));
  SUBBYTE_CHECK(file.write(header));
  uint64_t done = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::vector<uint64_t> offsets(groups[g].size());
    const PutBytes put = [&](std::size_t index, std::span<const std::byte> bytes) -> Status {
      const TensorEntry& entry = *entries.at(groups[g][index].name);
      SUBBYTE_CHECK(file.write_at(kOrinHeaderBytes + entry.begin + offsets[index], bytes));
      offsets[index] += bytes.size();
      done += bytes.size();
      if (progress) progress(done, total);
      return {};
    };
    SUBBYTE_CHECK(write(g, put));
  }
  return file.commit();
}

Status write_end_tokens(const fs::path& model, const OrinPlan& plan, const fs::path& directory) {
  if (has_generation_config(model)) return {};
  SUBBYTE_TRY(const ModelConfig expected, read_model_config(model));
  SUBBYTE_TRY(const ModelConfig found, config_of(plan.header));
  if (expected.eos_tokens == found.eos_tokens) return {};
  const json::Value config = {{"eos_token_id", expected.eos_tokens}};
  return write_text(directory / kGeneration, json::to_text(config, 2) + "\n");
}

}  // namespace subbyte
