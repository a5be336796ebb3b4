#pragma once
// A cache whose pages and states say of which text they are, so that whatever is shared, copied and
// given back can be compared with the text of the sequence that sees it.

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "ops/kv_pool.h"

namespace subbyte::testing {

/// Remembers of each position the text that it is of.
class TextMemory : public KvMemory {
 public:
  explicit TextMemory(int64_t units) : texts(units, std::vector<uint64_t>(kPagePositions)) {}
  void copy_page(int32_t from, int32_t to, int64_t positions) override {
    std::copy_n(texts[from].begin(), positions, texts[to].begin());
    ++num_copies;
  }
  std::vector<std::vector<uint64_t>> texts;
  int64_t num_copies = 0;
};

/// Of the tokens up to each.
inline std::vector<uint64_t> hashes(const std::vector<int32_t>& tokens) {
  std::vector<uint64_t> all;
  uint64_t hash = 0x79b9;
  for (const int32_t token : tokens) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0x100000001b3;
    all.push_back(hash);
  }
  return all;
}

/// A pool whose pages and states say what they are of.
class TextPool {
 public:
  TextPool(const std::vector<CacheGroup>& layout, int64_t units) {
    std::vector<KvGroup> groups;
    for (const CacheGroup& group : layout) {
      auto memory = std::make_unique<TextMemory>(units);
      memories.push_back(memory.get());
      groups.emplace_back(group, units, std::move(memory));
    }
    pool.emplace(CacheLayout{layout}, Element::kF32, CacheSize{units * kPagePositions},
                 std::move(groups));
  }

  /// As a step does, whose numbers follow from all tokens before.
  bool compute(Sequence& sequence, const std::vector<int32_t>& text, int64_t tokens) {
    if (!sequence.reserve(tokens).ok() || !is_right(sequence, text)) return false;
    const std::vector<uint64_t> known = hashes(text);
    for (std::size_t group = 0; group < memories.size(); ++group) {
      const auto index = static_cast<int32_t>(group);
      if (pool->groups()[group].layout().is_state()) {
        memories[group]->texts[sequence.next_state(index)][0] =
            known[sequence.length() + tokens - 1];
        continue;
      }
      for (int64_t at = sequence.length(); at < sequence.length() + tokens; ++at) {
        const int32_t page = sequence.pages(index)[at / kPagePositions];
        memories[group]->texts[page][at % kPagePositions] = known[at];
      }
    }
    sequence.advance(tokens);
    return true;
  }

  /// Says whether what the next token of a sequence sees is of its text.
  bool is_right(const Sequence& sequence, const std::vector<int32_t>& text) const {
    if (sequence.length() == 0) return true;
    if (!sequence.holds(sequence.length())) return false;
    const std::vector<uint64_t> known = hashes(text);
    for (std::size_t group = 0; group < memories.size(); ++group) {
      const auto index = static_cast<int32_t>(group);
      const CacheGroup& layout = pool->layout().groups[group];
      const auto& texts = memories[group]->texts;
      if (layout.is_state()) {
        if (texts[sequence.state(index)][0] != known[sequence.length() - 1]) return false;
        continue;
      }
      const int64_t first =
          layout.window == 0 ? 0 : std::max<int64_t>(0, sequence.length() - layout.window + 1);
      for (int64_t at = first; at < sequence.length(); ++at) {
        const int32_t page = sequence.pages(index)[at / kPagePositions];
        if (texts[page][at % kPagePositions] != known[at]) return false;
      }
    }
    return true;
  }

  std::vector<TextMemory*> memories;
  std::optional<KvPool> pool;
};

}  // namespace subbyte::testing
