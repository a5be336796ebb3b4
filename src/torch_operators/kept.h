#pragma once
// Matrices that operators make of the tensors of others, kept so that the next call with the same
// tensors need not make them again: words of Marlin, tiles of aten, nibbles of bitsandbytes.
//
// A matrix is found by the addresses, types and sizes of its tensors. It holds on to their memory,
// so that no other tensor can come to lie there; and it is made again when torch's counter says
// that one was written to, or, as tensors of inference mode have no counter, when a checksum of its
// bytes is another one.
// Nothing sees what was written in inference mode to memory of a GPU.
// Tensors that had to be copied because they were not contiguous are not kept.
//
// What no call has used for a long time is let go, and the oldest first when all of it, with the
// tensors that it holds on to in host memory, takes more than three quarters of that.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "matrix/matrix.h"
#include "subbyte/function_ref.h"
#include "torch_operators/tensor.h"

namespace subbyte::torch_operators {

/// How a matrix is made of its tensors: a word for that, a string literal, and every number and
/// text that decides a bit of it.
struct Recipe {
  const char* name = "";
  std::vector<int64_t> numbers;
  std::string text;

  bool operator==(const Recipe&) const = default;
};

/// An object that is kept, and the bytes that it takes.
struct Kept {
  std::shared_ptr<const void> object;
  int64_t bytes = 0;
};

/// The object that `make` makes of `sources`, of which absent ones are nullptr. Code torch.capture
/// where it would have to be made of tensors of a GPU while a CUDA graph is captured there.
Result<std::shared_ptr<const void>> keep_object(const Recipe& recipe,
                                                std::span<const Tensor* const> sources,
                                                FunctionRef<Result<Kept>()> make);

/// The same of `make`, which returns a Result of a shared pointer to a T that has bytes().
template <typename T, typename Make>
Result<std::shared_ptr<const T>> keep_shared(const Recipe& recipe,
                                             std::span<const Tensor* const> sources,
                                             const Make& make) {
  SUBBYTE_TRY(auto kept, keep_object(recipe, sources, [&]() -> Result<Kept> {
                SUBBYTE_TRY(std::shared_ptr<const T> made, make());
                const int64_t bytes = made->bytes();
                return Kept{std::move(made), bytes};
              }));
  return std::static_pointer_cast<const T>(std::move(kept));
}

/// The same of a matrix of the host.
Result<std::shared_ptr<const Matrix>> keep(const Recipe& recipe,
                                           std::span<const Tensor* const> sources,
                                           FunctionRef<Result<Matrix>()> make);

/// Memory for a part of the view of `matrix`, which keeps it.
std::byte* allocate_part(Matrix& matrix, std::span<const std::byte>& part, int64_t size);

/// A copy of a tensor in memory of the host, where it may be already. `name` is a string literal.
Result<std::shared_ptr<const Matrix>> keep_on_host(const Tensor& tensor, const char* name);

/// Lets go of all of them.
void forget_all();

/// Bytes of all of them, and of the tensors of host memory that they hold on to.
int64_t kept_bytes();

}  // namespace subbyte::torch_operators
