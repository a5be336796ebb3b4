// model.safetensors.index.json beside two shards that hold tensors a, b and c. The input is the
// index.

#include <string>

#include "checkpoints/containers/tensor_source.h"
#include "fuzz/fuzz.h"

using namespace subbyte;

namespace {

void write_shard(const fuzz::Scratch& scratch, const char* name,
                 const std::vector<TensorDeclaration>& tensors) {
  const auto start = lay_out_safetensors(tensors, {}, name);
  fuzz::require(start.ok(), "a shard");
  const uint64_t data_bytes = start->tensors.back().end;
  scratch.write(name, start->head + std::string(data_bytes, '\0'));
}

const fuzz::Scratch& directory() {
  static const fuzz::Scratch scratch;
  static const bool written = [] {
    write_shard(scratch, "1.safetensors", {{"a", DType::kU8, {4}}, {"b", DType::kF16, {2}}});
    write_shard(scratch, "2.safetensors", {{"c", DType::kF32, {1, 2}}});
    return true;
  }();
  fuzz::require(written, "shards");
  return scratch;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact index(data, size);
  directory().write("model.safetensors.index.json", index.text());
  const auto source = TensorSource::open(directory().path());
  if (!source.ok()) {
    fuzz::require_line(source.error(), directory().path().native());
    return 0;
  }
  // Only the index that says all three of both shards, or those of one, is right.
  const bool first = source->find("a") != nullptr, second = source->find("c") != nullptr;
  fuzz::require((source->find("b") != nullptr) == first, "the first shard");
  fuzz::require(source->tensors().size() == (first ? 2u : 0u) + (second ? 1u : 0u), "tensors");
  fuzz::require(source->total_bytes() == (first ? 8u : 0u) + (second ? 8u : 0u), "bytes");
  return 0;
}
