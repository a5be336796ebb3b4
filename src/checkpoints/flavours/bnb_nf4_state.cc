#include "checkpoints/flavours/bnb_nf4_state.h"

#include <fmt/format.h>

#include <limits>

#include "base/quote.h"
#include "checkpoints/import_parts.h"
#include "json/strict_json.h"

namespace subbyte {
namespace {

constexpr int64_t kSmallestGroup = 8;
constexpr int64_t kMaxSize = int64_t{1} << 31;
constexpr uint64_t kMaxStateBytes = 1 << 16;

Result<int64_t> read_blocksize(const json::Object& state, std::string_view key) {
  SUBBYTE_TRY(const int64_t size, state.required_integer(key, std::numeric_limits<int64_t>::min(),
                                                         std::numeric_limits<int64_t>::max()));
  if (is_bnb_blocksize(size)) return size;
  return state.error("bnb_nf4.blocksize", key, "a power of two from 32 to 4096");
}

Status read_shape(const json::Object& object, BnbState& state) {
  const json::Value* shape = object.find("shape");
  const bool valid = shape != nullptr && shape->is_array() && shape->size() == 2 &&
                     (*shape)[0].is_number_unsigned() && (*shape)[1].is_number_unsigned() &&
                     (*shape)[0].get<uint64_t>() - 1 < kMaxSize &&
                     (*shape)[1].get<uint64_t>() - 1 < kMaxSize;
  if (!valid) return object.error("import.shape", "shape", "two sizes from 1 to 2^31");
  state.rows = (*shape)[0].get<int64_t>();
  state.cols = (*shape)[1].get<int64_t>();
  return {};
}

Status read_nested(const json::Object& object, BnbState& state) {
  constexpr double kMax = std::numeric_limits<float>::max();
  SUBBYTE_TRY(const auto offset, object.number("nested_offset", -kMax, kMax));
  if (!offset) return {};
  state.nested_offset = static_cast<float>(*offset);
  SUBBYTE_TRY(state.nested_blocksize, read_blocksize(object, "nested_blocksize"));
  SUBBYTE_TRY(const auto dtype, object.string("nested_dtype"));
  if (dtype.value_or("float32") != "float32") {
    return object.error("import.dtype", "nested_dtype", "\"float32\"");
  }
  return {};
}

}  // namespace

bool is_bnb_blocksize(int64_t size) {
  return size >= 32 && size <= 4096 && (size & (size - 1)) == 0;
}

Result<BnbState> read_bnb_state(const FileTensor& tensor) {
  SUBBYTE_CHECK(require_dtype(tensor, DType::kU8));
  SUBBYTE_CHECK(require_rank(tensor, 1));
  if (tensor.bytes.size() > kMaxStateBytes) {
    return tensor_error("import.shape", tensor, "expected JSON of at most 64 KiB");
  }
  const std::string where =
      fmt::format("{}: tensor {}", tensor.file->path().string(), quote_name(tensor.name));
  const std::string_view text = {reinterpret_cast<const char*>(tensor.bytes.data()),
                                 tensor.bytes.size()};
  SUBBYTE_TRY(const json::Value value, json::parse(text, where));
  SUBBYTE_TRY(const json::Object object, json::Object::of(value, where));
  SUBBYTE_TRY(const std::string type, object.required_string("quant_type"));
  if (type != "nf4") return object.error("bnb_nf4.quant_type", "quant_type", "\"nf4\"");
  BnbState state;
  SUBBYTE_TRY(state.blocksize, read_blocksize(object, "blocksize"));
  SUBBYTE_CHECK(read_shape(object, state));
  if (state.cols % kSmallestGroup != 0) {
    return tensor_error("import.shape", tensor,
                        fmt::format("rows of {} inputs are no multiples of {}, so that blocks of "
                                    "{} begin and end within a group of them, which is not "
                                    "supported",
                                    state.cols, kSmallestGroup, state.blocksize));
  }
  SUBBYTE_CHECK(read_nested(object, state));
  return state;
}

std::string bnb_state_json(int64_t rows, int64_t cols, int64_t blocksize) {
  return fmt::format(
      R"({{"quant_type": "nf4", "blocksize": {}, "dtype": "bfloat16", "shape": [{}, {}]}})",
      blocksize, rows, cols);
}

}  // namespace subbyte
