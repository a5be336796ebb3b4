#pragma once
// The cache of keys and values: pages of kKvPagePositions positions, which sequences own, share and
// give back. A page holds all layers and heads of its positions:
//
//   page   [layer][kv_head][key, value][position in the page][head_dim]
//
// In e4m3 the elements of a key, or of a value, have a scale: those of the positions follow their
// elements (kernels/kv_e4m3.h says what they are), so that elements begin at multiples of 16 bytes
// where head_dim is one.
//
//   run    [128][head_dim] elements, [128] scales
//
// A sequence knows the pages of its positions by a table:
//
//   positions   0 .. 127 | 128 .. 255 | 256 .. 300
//   table          7     |     2      |     9            a page that several sequences share is
//                                                        copied by the first that writes to it
//
// This file is bookkeeping on the host; the bytes belong to the backend that made the pool. One
// thread at a time uses a pool and its sequences.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"

namespace subbyte {

inline constexpr int64_t kKvPagePositions = 128;

/// The type that keys and values are stored in.
enum class KvType : uint8_t { kF32, kF16, kBF16, kE4M3 };

struct KvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  KvType type = KvType::kF32;

  int64_t element_bytes() const { return type == KvType::kF32 ? 4 : type == KvType::kE4M3 ? 1 : 2; }
  /// Of one position; 0: there are none.
  int64_t scale_bytes() const { return type == KvType::kE4M3 ? 1 : 0; }
  /// Elements of the keys, or of the values, of one head and layer in one page: after them are the
  /// scales.
  int64_t elements_bytes() const { return kKvPagePositions * head_dim * element_bytes(); }
  int64_t run_bytes() const { return elements_bytes() + kKvPagePositions * scale_bytes(); }
  int64_t page_bytes() const { return 2 * layers * kv_heads * run_bytes(); }
  int64_t bytes_per_position() const { return page_bytes() / kKvPagePositions; }
};

/// Pages that hold `positions` positions of one sequence.
int64_t kv_pages(int64_t positions);

/// Where the bytes of the pages are.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  /// Copies the first `positions` positions of a page, all layers and heads.
  virtual void copy_page(int32_t from, int32_t to, int64_t positions) = 0;
};

class KvPool {
 public:
  KvPool(const KvShape& shape, int64_t num_pages, std::unique_ptr<KvMemory> memory);

  const KvShape& shape() const { return shape_; }
  int64_t num_pages() const { return static_cast<int64_t>(owners_.size()); }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  /// What one position takes in all layers.
  int64_t bytes_per_position() const { return shape_.bytes_per_position(); }
  /// For the backend that made it.
  KvMemory& memory() const { return *memory_; }

 private:
  friend class Sequence;

  int32_t take();  // a free page, of which there is one, with one owner
  void share(int32_t page) { ++owners_[page]; }
  void give_back(int32_t page);
  bool is_shared(int32_t page) const { return owners_[page] > 1; }

  KvShape shape_;
  std::unique_ptr<KvMemory> memory_;
  std::vector<int32_t> owners_;  // of each page
  std::vector<int32_t> free_;    // the one that was given back last is used first
};

/// The positions of one conversation.
class Sequence {
 public:
  /// At most `max_length` positions. The pool must outlive the sequence and
  /// stay where it is.
  Sequence(KvPool& pool, int64_t max_length) : pool_(&pool), max_length_(max_length) {}
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence() { truncate(0); }

  /// Positions that are filled, and how many there may be.
  int64_t length() const { return length_; }
  int64_t max_length() const { return max_length_; }
  KvPool& pool() const { return *pool_; }
  /// The pages of the positions from 0 on; the last ones may be empty so far.
  std::span<const int32_t> pages() const { return pages_; }

  /// Another sequence with the first `length` positions of this one, which share their pages.
  Sequence share(int64_t length) const;

  /// Makes room for `tokens` more positions that this sequence alone may write to.
  /// Codes: model.context_full beyond max_length; kv.no_pages when the pool has too few. Then
  /// the sequence and the pool are as before.
  Status reserve(int64_t tokens);
  /// Marks `tokens` positions as filled, for which there is room.
  void advance(int64_t tokens) { length_ += tokens; }
  /// Forgets everything after the first `length` positions.
  void truncate(int64_t length);

 private:
  Status no_pages(int64_t tokens, int64_t pages) const;

  KvPool* pool_;
  int64_t max_length_;
  int64_t length_ = 0;
  std::vector<int32_t> pages_;
};

}  // namespace subbyte
