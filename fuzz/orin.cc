// The header of a model file of OrinMLLM. The input is 8 bytes for the size of the file, then its
// start; sizes that are ever right are few, so what the header wants is tried, too.

#include <cstring>

#include "checkpoints/containers/orin_model.h"
#include "fuzz/fuzz.h"

using namespace subbyte;

namespace {

void check(std::span<const std::byte> head, uint64_t file_size) {
  const auto model = read_orin_model(head, file_size, "input");
  if (!model.ok()) {
    fuzz::require_line(model.error(), "input");
    return;
  }
  uint64_t end = 0;
  for (const TensorEntry& tensor : model->tensors) {
    fuzz::require(tensor.begin == end && tensor.end > end, "no hole, no overlap");
    end = tensor.end;
  }
  fuzz::require(kOrinHeaderBytes + end == file_size, "every byte");
  const json::Value config = orin_config(model->header);
  fuzz::require(json::Object::of(config, "input").ok(), "a config");
  if (model->header.version != 5 || model->header.max_positions > 40960) return;
  const auto back = orin_header(*json::Object::of(config, "input"));
  fuzz::require(back.ok() && *back == model->header, "the header of its own config");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 8) return 0;
  uint64_t file_size = 0;
  std::memcpy(&file_size, data, 8);
  const fuzz::Exact head(data + 8, size - 8);
  check(head.bytes(), file_size);
  check(head.bytes(), size - 8);
  const auto model = read_orin_model(head.bytes(), UINT64_MAX, "input");
  fuzz::require(!model.ok(), "no file is that long");
  const std::string& message = model.error().message;
  const auto at = message.find("input: expected ");
  if (model.error().code == "orin.trailing_bytes" && at == 0) {
    check(head.bytes(), std::strtoull(message.c_str() + 16, nullptr, 10));
  }
  return 0;
}
