// The header of a safetensors file. The input is the file.

#include "checkpoints/containers/safetensors.h"

#include "base/checked.h"
#include "fuzz/fuzz.h"

using namespace subbyte;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const fuzz::Exact file(data, size);
  const auto header = read_safetensors_header(file.bytes(), size, "input");
  if (!header.ok()) {
    fuzz::require_line(header.error(), "input");
    return 0;
  }
  // What was accepted covers the data from the first byte to the last.
  uint64_t end = 0;
  for (const TensorEntry& tensor : header->tensors) {
    fuzz::require(tensor.begin == end && tensor.end >= tensor.begin, "no hole, no overlap");
    const auto elements = checked_product(tensor.shape);
    fuzz::require(elements && *elements <= size * 8, "a shape that the file holds");
    fuzz::require(*elements * bits(tensor.dtype) == 8 * (tensor.end - tensor.begin), "its bytes");
    end = tensor.end;
  }
  fuzz::require(header->data_offset + end == size, "every byte");
  return 0;
}
