#include "kernels/blocks_c.h"

#include <array>
#include <string>

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

int fail_in_c(const char** error, const Error& what) noexcept {
  thread_local std::string last_error;
  const char* line = "not enough memory";
  try {
    last_error = what.message;
    line = last_error.c_str();
  } catch (const std::bad_alloc&) {  // not even for the line
  }
  if (error != nullptr) *error = line;
  return -1;
}

Status check_addresses(std::initializer_list<NamedAddress> addresses) {
  for (const NamedAddress& one : addresses) {
    if (one.address != nullptr) continue;
    return Error{"c.null", std::string(one.name) + ": expected an address, found NULL"};
  }
  return {};
}

namespace {

Status sizes_of(const SubbyteBlocks* blocks, SubbyteBlocksSizes* sizes) {
  SUBBYTE_CHECK(check_addresses({{"blocks", blocks}, {"sizes", sizes}}));
  SUBBYTE_TRY(const BlockQuantization found, blocks_of(*blocks));
  *sizes = {found.padded_cols(), found.code_bytes(), found.scale_rows(), found.scale_cols()};
  return {};
}

Status quantize(const SubbyteBlocks* blocks, const void* x, void* codes, void* scales,
                int threads) {
  SUBBYTE_CHECK(check_addresses({{"blocks", blocks}}));
  SUBBYTE_TRY(const BlockQuantization found, blocks_of(*blocks));
  SUBBYTE_CHECK(check_buffers(found, x, codes, scales));
  SUBBYTE_TRY(const cpu::Kernels* const kernels, cpu::select_kernels());
  ThreadPool pool(threads);
  return cpu::quantize_blocks(found, x, codes, scales, *kernels, pool);
}

}  // namespace

Status check_buffers(const BlockQuantization& blocks, const void* x, const void* codes,
                     const void* scales) {
  static const char kNothing = 0;  // in the place of what has no bytes
  return check_addresses(
      {{"x", blocks.rows * blocks.cols > 0 ? x : &kNothing},
       {"codes", blocks.code_bytes() > 0 ? codes : &kNothing},
       {"scales", blocks.scale_rows() * blocks.scale_cols() > 0 ? scales : &kNothing}});
}

}  // namespace subbyte

int subbyte_blocks_sizes(const SubbyteBlocks* blocks, SubbyteBlocksSizes* sizes,
                         const char** error) {
  return subbyte::run_in_c(error, [&] { return subbyte::sizes_of(blocks, sizes); });
}

int subbyte_quantize_blocks(const SubbyteBlocks* blocks, const void* x, void* codes, void* scales,
                            int threads, const char** error) {
  return subbyte::run_in_c(error,
                           [&] { return subbyte::quantize(blocks, x, codes, scales, threads); });
}
