#include "checkpoints/flavours/integer_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/quote.h"

namespace subbyte {
namespace {

constexpr int64_t kMaxGroupSize = int64_t{1} << 24;

Result<std::optional<int64_t>> any_integer(const json::Object& object, std::string_view key) {
  return object.integer(key, std::numeric_limits<int64_t>::min(),
                        std::numeric_limits<int64_t>::max());
}

/// "2, 3, 4 or 8"
std::string list_of(std::span<const int> numbers) {
  const std::string last = std::to_string(numbers.back());
  if (numbers.size() == 1) return last;
  return fmt::format("{} or {}", fmt::join(numbers.first(numbers.size() - 1), ", "), last);
}

int64_t groups_for(int64_t group_size, int64_t cols) {
  return group_size == -1 ? 1 : static_cast<int64_t>(ceil_div(cols, group_size));
}

}  // namespace

Status IntegerSizes::read_bits(const json::Object& object, std::string_view key,
                               std::span<const int> known) {
  SUBBYTE_TRY(const auto found, any_integer(object, key));
  if (!found) return {};
  if (std::ranges::find(known, *found) == known.end()) {
    return object.error("quantization.bits", key, list_of(known));
  }
  bits.push_back(*found);
  return {};
}

Status IntegerSizes::read_group_size(const json::Object& object, std::string_view key) {
  SUBBYTE_TRY(const auto size, any_integer(object, key));
  if (!size) return {};
  if (*size != -1 && (*size < 8 || *size % 8 != 0 || *size > kMaxGroupSize)) {
    return object.error("quantization.group_size", key, "-1 or a positive multiple of 8");
  }
  group_sizes.push_back(*size);
  return {};
}

Status IntegerSizes::require(const json::Object& object) const {
  if (bits.empty()) return object.error("json.missing", "bits", "a number");
  if (group_sizes.empty()) return object.error("json.missing", "group_size", "a number");
  return {};
}

Status IntegerSizes::check(const ImportContext& context, std::string_view module, int64_t num_bits,
                           int64_t cols, int64_t groups) const {
  if (std::ranges::find(bits, num_bits) == bits.end()) {
    return Error{"import.config",
                 fmt::format("{}: bits is {}, but the tensors of {} have {}", context.config.where,
                             fmt::join(bits, " or "), quote_name(module), num_bits)};
  }
  const bool known = std::ranges::any_of(
      group_sizes, [&](int64_t size) { return groups_for(size, cols) == groups; });
  return known ? Status() : group_error(context, module, group_sizes, cols, groups);
}

Result<int64_t> IntegerSizes::group_size_of(const FileTensor& scales, int64_t cols,
                                            int64_t groups) const {
  if (groups == 1) return 0;
  // An override may name a size that gives as many groups and does not divide the inputs.
  for (const int64_t size : group_sizes) {
    if (size > 0 && cols % size == 0 && cols / size == groups) return size;
  }
  return tensor_error("import.shape", scales,
                      fmt::format("{} inputs in {} groups are not a multiple of the group size {}",
                                  cols, groups, fmt::join(group_sizes, " or ")));
}

bool packs_outputs(const TensorSource& tensors, std::string_view module) {
  const FileTensor* qweight = find_tensor(tensors, module, ".qweight");
  const FileTensor* scales = find_tensor(tensors, module, ".scales");
  // GPTQ packs along the inputs: its words are as many as the outputs, and it may have g_idx.
  return qweight != nullptr && find_tensor(tensors, module, ".g_idx") == nullptr &&
         (scales == nullptr || scales->shape.empty() || qweight->shape.empty() ||
          qweight->shape.back() != scales->shape.back());
}

}  // namespace subbyte
