#include "checkpoints/named_form.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/quote.h"
#include "base/thread_pool.h"
#include "formats/weight_format_text.h"

namespace subbyte {
namespace {

/// The format and the form with weights like `wanted`, or of an element alone, the usual one.
std::optional<NamedForm> maker_of(const WeightFormat& wanted) {
  for (const QuantizeFormat* const format : quantize_formats()) {
    if (!format->is_meant_by_text) continue;
    for (const int bits : format->bits) {
      for (const bool symmetric : {true, false}) {
        NamedForm named = {format, {bits, format->default_group, symmetric, Format::kNone}};
        if (!is_dense(wanted)) named.form.group_size = wanted.group_size;
        if (!check_form(*format, named.form).ok()) continue;
        const WeightFormat made = named.weights();
        if (is_dense(wanted) ? made.element == wanted.element : made == wanted) return named;
      }
    }
  }
  return std::nullopt;
}

/// What a text says that is no name of quantize_formats().
std::optional<NamedForm> form_of_text(std::string_view text) {
  const std::optional<WeightFormat> format = find_weight_format(text);
  if (!format || find_quantize_format(text) != nullptr) return std::nullopt;
  if (is_dense(*format) && text.starts_with('e')) return std::nullopt;  // which has several scales
  return maker_of(*format);
}

Error not_said(std::string_view code, std::string_view what, std::string_view text) {
  return Error{code, std::string(what) + ": expected that of " + quote(text) + ", or none"};
}

/// Checks what is asked for beside a text, which says it already.
Status check_asked(const NamedForm& said, bool says_group, const WeightQuantization& asked) {
  const QuantizeForm& form = said.form;
  const std::string& text = asked.format;
  if (asked.bits && *asked.bits != form.bits) return not_said("quantize.bits", "bits", text);
  if (asked.symmetric && *asked.symmetric != form.symmetric) {
    return not_said("quantize.symmetry", "symmetric", text);
  }
  if (says_group && asked.group_size &&
      group_size_of(*said.format, asked.group_size) != form.group_size) {
    return not_said("quantize.group_size", "group_size", text);
  }
  return {};
}

}  // namespace

Result<NamedForm> named_form(const WeightQuantization& asked, int64_t cols,
                             ElsewhereFormat elsewhere) {
  const std::string& name = asked.format;
  std::optional<NamedForm> named = form_of_text(name);
  const bool says_group = named && name.find(' ') != std::string_view::npos;
  if (named) {
    SUBBYTE_CHECK(check_asked(*named, says_group, asked));
  } else {
    SUBBYTE_TRY(const QuantizeFormat* const format,
                choose_quantize_format(name, asked.bits, elsewhere));
    named = {format,
             {asked.bits.value_or(format->default_bits), format->default_group,
              asked.symmetric.value_or(format->symmetry != Symmetry::kNever), Format::kNone}};
  }
  const QuantizeFormat& format = *named->format;
  int64_t& group = named->form.group_size;
  if (asked.group_size) {
    group = group_size_of(format, asked.group_size);
  } else if (!says_group && !format.short_groups) {
    while (group != 0 && cols % group != 0) {
      const std::optional<int64_t> half = half_group(format, group);
      if (!half) break;
      group = *half;
    }
  }
  SUBBYTE_CHECK(check_form(format, named->form));
  return *named;
}

Result<Matrix> quantize_named(const WeightQuantization& asked, int64_t rows, int64_t cols,
                              const RowReader& read_row, Executor& pool,
                              ElsewhereFormat elsewhere) {
  SUBBYTE_TRY(const NamedForm named, named_form(asked, cols, elsewhere));
  return quantize_one(*named.format, rows, cols, read_row, named.form, pool);
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::vector<std::string> weight_quantizations() {
  return quantize_format_names();
}

Result<Matrix> quantize_weights(std::span<const float> weights, int64_t rows, int64_t cols,
                                const WeightQuantization& quantization,
                                std::shared_ptr<Executor> threads) {
  constexpr int64_t kMaxSize = int64_t{1} << 24;
  const bool is_size = rows >= 1 && rows <= kMaxSize && cols >= 1 && cols <= kMaxSize;
  if (!is_size || std::ssize(weights) != rows * cols) {
    return Error{"quantize.shape", "expected weights [rows][cols], sizes up to 2^24, found " +
                                       std::to_string(weights.size()) + " for " +
                                       std::to_string(rows) + " and " + std::to_string(cols)};
  }
  const RowReader read_row = [&](int64_t row, float* out) {
    std::ranges::copy(weights.subspan(row * cols, cols), out);
  };
  const auto own = threads_or_own(std::move(threads));
  return quantize_named(quantization, rows, cols, read_row, *own);
}

SUBBYTE_END_NAMESPACE
