// Writes ak48, version 5. The format is drawn in orin_model.h.

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <set>

#include "base/output_file.h"
#include "base/quote.h"
#include "checkpoints/containers/orin_model.h"
#include "checkpoints/flavour.h"
#include "checkpoints/flavours/integer_config.h"
#include "checkpoints/import_parts.h"

namespace subbyte {
namespace {

constexpr uint32_t kMagic = 0x616B3438;
constexpr int64_t kMaxField = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxPositions = 40960;

/// Refuses a number that is there and is another one than readers take for granted.
Status require_number(const json::Object& config, const char* key, double expected) {
  SUBBYTE_TRY(const auto found, config.number(key, 0, 1e300));
  if (!found || *found == expected) return {};
  return config.error("export.format", key, fmt::format("{}, which is not stored", expected));
}

Status require_what_is_not_stored(const json::Object& config) {
  SUBBYTE_CHECK(require_number(config, "rms_norm_eps", 1e-6));
  SUBBYTE_CHECK(require_number(config, "rope_theta", 1e6));
  SUBBYTE_TRY(const auto rope, config.object("rope_parameters"));
  if (rope) SUBBYTE_CHECK(require_number(*rope, "rope_theta", 1e6));
  if (!config.has("rope_theta") && !(rope && rope->has("rope_theta"))) {
    return config.error("export.format", "rope_theta", "1e6, which is not stored");
  }
  SUBBYTE_TRY(const auto kind, rope ? rope->string("rope_type") : config.string("rope_type"));
  if (kind.value_or("default") != "default" || config.has("rope_scaling")) {
    return config.error("export.format", "rope_scaling", "nothing: there is no place for it");
  }
  SUBBYTE_TRY(const auto window, config.boolean("use_sliding_window"));
  if (window.value_or(false)) {
    return config.error("export.format", "use_sliding_window", "false");
  }
  return {};
}

void store_i32(std::vector<std::byte>& bytes, std::size_t at, int64_t value) {
  const auto field = static_cast<int32_t>(value);
  std::memcpy(bytes.data() + at, &field, 4);
}

}  // namespace

std::vector<std::byte> orin_header_bytes(const OrinHeader& header) {
  std::vector<std::byte> bytes(kOrinHeaderBytes);
  const int64_t fields[] = {kMagic,
                            header.version,
                            header.hidden_size,
                            header.intermediate_size,
                            header.num_layers,
                            header.num_heads,
                            header.num_kv_heads,
                            header.vocab_size,
                            header.max_positions};
  std::size_t at = 0;
  for (const int64_t field : fields) {
    store_i32(bytes, at, field);
    at += 4;
  }
  bytes[at] = std::byte(header.tied ? 1 : 0);
  store_i32(bytes, at + 1, header.head_dim);
  store_i32(bytes, at + 5, header.group_size);
  return bytes;
}

const Exporter& orin_exporter() {
  return **awq_flavour.exporters.begin();
}

Result<OrinHeader> orin_header(const json::Object& config) {
  SUBBYTE_CHECK(require_what_is_not_stored(config));
  OrinHeader header;
  const std::pair<const char*, int64_t*> sizes[] = {
      {"hidden_size", &header.hidden_size},
      {"intermediate_size", &header.intermediate_size},
      {"num_hidden_layers", &header.num_layers},
      {"num_attention_heads", &header.num_heads},
      {"num_key_value_heads", &header.num_kv_heads},
      {"vocab_size", &header.vocab_size},
      {"head_dim", &header.head_dim}};
  for (const auto& [key, size] : sizes) {
    SUBBYTE_TRY(*size, config.required_integer(key, 1, kMaxField));
  }
  SUBBYTE_TRY(header.max_positions,
              config.required_integer("max_position_embeddings", 1, kMaxPositions));
  SUBBYTE_TRY(const auto tied, config.boolean("tie_word_embeddings"));
  header.tied = tied.value_or(false);
  SUBBYTE_TRY(const auto section, config.object("quantization_config"));
  if (!section) return config.error("export.format", "quantization_config", "that of AWQ");
  SUBBYTE_TRY(const std::string method, section->required_string("quant_method"));
  if (method != awq_flavour.name) {
    return section->error("export.format", "quant_method", quote(awq_flavour.name));
  }
  SUBBYTE_TRY(header.group_size, section->required_integer("group_size", 1, kMaxField));
  return header;
}

Status write_orin_model(const std::filesystem::path& path, bool overwrite, const OrinHeader& header,
                        const TensorSource& tensors) {
  if (header.version != 5) {
    return Error{"export.format",
                 fmt::format("{}: version 5 is written, not {}", path.native(), header.version)};
  }
  SUBBYTE_TRY(const auto entries, orin_tensors(header, path.native()));
  std::set<std::string_view> known;
  for (const TensorEntry& entry : entries) {
    SUBBYTE_TRY(const FileTensor* tensor, require_tensor(tensors, entry.name, ""));
    SUBBYTE_CHECK(require_dtype(*tensor, entry.dtype));
    SUBBYTE_CHECK(require_shape(*tensor, entry.shape));
    known.insert(entry.name);
  }
  for (const auto& [name, tensor] : tensors.tensors()) {
    if (known.contains(name)) continue;
    return tensor_error("export.surplus", tensor, "ak48 has no place for this tensor");
  }
  SUBBYTE_TRY(OutputFile file, OutputFile::create(path, overwrite));
  SUBBYTE_CHECK(file.write(orin_header_bytes(header)));
  for (const TensorEntry& entry : entries) {
    const FileTensor& tensor = *tensors.find(entry.name);
    SUBBYTE_CHECK(file.write(tensor.bytes));
    tensor.file->release(tensor.bytes);
  }
  return file.commit();
}

}  // namespace subbyte
