#pragma once
// Groups of tokens by MXFP4 experts with random codes, as the C interface has them described.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "foreign_layouts/flashinfer.h"
#include "support/c_handles.h"

namespace subbyte::testing {

/// Codes from `first` on, so many of them.
struct CodeRange {
  int first = 0;
  int count = 256;
};

inline std::vector<std::byte> random_codes(int64_t size, CodeRange range, uint64_t seed) {
  Random random(seed);
  std::vector<std::byte> codes(size);
  for (std::byte& code : codes) {
    code = static_cast<std::byte>(range.first + static_cast<int>(random.below(range.count)));
  }
  return codes;
}

struct CGroupProblem {
  CGroupProblem(std::vector<int32_t> begins, int64_t outputs, int64_t inputs, CodeRange of_a,
                CodeRange of_scales)
      : m_indptr(std::move(begins)),
        n(outputs),
        k(inputs),
        a(random_codes(m() * k, of_a, 1)),
        a_scale(random_codes(flashinfer_group_row(m_indptr, groups()) * k / 32, of_scales, 2)),
        b(random_codes(groups() * n * k / 2, {}, 3)),
        b_scale(random_codes(groups() * ((n + 127) / 128 * 128) * k / 32, of_scales, 4)),
        out(m() * n * 2) {}

  int64_t groups() const { return std::ssize(m_indptr) - 1; }
  int64_t m() const { return m_indptr.back(); }

  subbyte_group_weights weights() const {
    auto w = c_struct<subbyte_group_weights>();
    w.b = b.data();
    w.b_scale = b_scale.data();
    w.b_bytes = std::ssize(b);
    w.b_scale_bytes = std::ssize(b_scale);
    w.groups = groups();
    w.n = n;
    w.k = k;
    return w;
  }
  subbyte_group_call call() {
    auto c = c_struct<subbyte_group_call>();
    c.a = a.data();
    c.a_scale = a_scale.data();
    c.m_indptr = m_indptr.data();
    c.out = out.data();
    c.m = m();
    c.a_bytes = std::ssize(a);
    c.a_scale_bytes = std::ssize(a_scale);
    c.out_bytes = std::ssize(out);
    return c;
  }

  std::vector<int32_t> m_indptr;
  int64_t n;
  int64_t k;
  std::vector<std::byte> a, a_scale, b, b_scale;
  std::vector<std::byte> out;  // [m][n] of 16 bits
};

}  // namespace subbyte::testing
