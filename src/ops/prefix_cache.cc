#include "ops/prefix_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace subbyte {
namespace {

std::span<const int32_t> first_of(std::span<const int32_t> tokens, int64_t count) {
  return tokens.first(std::min<std::size_t>(tokens.size(), static_cast<std::size_t>(count)));
}

/// Most are equal as far as both go, of which memcmp() looks at many at once.
int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
  const std::size_t both = std::min(a.size(), b.size());
  if (both == 0 || std::memcmp(a.data(), b.data(), both * sizeof(int32_t)) == 0) {
    return static_cast<int64_t>(both);
  }
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

/// The first page that a token after so many positions sees.
int64_t first_seen(int64_t length, int64_t window) {
  return window == 0 ? 0 : std::max<int64_t>(0, length - window + 1) / kPagePositions;
}

template <typename T>
void to_end(std::list<T*>& used, typename std::list<T*>::iterator at) {
  used.splice(used.end(), used, at);
}

/// The first of those that may go; the others before it become the last.
template <typename T, typename MayGo>
T* find_oldest(std::list<T*>& used, const MayGo& may_go) {
  for (std::size_t left = used.size(); left > 0; --left) {
    if (may_go(*used.front())) return used.front();
    to_end(used, used.begin());
  }
  return nullptr;
}

/// Blocks that are looked at where several begin as a text goes on.
constexpr int64_t kMostAlike = 64;

}  // namespace

bool PrefixCache::Before::operator()(std::span<const int32_t> a, std::span<const int32_t> b) const {
  return std::ranges::lexicographical_compare(a, b);
}

PrefixCache::PrefixCache(KvPool& pool)
    : pool_(pool),
      has_states_(std::ranges::any_of(pool.layout().groups, &CacheGroup::is_state)),
      used_(pool.groups().size() + 1) {}

/// Those that begin like the tokens for the longest stand beside where these would be.
PrefixCache::Child PrefixCache::best_child(const Block& parent, std::span<const int32_t> tokens) {
  Child best;
  const auto look_at = [&](Blocks::const_iterator one) {
    const int64_t common = common_length(one->first, tokens);
    if (common > best.length) best = {one->second.get(), common};
  };
  const auto after = parent.children.lower_bound(tokens);
  if (after != parent.children.end()) look_at(after);
  if (after != parent.children.begin()) look_at(std::prev(after));
  return best;
}

/// What these tokens begin with is not after them. The last one before them that differs from them
/// at some token is after all that they begin with and that goes beyond there.
PrefixCache::Checkpoint* PrefixCache::longest_checkpoint(const Block& parent,
                                                         std::span<const int32_t> tokens) {
  while (true) {
    const auto after = parent.checkpoints.upper_bound(tokens);
    if (after == parent.checkpoints.begin()) return nullptr;
    const auto found = std::prev(after);
    const int64_t common = common_length(found->first, tokens);
    if (common == std::ssize(found->first)) return found->second.get();
    tokens = first_of(tokens, common);
  }
}

PrefixCache::Path PrefixCache::walk(const TextKind& kind, std::span<const int32_t> tokens) const {
  const auto has_pages = [&](const Block& block) {
    for (std::size_t group = 0; group + 1 < used_.size(); ++group) {
      if (window(group) > 0 && block.pages[group] == kNoPage) return false;
    }
    return true;
  };
  Path path;
  const auto root = roots_.find(kind);
  if (root == roots_.end()) return path;
  const Block* at = &root->second;
  while (path.length % kPagePositions == 0 && path.length < std::ssize(tokens)) {
    const auto rest = first_of(tokens.subspan(path.length), kPagePositions);
    std::vector<State> states;
    for (auto shorter = rest; Checkpoint* const one = longest_checkpoint(*at, shorter);) {
      const int64_t length = std::ssize(one->place->first);
      states.push_back({path.length + length, one});
      shorter = first_of(rest, length - 1);
    }
    path.states.insert(path.states.end(), states.rbegin(), states.rend());
    Child next = best_child(*at, rest);
    if (next.block == nullptr) break;
    // Of blocks that begin so for as long, one that has all pages of windows.
    auto same = at->children.lower_bound(first_of(rest, next.length));
    for (int64_t i = 0; i < kMostAlike && !has_pages(*next.block); ++i, ++same) {
      if (same == at->children.end() || common_length(same->first, rest) < next.length) break;
      if (has_pages(*same->second)) next.block = same->second.get();
    }
    path.blocks.push_back(next.block);
    path.length += next.length;
    at = next.block;
  }
  return path;
}

/// Says whether what a token after `length` positions sees is there, but for states. Of groups
/// without a window each block has its page.
bool PrefixCache::has_windows(const Path& path, int64_t length) const {
  for (std::size_t group = 0; group + 1 < used_.size(); ++group) {
    if (window(group) == 0) continue;
    for (int64_t page = first_seen(length, window(group)); page < kv_pages(length); ++page) {
      if (path.blocks[page]->pages[group] == kNoPage) return false;
    }
  }
  return true;
}

std::vector<KvPrefix> PrefixCache::prefix(const Path& path, const State& state) const {
  std::vector<KvPrefix> groups(used_.size() - 1);
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (is_state(group)) {
      groups[group].state = state.checkpoint->states[group];
      continue;
    }
    const int64_t first = first_seen(state.length, window(group));
    for (int64_t page = 0; page < kv_pages(state.length); ++page) {
      groups[group].pages.push_back(page < first ? kNoPage : path.blocks[page]->pages[group]);
    }
  }
  return groups;
}

PrefixCache::Found PrefixCache::attach(const TextKind& kind, std::span<const int32_t> tokens,
                                       Sequence& sequence) {
  const Path path = walk(kind, tokens);
  Found found;
  found.length_in_common = path.length;
  found.length_of_pages = path.length;
  while (found.length_of_pages > 0 && !has_windows(path, found.length_of_pages)) {
    found.length_of_pages = (found.length_of_pages - 1) / kPagePositions * kPagePositions;
  }
  State best{has_states_ ? 0 : found.length_of_pages};
  for (auto one = path.states.rbegin(); one != path.states.rend() && best.length == 0; ++one) {
    if (has_windows(path, one->length)) best = *one;
  }
  found.length = best.length;
  if (best.length == 0) {
    sequence.begin_with(0, {}, kind.is_long);
    return found;
  }
  sequence.begin_with(best.length, prefix(path, best), kind.is_long);
  use(path, best);
  return found;
}

/// Blocks are less recently used than those before them, so that those at their end go first.
void PrefixCache::use(const Path& path, const State& state) {
  for (auto block = path.blocks.rbegin(); block != path.blocks.rend(); ++block) {
    to_end(used_.back(), (*block)->uses.back());
  }
  for (std::size_t group = 0; group + 1 < used_.size(); ++group) {
    if (window(group) == 0) continue;
    for (int64_t page = first_seen(state.length, window(group)); page < kv_pages(state.length);
         ++page) {
      Block& block = *path.blocks[page];
      if (block.pages[group] != kNoPage) to_end(used_[group], block.uses[group]);
    }
  }
  if (state.checkpoint != nullptr) to_end(used_checkpoints_, state.checkpoint->use);
}

void PrefixCache::use(const TextKind& kind, std::span<const int32_t> tokens) {
  const Path path = walk(kind, tokens);
  State state{path.length};
  if (!path.states.empty()) state.checkpoint = path.states.back().checkpoint;
  use(path, state);
}

void PrefixCache::keep(const TextKind& kind, std::span<const int32_t> tokens,
                       const Sequence& sequence, bool has_checkpoint) {
  if (tokens.empty()) return;
  Block* parent = &roots_.try_emplace(kind).first->second;
  for (int64_t index = 0;; ++index) {
    const auto rest = tokens.subspan(index * kPagePositions);
    const auto own = first_of(rest, kPagePositions);
    Block& block = insert(*parent, own, index, sequence);
    if (rest.size() == own.size()) {
      if (has_checkpoint) keep_state(*parent, own, std::ssize(tokens), sequence);
      return;
    }
    parent = &block;
  }
}

PrefixCache::Block& PrefixCache::insert(Block& parent, std::span<const int32_t> tokens,
                                        int64_t index, const Sequence& sequence) {
  Child child = best_child(parent, tokens);
  const bool is_known = child.length == std::ssize(tokens);
  const auto size = [&] { return std::ssize(child.block->place->first); };
  if (is_known && size() > child.length) return *child.block;  // which has more
  if (child.block == nullptr || (!is_known && size() > child.length)) {
    const auto [place, is_new] =
        parent.children.emplace(Tokens(tokens.begin(), tokens.end()), std::make_unique<Block>());
    child.block = place->second.get();
    *child.block = {.parent = &parent, .place = place};
    child.block->pages.assign(used_.size() - 1, kNoPage);
    child.block->uses.resize(used_.size());
    child.block->uses.back() = used_.back().insert(used_.back().end(), child.block);
    ++counts_.pages;
  } else if (!is_known) {  // it ends before these do, and nothing comes after it
    auto node = parent.children.extract(child.block->place);
    node.key().assign(tokens.begin(), tokens.end());
    child.block->place = parent.children.insert(std::move(node)).position;
  }
  for (std::size_t group = 0; group + 1 < used_.size(); ++group) {
    if (is_state(group)) continue;
    const int32_t page = sequence.pages(static_cast<int32_t>(group))[index];
    const int32_t known = child.block->pages[group];
    // One that the cache alone has, beside the sequence's own of the same tokens, could not go as
    // long as the sequence has blocks after it.
    const bool is_double =
        known != kNoPage && page != kNoPage && !pool_.groups()[group].is_shared(known);
    if (!is_known || known == kNoPage || is_double) {
      set_page(*child.block, static_cast<int32_t>(group), page);
    }
  }
  return *child.block;
}

void PrefixCache::set_page(Block& block, int32_t group, int32_t page) {
  const int32_t before = std::exchange(block.pages[group], page);
  if (before == page) return;
  KvGroup& units = pool_.groups()[group];
  if (page != kNoPage) units.keep(page);
  if (before != kNoPage) units.drop(before);
  if (window(group) == 0) return;
  std::list<Block*>& used = used_[group];
  if (before == kNoPage) {
    block.uses[group] = used.insert(used.begin(), &block);
  } else if (page == kNoPage) {
    used.erase(block.uses[group]);
  }
}

void PrefixCache::keep_state(Block& parent, std::span<const int32_t> tokens, int64_t length,
                             const Sequence& sequence) {
  std::vector<int32_t> states(used_.size() - 1, kNoPage);
  for (std::size_t group = 0; group < states.size(); ++group) {
    if (!is_state(group)) continue;
    states[group] = sequence.state_at(static_cast<int32_t>(group), length);
    if (states[group] == kNoPage) return;
  }
  if (!has_states_) return;
  Checkpoint* known = longest_checkpoint(parent, tokens);
  if (known != nullptr && known->place->first.size() == tokens.size()) {
    return to_end(used_checkpoints_, known->use);
  }
  for (std::size_t group = 0; group < states.size(); ++group) {
    if (is_state(group)) pool_.groups()[group].keep(states[group]);
  }
  const auto [place, is_new] = parent.checkpoints.emplace(Tokens(tokens.begin(), tokens.end()),
                                                          std::make_unique<Checkpoint>());
  Checkpoint& made = *place->second;
  made = {.parent = &parent, .place = place, .states = std::move(states)};
  made.use = used_checkpoints_.insert(used_checkpoints_.end(), &made);
  ++counts_.checkpoints;
}

bool PrefixCache::evict(int32_t group) {
  const int64_t checkpoints = counts_.checkpoints;
  const bool has_gone = is_state(group)     ? evict_checkpoint(group)
                        : window(group) > 0 ? evict_of_window(group)
                                            : evict_block(group);
  counts_.evicted_pages += static_cast<int64_t>(has_gone && !is_state(group));
  counts_.evicted_checkpoints += checkpoints - counts_.checkpoints;
  return has_gone;
}

bool PrefixCache::evict_block(int32_t group) {
  const KvGroup& units = pool_.groups()[group];
  Block* const oldest = find_oldest(used_.back(), [&](const Block& block) {
    return block.children.empty() && !units.is_shared(block.pages[group]);
  });
  if (oldest == nullptr) return false;
  Block& parent = *oldest->parent;
  erase(*oldest);
  drop_if_empty(parent);
  return true;
}

bool PrefixCache::evict_of_window(int32_t group) {
  const KvGroup& units = pool_.groups()[group];
  // Sequences have few pages of a window; these stay where they are, in front.
  const auto oldest = std::ranges::find_if(
      used_[group], [&](const Block* one) { return !units.is_shared(one->pages[group]); });
  if (oldest == used_[group].end()) return false;
  Block* block = *oldest;
  set_page(*block, group, kNoPage);
  // Where all layers have windows, nothing is left of a block then.
  while (block->parent != nullptr && block->children.empty() &&
         std::ranges::all_of(block->pages, [](int32_t page) { return page == kNoPage; })) {
    erase(*std::exchange(block, block->parent));
  }
  drop_if_empty(*block);
  return true;
}

bool PrefixCache::evict_checkpoint(int32_t group) {
  const KvGroup& units = pool_.groups()[group];
  Checkpoint* const oldest = find_oldest(used_checkpoints_, [&](const Checkpoint& one) {
    return !units.is_shared(one.states[group]);
  });
  if (oldest == nullptr) return false;
  erase(*oldest);
  return true;
}

void PrefixCache::erase(Checkpoint& checkpoint) {
  for (std::size_t group = 0; group < checkpoint.states.size(); ++group) {
    if (is_state(group)) pool_.groups()[group].drop(checkpoint.states[group]);
  }
  used_checkpoints_.erase(checkpoint.use);
  --counts_.checkpoints;
  checkpoint.parent->checkpoints.erase(checkpoint.place);
}

/// Of a block without children; and the checkpoints in it that no other block has the pages of.
void PrefixCache::erase(Block& block) {
  for (std::size_t group = 0; group < block.pages.size(); ++group) {
    set_page(block, static_cast<int32_t>(group), kNoPage);
  }
  used_.back().erase(block.uses.back());
  --counts_.pages;
  Block& parent = *block.parent;
  const Tokens tokens = block.place->first;
  parent.children.erase(block.place);
  while (Checkpoint* const one = longest_checkpoint(parent, tokens)) {
    const Tokens& before = one->place->first;
    if (best_child(parent, before).length == std::ssize(before)) return;
    erase(*one);
  }
}

/// Of the kinds one that nothing is known of any more.
void PrefixCache::drop_if_empty(const Block& block) {
  if (block.parent != nullptr || !block.children.empty()) return;
  std::erase_if(roots_, [&](const auto& root) { return &root.second == &block; });
}

void PrefixCache::erase_below(Block& block) {
  for (Block* at = &block;;) {
    if (!at->children.empty()) {
      at = at->children.begin()->second.get();
    } else if (at != &block) {
      erase(*std::exchange(at, at->parent));
    } else {
      return;
    }
  }
}

void PrefixCache::forget(const TextKind& kind) {
  const auto root = roots_.find(kind);
  if (root == roots_.end()) return;
  erase_below(root->second);
  roots_.erase(root);
}

void PrefixCache::clear() {
  for (auto& [kind, root] : roots_) erase_below(root);
  roots_.clear();
}

}  // namespace subbyte
