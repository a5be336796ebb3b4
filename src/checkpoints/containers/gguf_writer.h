#pragma once
// GGUF files that are written: metadata as gguf_file.h has them, and where tensors lie.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "checkpoints/containers/checkpoint_writer.h"
#include "checkpoints/containers/gguf_value.h"

namespace subbyte {

/// Metadata in the form of a file; of two values of one name the first counts.
class GgufKeys {
 public:
  void text(std::string_view name, std::string_view value);
  void flag(std::string_view name, bool value);
  void whole(std::string_view name, uint32_t value);
  void number(std::string_view name, float value);
  void texts(std::string_view name, std::span<const std::string> values);
  void wholes(std::string_view name, std::span<const int32_t> values);
  void numbers(std::string_view name, std::span<const float> values);
  void flags(std::string_view name, const std::vector<bool>& values);

  bool has(std::string_view name) const;
  uint64_t size() const { return names_.size(); }
  /// All of them, one after another.
  const std::string& bytes() const { return bytes_; }

 private:
  bool add(std::string_view name, GgufType type);
  bool add_list(std::string_view name, GgufType element, uint64_t count);

  std::vector<std::string> names_;
  std::string bytes_;
};

/// One file of that name, whose tensors are in the order of `steps`. Codes: gguf.tensor for names
/// longer than 63 bytes, gguf.type for dtypes that GGUF does not have.
Result<WeightFiles> lay_out_gguf(const GgufKeys& keys, std::span<const WriteStep> steps,
                                 std::string_view name);

}  // namespace subbyte
