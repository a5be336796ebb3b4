#pragma once
// The cache of keys, values and states: pages of kPagePositions positions and states, which
// sequences own, share and give back. Each group of layers (ops/cache_layout.h) has its own. A page
// holds all layers and heads of the group:
//
//   page   [layer][kv_head][key, value][position in the page][head_dim]      or keys alone
//   state  [layer][state_size]
//
// In e4m3 the elements of a key, or of a value, have a scale: those of the positions follow their
// elements (kernels/kv_e4m3.h says what they are), so that elements begin at multiples of 16 bytes
// where head_dim is one.
//
//   run    [128][head_dim] elements, [128] scales
//
// A sequence knows the pages of its positions by a table for each group:
//
//   positions   0 .. 127 | 128 .. 255 | 256 .. 300
//   table          7     |     2      |     9           of those that share the last page the first
//   window         -     |     4      |     1           goes on in it, and the others copy it
//
// Pages that lie before the window of their group go back when the steps up to there are settled. A
// state is written once, by the step that ends at its position, and read by the next; so sharing
// one, or taking a step back, is a matter of who owns which. The cache of prefixes
// (ops/prefix_cache.h) is one more owner.
//
// This file is bookkeeping on the host; the bytes belong to the backend that made the pool. One
// thread at a time uses a pool and its sequences.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/cache_layout.h"

namespace subbyte {

/// No page, or no state.
inline constexpr int32_t kNoPage = -1;

/// Keys and values of a group of layers.
struct KvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Element type = Element::kF32;
  bool keys_alone = false;

  int64_t element_bytes() const { return subbyte::element_bytes(type); }
  /// Bytes of the scale of one position; 0: there are none.
  int64_t scale_bytes() const { return type == Element::kE4M3 ? 1 : 0; }
  /// Elements of the keys, or of the values, of one head and layer in one page: after them are the
  /// scales.
  int64_t elements_bytes() const { return kPagePositions * head_dim * element_bytes(); }
  int64_t run_bytes() const { return elements_bytes() + kPagePositions * scale_bytes(); }
  int64_t head_bytes() const { return (keys_alone ? 1 : 2) * run_bytes(); }
  int64_t layer_bytes() const { return kv_heads * head_bytes(); }
  int64_t page_bytes() const { return layers * layer_bytes(); }
  int64_t bytes_per_position() const { return page_bytes() / kPagePositions; }
};

inline KvShape kv_shape(const CacheGroup& group, Element type) {
  return {group.layers, group.kv_heads, group.head_dim, type, group.keys_alone};
}

/// Where the bytes of a group are.
class KvMemory {
 public:
  virtual ~KvMemory() = default;
  /// The memory of one rank, where each has heads of its own (src/parallel/).
  virtual KvMemory& of_rank(int) { return *this; }
  /// Copies the first `positions` positions of a page, all layers and heads.
  virtual void copy_page(int32_t from, int32_t to, int64_t positions) = 0;
};

/// The pages or the states of one group.
class KvGroup {
 public:
  KvGroup(const CacheGroup& layout, int64_t num_units, std::unique_ptr<KvMemory> memory);

  const CacheGroup& layout() const { return layout_; }
  int64_t num_units() const { return static_cast<int64_t>(owners_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  /// Those that are kept and that no sequence has, and those that sequences have.
  int64_t num_idle() const { return num_idle_; }
  int64_t num_held() const { return num_units() - num_free() - num_idle(); }
  /// For the backend that made it.
  KvMemory& memory() const { return *memory_; }

  bool is_shared(int32_t unit) const { return owners_[unit] > 1; }
  /// The cache of prefixes is one more owner of a unit, or one less.
  void keep(int32_t unit);
  void drop(int32_t unit);

 private:
  friend class Sequence;

  int32_t take();  // a free one, of which there is one, with one owner
  void share(int32_t unit);
  void give_back(int32_t unit);

  CacheGroup layout_;
  std::unique_ptr<KvMemory> memory_;
  std::vector<int32_t> owners_;  // of each
  std::vector<int32_t> filled_;  // positions of each page that a step was to write
  std::vector<int32_t> free_;    // the one that was given back last is used first
  std::vector<bool> is_kept_;
  int64_t num_idle_ = 0;
};

class KvPool {
 public:
  /// A group for each of the layout.
  KvPool(CacheLayout layout, Element type, const CacheSize& size, std::vector<KvGroup> groups)
      : layout_(std::move(layout)), type_(type), size_(size), groups_(std::move(groups)) {}

  const CacheLayout& layout() const { return layout_; }
  Element type() const { return type_; }
  std::span<const KvGroup> groups() const { return groups_; }
  std::span<KvGroup> groups() { return groups_; }
  /// Says whether so many positions have the angles of long texts (CacheLayout::long_after).
  bool is_long(int64_t length) const {
    return layout_.long_after > 0 && length > layout_.long_after;
  }
  /// Positions that a sequence alone can have.
  int64_t max_positions() const { return kv_pages(size_.positions) * kPagePositions; }
  /// Bytes of all pages and states, and of those that sequences have.
  int64_t total_bytes() const;
  int64_t held_bytes() const;

 private:
  friend class Sequence;

  CacheLayout layout_;
  Element type_;
  CacheSize size_;
  std::vector<KvGroup> groups_;
};

/// Pages or a state of a group, of the first positions of a text.
struct KvPrefix {
  std::vector<int32_t> pages{};  // kNoPage before a window
  int32_t state = kNoPage;       // after the last of these positions
};

/// A sequence that another process keeps: what its next step reads.
struct SequenceTables {
  struct Group {
    std::vector<int32_t> pages{};
    int32_t state = kNoPage;
    int32_t next_state = kNoPage;
  };

  int64_t length = 0;
  bool is_long = false;
  std::vector<Group> groups{};
};

/// The pages and states of one conversation.
class Sequence {
 public:
  /// States that a sequence owns at most: of its settled length, and of two steps after it.
  static constexpr int64_t kMaxStates = 3;

  /// At most `max_length` positions, and as many unless begin() says otherwise. The pool must
  /// outlive the sequence and stay where it is.
  Sequence(KvPool& pool, int64_t max_length);
  Sequence(Sequence&& other) noexcept;
  Sequence& operator=(Sequence&& other) noexcept;
  ~Sequence() {
    if (!is_mirror_) release(0);
  }

  /// A sequence of another process, as it is before its next step. It owns nothing of `pool`.
  static Sequence mirror(KvPool& pool, const SequenceTables& tables);

  /// Positions that are filled, and how many there may be.
  int64_t length() const { return length_; }
  int64_t max_length() const { return max_length_; }
  KvPool& pool() const { return *pool_; }
  /// Tells whether it owns nothing of the pool.
  bool is_empty() const;

  /// The pages of the positions from 0 on; the last ones may be empty so far, the first ones of a
  /// group with a window kNoPage.
  std::span<const int32_t> pages(int32_t group) const { return tables_[group].pages; }
  /// The state at the end of what is filled, kNoPage where nothing is, and the one that the next
  /// step writes, after reserve().
  int32_t state(int32_t group) const;
  int32_t next_state(int32_t group) const { return tables_[group].next_state; }
  /// The state after so many positions, kNoPage where there is none any more.
  int32_t state_at(int32_t group, int64_t length) const;

  /// Tells whether a sequence can be cut back to `length`, or share it: all that a token after it
  /// sees is still there.
  bool holds(int64_t length) const;

  /// Another sequence with the first `length` positions of this one, which share their pages; with
  /// none where this one does not hold that length.
  Sequence share(int64_t length) const;
  /// Forgets everything, and shares the first `length` positions of a text that others have: all of
  /// its groups that a token after them sees. `is_long`: that text has the angles of long ones.
  void begin_with(int64_t length, std::span<const KvPrefix> groups, bool is_long);

  /// Makes room for `tokens` more positions that this sequence alone may write to.
  /// Codes: model.context_full beyond max_length; kv.given_back after a cut to a length that it
  /// does not hold; kv.no_pages when the pool has too few. Then the sequence and the pool are as
  /// before.
  Status reserve(int64_t tokens);
  /// Pages or states of a group that the pool lacks for that now, and for `spare` more.
  int64_t missing(int32_t group, int64_t tokens, int64_t spare = 0) const;

  /// Marks `tokens` positions as filled, for which there is room.
  void advance(int64_t tokens);
  /// Forgets everything. What comes now is a text of so many positions.
  void begin(int64_t length);
  /// Says whether that text has the angles of long ones (CacheLayout::long_after).
  bool is_long() const { return is_long_; }
  /// Forgets everything after the first `length` positions, which it holds.
  void truncate(int64_t length);
  /// The same, or everything where it does not hold that length: how many positions are left.
  int64_t rewind(int64_t length);

  /// The steps up to `length` will not be taken back: gives back what no token after them sees.
  void settle(int64_t length);

 private:
  struct State {
    int64_t length;  // positions that it is of
    int32_t state;
  };
  struct Table {
    std::vector<int32_t> pages;
    int64_t first_page = 0;     // those before were given back
    int64_t claimed = 0;        // where the positions end that it was to write last
    std::vector<State> states;  // by length
    int32_t next_state = kNoPage;
  };

  Status no_pages(int64_t tokens, const KvGroup& group, int64_t wanted) const;
  /// Units that `tokens` more positions take.
  int64_t wanted(const KvGroup& group, const Table& table, int64_t tokens) const;
  void grow(KvGroup& group, Table& table, int64_t tokens) const;
  bool copies(const KvGroup& group, const Table& table, int64_t tokens) const;
  /// Gives back all but the first `length` positions.
  void release(int64_t length);

  KvPool* pool_;
  int64_t max_length_;
  int64_t length_ = 0;
  bool is_long_;
  bool is_mirror_ = false;
  std::vector<Table> tables_;  // by group
};

}  // namespace subbyte
