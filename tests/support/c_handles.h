#pragma once
// Handles of the C interface as owners, for tests, and what tests of many functions share.

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "matrix/matrix.h"
#include "subbyte/subbyte.h"

namespace subbyte::testing {

/// A structure of the interface whose fields are 0.
template <typename T>
T c_struct() {
  T made;
  std::memset(&made, 0, sizeof made);
  made.struct_size = sizeof made;
  return made;
}

template <typename T, void (*kDestroy)(T*)>
struct CDeleter {
  void operator()(T* handle) const { kDestroy(handle); }
};
using CContext =
    std::unique_ptr<subbyte_context, CDeleter<subbyte_context, subbyte_context_destroy>>;
using CMatrix = std::unique_ptr<subbyte_matrix, CDeleter<subbyte_matrix, subbyte_matrix_destroy>>;
struct CFree {
  void operator()(void* memory) const { subbyte_free(memory); }
};
using CText = std::unique_ptr<char, CFree>;

inline CContext c_context(int threads = 2) {
  auto options = c_struct<subbyte_context_options>();
  options.num_threads = threads;
  subbyte_context* made = nullptr;
  EXPECT_EQ(subbyte_context_create(&options, &made), SUBBYTE_OK) << subbyte_last_error();
  return CContext(made);
}

/// The description of a canonical matrix.
inline subbyte_weights c_weights(const MatrixView& view) {
  constexpr int32_t kZeros[] = {SUBBYTE_NONE, SUBBYTE_U8,  SUBBYTE_U16, SUBBYTE_F16,
                                SUBBYTE_BF16, SUBBYTE_F32, SUBBYTE_U4,  SUBBYTE_U6};
  auto w = c_struct<subbyte_weights>();
  w.element = view.format.element == Format::kIQ4 ? int32_t{SUBBYTE_IQ4}
                                                  : static_cast<int32_t>(view.format.element);
  w.scale = static_cast<int32_t>(view.format.scale);
  w.zero = kZeros[static_cast<int>(view.format.zero)];
  w.group_size = view.format.group_size;
  w.rows = view.rows;
  w.cols = view.cols;
  w.codes = view.codes.data();
  w.scales = view.scales.data();
  w.zeros = view.zeros.data();
  w.input_order = view.input_order.empty() ? nullptr : view.input_order.data();
  w.codebook = view.codebook.empty() ? nullptr : view.codebook.data();
  w.tensor_scale = view.tensor_scale;
  return w;
}

inline CMatrix c_matrix(const CContext& context, const subbyte_weights& weights) {
  subbyte_matrix* made = nullptr;
  EXPECT_EQ(subbyte_matrix_create(context.get(), &weights, nullptr, &made), SUBBYTE_OK)
      << subbyte_last_error();
  return CMatrix(made);
}

/// "ok", or the code of the error.
inline std::string code_of(int result) {
  return result == SUBBYTE_OK ? "ok" : subbyte_last_error_code();
}

/// Calls a function with each of its pointers NULL in turn but those at the places `optional`: a
/// line says so, and nothing crashes.
template <typename... Args>
void expect_nulls_refused(const char* name, int (*function)(Args...), const std::set<int>& optional,
                          const std::tuple<Args...>& valid) {
  const auto try_one = [&]<std::size_t kPlace>(std::integral_constant<std::size_t, kPlace>) {
    using Arg = std::tuple_element_t<kPlace, std::tuple<Args...>>;
    if constexpr (std::is_pointer_v<Arg>) {
      if (optional.contains(static_cast<int>(kPlace))) return;
      std::tuple<Args...> arguments = valid;
      std::get<kPlace>(arguments) = nullptr;
      EXPECT_NE(std::apply(function, arguments), SUBBYTE_OK) << name << " argument " << kPlace;
      EXPECT_STREQ(subbyte_last_error_code(), "c.null") << name << " argument " << kPlace;
    }
  };
  [&]<std::size_t... kPlaces>(std::index_sequence<kPlaces...>) {
    (try_one(std::integral_constant<std::size_t, kPlaces>()), ...);
  }
  (std::index_sequence_for<Args...>());
}

}  // namespace subbyte::testing
