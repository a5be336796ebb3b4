// Tokens whose rotation is a part of attention against the two one after the other: the same bits,
// and the same keys and values in the cache.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "cpu_backend/heads.h"
#include "support/float_bits.h"
#include "support/isa_test.h"
#include "support/normal_numbers.h"
#include "support/random_matrix.h"

namespace subbyte {
namespace {

using testing::bits_of;

constexpr int64_t kSequences = 3;
constexpr int64_t kPages = 17;  // of each sequence

std::vector<float> random_floats(int64_t count, uint64_t seed) {
  return testing::random_inputs(1, count, testing::Contents::kReal, seed);
}

/// A token of each of some sequences, of which one is at its first position.
class Tokens {
 public:
  Tokens(const cpu::VectorKernels& kernels, const AttentionShape& shape, Element type,
         int64_t last_position)
      : type_(type),
        cache_(CpuKvMemory::create({1, shape.kv_heads, shape.head_dim, type}, kSequences * kPages)
                   .value()),
        qkv_(random_floats(kSequences * shape.qkv_size(), 1)),
        norms_(random_floats(2 * shape.head_dim, 2)),
        angles_(random_floats(kSequences * shape.head_dim, 3)) {
    op_.shape = shape;
    const int64_t positions[kSequences] = {last_position, 0, last_position / 3};
    for (int64_t i = 0; i < kSequences; ++i) {
      std::vector<int32_t>& pages = pages_[i];
      pages.resize(kPages);
      std::iota(pages.rbegin(), pages.rend(), static_cast<int32_t>(i * kPages));
      places_.push_back({positions[i], pages[positions[i] / kPagePositions]});
    }
    fill(kernels);
  }

  /// What attention gives, and afterwards attention over what is in the cache then.
  std::vector<uint32_t> results(Execution& run, bool together) const {
    const cpu::VectorKernels& kernels = *run.kernels().vectors;
    clear_places(kernels);
    std::vector<float> qkv = qkv_;
    const int64_t half = op_.shape.head_dim / 2;
    const auto angles = std::span(angles_);
    HeadOperands operands;
    operands.q_norm = std::span(norms_).first(op_.shape.head_dim);
    operands.k_norm = std::span(norms_).last(op_.shape.head_dim);
    operands.cos = angles.first(kSequences * half);
    operands.sin = angles.last(kSequences * half);
    operands.half = half;
    const RotatedRows rows(kernels, op_, qkv, operands, places_, *cache_, type_);
    std::vector<float> out(2 * kSequences * op_.shape.result_size());
    const KvLayer layer = cache_->layer(0);
    if (together) {
      attention_of_tokens(run, parts(qkv, out), layer, op_.shape, {},
                          [&](int64_t part, int64_t kv_head, bool stores, float* room) {
                            rows.prepare(part, kv_head, stores, room);
                          });
      EXPECT_EQ(bits_of(qkv), bits_of(qkv_)) << "the operands stay";
    }
    const auto after = std::span(out).subspan(kSequences * op_.shape.result_size());
    rows.run_all(run);
    attention(run, parts(qkv, after), op_.shape.qkv_size(), layer, op_.shape);
    if (!together) std::ranges::copy(after, out.begin());
    return bits_of(out);
  }

 private:
  /// Keys and values of all positions before those of the tokens.
  void fill(const cpu::VectorKernels& kernels) const {
    Random random(4);
    for (int64_t i = 0; i < kSequences; ++i) {
      for (int64_t position = 0; position < places_[i].position; ++position) {
        store(kernels, {position, pages_[i][position / kPagePositions]},
              [&] { return testing::normal_number(random); });
      }
    }
  }

  /// The positions of the tokens as they were before any run.
  void clear_places(const cpu::VectorKernels& kernels) const {
    for (const RowPlace& place : places_) store(kernels, place, [] { return 0.0f; });
  }

  /// Key and value of each head at a place.
  template <class F>
  void store(const cpu::VectorKernels& kernels, const RowPlace& place, F&& number) const {
    std::vector<float> head(op_.shape.head_dim);
    const auto store = [&](uint8_t* to, uint8_t* scale, int64_t offset) {
      std::ranges::generate(head, number);
      kernels.store_kv[static_cast<int>(type_)](to + offset, scale + offset, head.data(),
                                                op_.shape.head_dim);
    };
    const auto [position, page] = place;
    for (int64_t h = 0; h < op_.shape.kv_heads; ++h) {
      const int64_t offset = h * cache_->head_bytes();
      store(cache_->key(0, page, position), cache_->key_scale(0, page, position), offset);
      store(cache_->value(0, page, position), cache_->value_scale(0, page, position), offset);
    }
  }

  std::vector<AttentionPart> parts(std::span<const float> qkv, std::span<float> out) const {
    std::vector<AttentionPart> parts;
    for (int64_t i = 0; i < kSequences; ++i) {
      parts.push_back({qkv.data() + i * op_.shape.qkv_size(),
                       out.data() + i * op_.shape.result_size(), 1, places_[i].position,
                       pages_[i]});
    }
    return parts;
  }

  RotateOp op_;
  Element type_;
  std::unique_ptr<CpuKvMemory> cache_;
  std::vector<float> qkv_, norms_, angles_;
  std::vector<int32_t> pages_[kSequences];
  std::vector<RowPlace> places_;
};

AttentionShape shape_of(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t window = 0) {
  AttentionShape shape;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = head_dim;
  shape.scale = 0.1f;
  shape.window = window;
  return shape;
}

class AttentionOfTokens : public testing::IsaTest {};

TEST_P(AttentionOfTokens, has_the_bits_of_rotation_and_attention) {
  for (const Element type : {Element::kF32, Element::kF16, Element::kBF16, Element::kE4M3}) {
    for (const int64_t position : {0, 5, 127, 128, 700, 2100}) {
      for (const AttentionShape& shape :
           {shape_of(4, 2, 32), shape_of(16, 8, 64, 200), shape_of(64, 1, 16)}) {
        const Tokens tokens(*execution(1).kernels().vectors, shape, type, position);
        const std::vector<uint32_t> expected = tokens.results(execution(1), false);
        for (const int threads : {1, 3}) {
          EXPECT_EQ(tokens.results(execution(threads), true), expected)
              << position << ", " << shape.heads << " heads, " << threads << " threads";
        }
      }
    }
  }
}

SUBBYTE_FOR_EVERY_ISA(AttentionOfTokens);

}  // namespace
}  // namespace subbyte
