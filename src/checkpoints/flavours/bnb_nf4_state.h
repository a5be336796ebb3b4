#pragma once
// The JSON that bitsandbytes keeps in a tensor beside each 4-bit weight.

#include <numeric>
#include <optional>

#include "base/status.h"
#include "checkpoints/containers/tensor_source.h"

namespace subbyte {

inline constexpr std::string_view kBnbNf4State = ".weight.quant_state.bitsandbytes__nf4";
inline constexpr std::string_view kBnbFp4State = ".weight.quant_state.bitsandbytes__fp4";

struct BnbState {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t blocksize = 0;  // a power of two from 32 to 4096
  int64_t nested_blocksize = 0;
  std::optional<float> nested_offset;  // with double quantization

  /// Over all rows; the last may be short.
  int64_t blocks() const { return (rows * cols - 1) / blocksize + 1; }
  /// Length of the runs of a row's inputs that lie in one block: at least 8.
  int64_t group_size() const { return std::gcd(cols, blocksize); }
};

/// A power of two from 32 to 4096.
bool is_bnb_blocksize(int64_t size);

/// Codes: import.dtype, import.shape (also when rows are no multiples of 8), bnb_nf4.quant_type,
/// bnb_nf4.blocksize, json.*.
Result<BnbState> read_bnb_state(const FileTensor& tensor);

/// Text that bitsandbytes writes for a matrix without double quantization. The type that the
/// weights had before is not known here; bfloat16 is what most had.
std::string bnb_state_json(int64_t rows, int64_t cols, int64_t blocksize);

}  // namespace subbyte
