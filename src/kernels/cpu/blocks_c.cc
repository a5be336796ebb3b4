#include "kernels/blocks_c.h"

#include <array>
#include <new>
#include <string>
#include <system_error>

#include "base/quote.h"
#include "base/thread_pool.h"
#include "kernels/blocks_of_c.h"
#include "kernels/cpu/blocks.h"

namespace subbyte {
namespace {

/// Index of `name` among `names`; the first if it is nullptr and has a default.
template <std::size_t kCount>
Result<int> index_of(const char* what, const char* name,
                     const std::array<std::string_view, kCount>& names, bool has_default) {
  if (name == nullptr && has_default) return 0;
  std::string expected;
  for (std::size_t i = 0; i < kCount; ++i) {
    if (name != nullptr && names[i] == name) return static_cast<int>(i);
    expected += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return Error{"blocks.name", std::string(what) + ": expected one of " + expected + ", found " +
                                  (name == nullptr ? "NULL" : quote(name))};
}

constexpr std::array<std::string_view, 4> kFormats = {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp4", "nvfp4"};
constexpr std::array<std::string_view, 3> kInputs = {"f32", "f16", "bf16"};
constexpr std::array<std::string_view, 3> kLayouts = {"linear", "128x4", "8x4"};

}  // namespace

Result<BlockQuantization> blocks_of(const SubbyteBlocks& c) {
  SUBBYTE_TRY(const int format, index_of("format", c.format, kFormats, false));
  SUBBYTE_TRY(const int input, index_of("input", c.input, kInputs, false));
  SUBBYTE_TRY(const int layout, index_of("layout", c.layout, kLayouts, true));
  BlockQuantization blocks;
  if (c.rule != nullptr) {
    SUBBYTE_TRY(blocks.rule, find_scale_rule(c.rule));
  }
  blocks.format = static_cast<BlockFormat>(format);
  blocks.input = find_format(kInputs[input])->id;
  blocks.layout = static_cast<ScaleLayout>(layout);
  blocks.rows = c.rows;
  blocks.cols = c.cols;
  blocks.alignment = c.alignment;
  blocks.tensor_scale = c.tensor_scale;
  SUBBYTE_CHECK(check_block_quantization(blocks));
  return blocks;
}

int fail_in_c(const char** error, const Error& what) {
  thread_local std::string last_error;
  last_error = what.message;
  if (error != nullptr) *error = last_error.c_str();
  return -1;
}

}  // namespace subbyte

int subbyte_blocks_sizes(const SubbyteBlocks* blocks, SubbyteBlocksSizes* sizes,
                         const char** error) {
  const auto found = subbyte::blocks_of(*blocks);
  if (!found) return subbyte::fail_in_c(error, found.error());
  *sizes = {found->padded_cols(), found->code_bytes(), found->scale_rows(), found->scale_cols()};
  return 0;
}

int subbyte_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes, void* scales,
                            int threads, const char** error) try {
  const auto found = subbyte::blocks_of(*blocks);
  if (!found) return subbyte::fail_in_c(error, found.error());
  const auto kernels = subbyte::cpu::select_kernels();
  if (!kernels) return subbyte::fail_in_c(error, kernels.error());
  subbyte::ThreadPool pool(threads);
  const auto status = subbyte::cpu::quantize_blocks(*found, x, codes, scales, **kernels, pool);
  return status.ok() ? 0 : subbyte::fail_in_c(error, status.error());
} catch (const std::bad_alloc&) {
  return subbyte::fail_in_c(error, {"blocks.out_of_memory", "quantize: no memory"});
} catch (const std::system_error&) {
  return subbyte::fail_in_c(error, {"blocks.threads", "quantize: no threads"});
}
