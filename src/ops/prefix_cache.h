#pragma once
// Prefixes of texts whose pages and states stay in the cache, so that a text that begins alike
// computes only what comes after. A tree of blocks of a page of positions, each with its tokens:
//
//   [0 .. 127] --- [128 .. 255] -+- [256 .. 300]       a text of 301 positions
//                        :       +- [256 .. 383] ---   another, which is longer
//                     state at 200                     a checkpoint, where there are such groups
//
// The cache is one more owner of each page. Blocks are found by their tokens, which are compared
// whole, so that no text is taken for another. What is found is the longest prefix of which each
// group has what the next token sees: all pages, those of a window, a state. Only the last block of
// a text is filled in part; it grows with its page.
//
// The least recently used goes first where pages or states lack, but nothing that a sequence has,
// and a block after those that follow it. Pages of a window and states go by themselves, and first
// of all the pages of a window that no text is known to end or to go on after: else one long text
// would take those of all others.

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/kv_pool.h"

namespace subbyte {

/// Texts of different kinds share nothing.
struct TextKind {
  std::string salt{};    // that the client gave
  uint64_t request = 0;  // whose samples alone share it; 0: all
  bool is_long = false;  // it has the angles of long texts

  auto operator<=>(const TextKind&) const = default;
};

struct PrefixCounts {
  int64_t pages = 0;        // blocks that are kept
  int64_t checkpoints = 0;  // states that are kept
  int64_t evicted_pages = 0;
  int64_t evicted_checkpoints = 0;
};

class PrefixCache {
 public:
  /// The pool must outlive this, and sequences of it are nobody's business here.
  explicit PrefixCache(KvPool& pool);
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;
  ~PrefixCache() { clear(); }

  struct Found {
    int64_t length = 0;  // that the sequence holds
    /// As many as it would hold with a state there: a checkpoint is of use to the next then.
    int64_t length_of_pages = 0;
    /// As many as it has in common with a known text: pages of a window there are of use, too.
    int64_t length_in_common = 0;
  };

  /// Lets a sequence begin with what is known of the first of these tokens.
  Found attach(const TextKind& kind, std::span<const int32_t> tokens, Sequence& sequence);
  /// Keeps the pages of these tokens, which the sequence holds, has computed and will not take
  /// back; `has_checkpoint`: and the state after them.
  void keep(const TextKind& kind, std::span<const int32_t> tokens, const Sequence& sequence,
            bool has_checkpoint);
  /// Makes it the last that is evicted, and with it what a token after it sees.
  void use(const TextKind& kind, std::span<const int32_t> tokens);

  /// Frees one page or state of a group; false where there is none that it alone owns.
  bool evict(int32_t group);
  /// Forgets the texts of one kind, or of all.
  void forget(const TextKind& kind);
  void clear();

  const PrefixCounts& counts() const { return counts_; }
  /// Says whether a step has to end where a prefix is to be shared.
  bool has_states() const { return has_states_; }

 private:
  using Tokens = std::vector<int32_t>;
  struct Before {
    using is_transparent = void;
    bool operator()(std::span<const int32_t> a, std::span<const int32_t> b) const;
  };
  struct Block;
  struct Checkpoint;
  using Blocks = std::map<Tokens, std::unique_ptr<Block>, Before>;
  using Checkpoints = std::map<Tokens, std::unique_ptr<Checkpoint>, Before>;
  struct Block {
    Block* parent = nullptr;
    Blocks::iterator place{};      // among those of the parent
    std::vector<int32_t> pages{};  // by group
    Blocks children{};             // none begins another
    Checkpoints checkpoints{};     // that end in the next block; a child begins with each
    std::vector<std::list<Block*>::iterator> uses{};  // by group, and of all last
  };
  struct Checkpoint {
    Block* parent = nullptr;
    Checkpoints::iterator place{};
    std::vector<int32_t> states{};  // by group
    std::list<Checkpoint*>::iterator use{};
  };
  struct Child {
    Block* block = nullptr;
    int64_t length = 0;  // of the tokens that it begins with, too
  };
  struct State {
    int64_t length = 0;
    Checkpoint* checkpoint = nullptr;
  };
  struct Path {
    std::vector<Block*> blocks{};
    int64_t length = 0;
    std::vector<State> states{};  // on the way, the longest last
  };

  static Child best_child(const Block& parent, std::span<const int32_t> tokens);
  static Checkpoint* longest_checkpoint(const Block& parent, std::span<const int32_t> tokens);
  Path walk(const TextKind& kind, std::span<const int32_t> tokens) const;
  bool has_windows(const Path& path, int64_t length) const;
  std::vector<KvPrefix> prefix(const Path& path, const State& state) const;
  void use(const Path& path, const State& state);

  Block& insert(Block& parent, std::span<const int32_t> tokens, int64_t index,
                const Sequence& sequence);
  void set_page(Block& block, int32_t group, int32_t page);
  void keep_state(Block& parent, std::span<const int32_t> tokens, int64_t length,
                  const Sequence& sequence);
  bool evict_block(int32_t group);
  bool evict_of_window(int32_t group);
  bool evict_checkpoint(int32_t group);
  void erase(Block& block);
  void erase(Checkpoint& checkpoint);
  void drop_if_empty(const Block& block);
  void erase_below(Block& block);

  bool is_state(std::size_t group) const { return pool_.groups()[group].layout().is_state(); }
  int64_t window(std::size_t group) const { return pool_.groups()[group].layout().window; }

  KvPool& pool_;
  bool has_states_;
  std::map<TextKind, Block> roots_;
  // The least recently used first: of each group with a window the blocks that have a page of it,
  // in front those whose page use() was never for, and last all blocks.
  std::vector<std::list<Block*>> used_;
  std::list<Checkpoint*> used_checkpoints_;
  PrefixCounts counts_;
};

}  // namespace subbyte
