// A GGUF file: its container, and what its metadata become. Texts that are made of it are JSON, and
// a config that is made is one that the family reads or refuses.

#include <algorithm>

#include "checkpoints/containers/gguf_parts.h"
#include "checkpoints/containers/gguf_tokenizer.h"
#include "fuzz/fuzz.h"
#include "models/gguf_config.h"
#include "models/gguf_tensors.h"
#include "models/model_config.h"

using namespace subbyte;

namespace {

MappedFile mapped(std::span<const std::byte> bytes) {
  return MappedFile::of(bytes, "input");
}

void check_value(const GgufValue& value) {
  fuzz::require(!value.describe().empty(), "a description");
  if (const auto texts = value.strings()) fuzz::require(texts->size() == value.size(), "all texts");
  for (uint64_t i = 0; i < std::min<uint64_t>(value.size(), 4); ++i) {
    if (value.integer(i)) fuzz::require(value.number(i).has_value(), "integers are numbers");
  }
}

void check_json(const Result<std::string>& text) {
  if (text.ok()) {
    const auto value = json::parse(*text, "made");
    // A name may come twice, and nothing else is wrong.
    fuzz::require(value.ok() || value.error().code == "json.duplicate_key", "JSON");
  } else {
    fuzz::require_line(text.error(), "input");
  }
}

void check_model(const GgufFile& file) {
  const auto architecture = gguf_architecture_of(file);
  if (!architecture.ok()) return fuzz::require_line(architecture.error(), "input");
  const GgufModel model = GgufModel::of(file);
  const auto tensors = gguf_tensors(model, **architecture);
  if (!tensors.ok()) fuzz::require_line(tensors.error(), "input");
  const auto config = gguf_config(model, **architecture);
  if (!config.ok()) return fuzz::require_line(config.error(), "input");
  const auto object = json::Object::of(*config, "input");
  fuzz::require(object.ok(), "a config");
  const auto read = parse_model_config(*object);
  if (!read.ok()) fuzz::require_line(read.error(), "input");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact input(data, size);
  const auto file = GgufFile::of(mapped(input.bytes()));
  std::vector<Error> problems;
  const auto rest = GgufFile::of(mapped(input.bytes()), &problems);
  for (const Error& problem : problems) fuzz::require_line(problem, "input");
  if (!file.ok()) {
    fuzz::require_line(file.error(), "input");
    fuzz::require(!rest.ok() || !problems.empty(), "a reason");
    return 0;
  }
  fuzz::require(rest.ok() && problems.empty(), "the same answer");
  for (const GgufKey& key : file->keys()) check_value(key.value);
  for (const GgufTensor& tensor : file->tensors()) {
    fuzz::require(!tensor.bytes.empty() && !tensor.shape.empty(), "bytes");
  }
  check_json(gguf_tokenizer_json(*file));
  check_json(gguf_tokenizer_config(*file));
  check_json(gguf_generation_config(*file));
  check_model(*file);
  return 0;
}
