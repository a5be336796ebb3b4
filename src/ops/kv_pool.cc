#include "ops/kv_pool.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/checked.h"

namespace subbyte {

int64_t kv_pages(int64_t positions) {
  return ceil_div(positions, kKvPagePositions);
}

KvPool::KvPool(const KvShape& shape, int64_t num_pages, std::unique_ptr<KvMemory> memory)
    : shape_(shape), memory_(std::move(memory)), owners_(num_pages, 0), free_(num_pages) {
  std::iota(free_.rbegin(), free_.rend(), 0);  // page 0 is taken first
}

int32_t KvPool::take() {
  const int32_t page = free_.back();
  free_.pop_back();
  owners_[page] = 1;
  return page;
}

void KvPool::give_back(int32_t page) {
  if (--owners_[page] == 0) free_.push_back(page);
}

Sequence::Sequence(Sequence&& other) noexcept
    : pool_(other.pool_),
      max_length_(other.max_length_),
      length_(std::exchange(other.length_, 0)),
      pages_(std::exchange(other.pages_, {})) {}

Sequence& Sequence::operator=(Sequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(max_length_, other.max_length_);
  std::swap(length_, other.length_);
  std::swap(pages_, other.pages_);
  return *this;
}

Sequence Sequence::share(int64_t length) const {
  Sequence other(*pool_, max_length_);
  other.length_ = std::min(length, length_);
  other.pages_.assign(pages_.begin(), pages_.begin() + kv_pages(other.length_));
  for (const int32_t page : other.pages_) pool_->share(page);
  return other;
}

Status Sequence::no_pages(int64_t tokens, int64_t pages) const {
  return Error{"kv.no_pages", std::to_string(tokens) + " more positions need " +
                                  std::to_string(pages) +
                                  " more pages of the key-value cache, of which " +
                                  std::to_string(pool_->free_pages()) + " of " +
                                  std::to_string(pool_->num_pages()) + " are free"};
}

Status Sequence::reserve(int64_t tokens) {
  if (tokens > max_length_ - length_) {
    return Error{"model.context_full",
                 std::to_string(tokens) +
                     " tokens do not fit into the context: " + std::to_string(length_) + " of " +
                     std::to_string(max_length_) + " positions are used"};
  }
  // Only the page that the next position lies in can be shared: later ones are taken below.
  const int64_t filled = length_ % kKvPagePositions;
  const int64_t next = length_ / kKvPagePositions;
  const bool copies = tokens > 0 && filled > 0 && pool_->is_shared(pages_[next]);
  const int64_t grows = std::max<int64_t>(0, kv_pages(length_ + tokens) - std::ssize(pages_));
  // All or none, so that what cannot go on leaves the pages to others.
  if (grows + (copies ? 1 : 0) > pool_->free_pages()) return no_pages(tokens, grows + copies);
  if (copies) {
    const int32_t copy = pool_->take();
    pool_->memory().copy_page(pages_[next], copy, filled);
    pool_->give_back(pages_[next]);
    pages_[next] = copy;
  }
  for (int64_t i = 0; i < grows; ++i) pages_.push_back(pool_->take());
  return {};
}

void Sequence::truncate(int64_t length) {
  length_ = std::min(length, length_);
  while (std::ssize(pages_) > kv_pages(length_)) {
    pool_->give_back(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace subbyte
