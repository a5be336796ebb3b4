// The cache of prefixes and its pool: sequences that come, share, compute, are cancelled and end,
// while pages and states go. The input says the groups of the cache, and what happens; it is
// compared with a list of all texts that were kept.

#include <list>

#include "fuzz/fuzz.h"
#include "ops/prefix_cache.h"
#include "tests/support/text_pool.h"

using namespace subbyte;
using testing::TextPool;
using Tokens = std::vector<int32_t>;

namespace {

constexpr CacheGroup kAll = {.layers = 1, .kv_heads = 1, .head_dim = 1};
constexpr CacheGroup kWindow = {.layers = 1, .kv_heads = 1, .head_dim = 1, .window = 150};
constexpr CacheGroup kState = {.layers = 1, .state_size = 4};
const std::vector<CacheGroup> kLayouts[] = {
    {kAll}, {kAll, kWindow}, {kAll, kState}, {kWindow, kAll, kState, kState}, {kWindow}, {kState}};
constexpr std::size_t kMaxTexts = 40;
constexpr std::size_t kMaxRunning = 6;

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool is_over() const { return bytes_.empty(); }
  std::size_t below(std::size_t limit) {
    if (bytes_.empty() || limit < 2) return 0;
    std::size_t number = bytes_[0];
    bytes_ = bytes_.subspan(1);
    if (limit > 256 && !bytes_.empty()) {
      number = number << 8 | bytes_[0];
      bytes_ = bytes_.subspan(1);
    }
    return number % limit;
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct Running {
  Running(KvPool& pool, Tokens wanted) : text(std::move(wanted)), sequence(pool, 100000) {}
  Tokens text;
  Sequence sequence;
};

class Life {
 public:
  explicit Life(Input& input)
      : input_(input),
        layout_(kLayouts[input.below(std::size(kLayouts))]),
        pool_(layout_, 4 + static_cast<int64_t>(input.below(30))),
        cache_(std::in_place, *pool_.pool) {}

  void run() {
    while (!input_.is_over()) {
      happen();
      check_units();
    }
    running_.clear();
    cache_.reset();
    for (const KvGroup& group : pool_.pool->groups()) {
      fuzz::require(group.num_free() == group.num_units(), "nobody owns anything in the end");
    }
  }

 private:
  void happen() {
    const std::size_t what = input_.below(16);
    if (what < 4) return begin();
    if (what == 14) return forget();
    if (what == 15) return static_cast<void>(cache_->evict(group()));
    if (running_.empty()) return;
    auto one = std::next(running_.begin(), input_.below(running_.size()));
    if (what < 12) return compute(*one);
    if (what == 12) cache_->use({}, std::span(one->text).first(one->sequence.length()));
    running_.erase(one);
  }

  int32_t group() { return static_cast<int32_t>(input_.below(layout_.size())); }

  void forget() {
    cache_->clear();
    kept_.clear();
    kept_with_state_.clear();
  }

  void begin() {
    if (running_.size() == kMaxRunning) return;
    Tokens text;
    if (!texts_.empty()) {
      const Tokens& from = texts_[input_.below(texts_.size())];
      text.assign(from.begin(), from.begin() + input_.below(from.size() + 1));
    }
    for (std::size_t left = 1 + input_.below(300); left > 0; --left) {
      text.push_back(static_cast<int32_t>(left % 7 == 0 ? input_.below(2) : left % 2));
    }
    if (texts_.size() == kMaxTexts) texts_.erase(texts_.begin());
    texts_.push_back(text);
    Running& one = running_.emplace_back(*pool_.pool, std::move(text));
    const auto wanted = std::span(one.text).first(one.text.size() - 1);
    const PrefixCache::Found found = cache_->attach({}, wanted, one.sequence);
    fuzz::require(found.length == one.sequence.length(), "the length that is said");
    fuzz::require(
        found.length <= found.length_of_pages && found.length_of_pages <= found.length_in_common,
        "lengths in their order");
    fuzz::require(found.length <= longest_known(wanted), "nothing that was not kept");
    fuzz::require(pool_.is_right(one.sequence, one.text), "what is found is of the text");
  }

  /// As a list of all that was kept has it.
  int64_t longest_known(std::span<const int32_t> wanted) const {
    int64_t longest = 0;
    for (const Tokens& one : cache_->has_states() ? kept_with_state_ : kept_) {
      const int64_t common = std::ranges::mismatch(one, wanted).in1 - one.begin();
      if (!cache_->has_states() || common == std::ssize(one)) longest = std::max(longest, common);
    }
    return longest;
  }

  void compute(Running& one) {
    const int64_t left = std::ssize(one.text) - one.sequence.length();
    const int64_t tokens = std::min<int64_t>(left, 1 + static_cast<int64_t>(input_.below(150)));
    if (tokens == 0) return;
    for (int32_t group = 0; group < std::ssize(layout_); ++group) {
      while (one.sequence.missing(group, tokens) > 0) {
        if (!cache_->evict(group)) return;
      }
    }
    fuzz::require(pool_.compute(one.sequence, one.text, tokens), "room, and numbers of the text");
    const auto known = std::span(one.text).first(one.sequence.length());
    const bool has_checkpoint = input_.below(3) == 0;
    if (input_.below(4) > 0) {
      cache_->keep({}, known, one.sequence, has_checkpoint);
      kept_.emplace_back(known.begin(), known.end());
      if (has_checkpoint) kept_with_state_.push_back(kept_.back());
    }
    one.sequence.settle(one.sequence.length());
    fuzz::require(pool_.is_right(one.sequence, one.text), "what it has computed stays");
  }

  void check_units() const {
    for (const KvGroup& group : std::as_const(*pool_.pool).groups()) {
      fuzz::require(group.num_free() >= 0 && group.num_idle() >= 0 && group.num_held() >= 0,
                    "units are free, kept or held");
      if (running_.empty()) fuzz::require(group.num_held() == 0, "who has ended holds nothing");
    }
    for (const Running& one : running_) {
      fuzz::require(pool_.is_right(one.sequence, one.text), "nobody writes to what others see");
    }
  }

  Input& input_;
  const std::vector<CacheGroup>& layout_;
  TextPool pool_;
  std::optional<PrefixCache> cache_;
  std::list<Running> running_;
  std::vector<Tokens> texts_;
  std::vector<Tokens> kept_;
  std::vector<Tokens> kept_with_state_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size > 600) return 0;  // what comes after is like it
  Input input({data, size});
  Life(input).run();
  return 0;
}
