#include "exchange/message.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace subbyte {
namespace {

// What most messages need no second broadcast for.
constexpr std::size_t kFirstBytes = 2048;

struct Head {
  uint64_t size;
  uint32_t kind;
};

constexpr std::size_t kErrorBytes = 512;

Error failed(const Exchange& exchange, int rank, const std::string& why) {
  return {"exchange.failed",
          "rank " + std::to_string(rank) + " of " + std::to_string(exchange.size()) + ": " + why};
}

}  // namespace

Status send(Exchange& exchange, uint32_t kind, const MessageWriter& message) {
  const std::span<const std::byte> bytes = message.bytes();
  std::vector<std::byte> first(kFirstBytes);
  Head head;
  std::memset(&head, 0, sizeof head);  // padding, too
  head.size = bytes.size();
  head.kind = kind;
  std::memcpy(first.data(), &head, sizeof head);
  const std::size_t count = std::min(bytes.size(), kFirstBytes - sizeof head);
  std::ranges::copy(bytes.first(count), first.begin() + sizeof head);
  SUBBYTE_CHECK(exchange.broadcast(first, 0));
  if (count == bytes.size()) return {};
  std::vector<std::byte> rest(bytes.begin() + static_cast<std::ptrdiff_t>(count), bytes.end());
  return exchange.broadcast(rest, 0);
}

Result<MessageReader> receive(Exchange& exchange) {
  std::vector<std::byte> first(kFirstBytes);
  SUBBYTE_CHECK(exchange.broadcast(first, 0));
  Head head;
  std::memcpy(&head, first.data(), sizeof head);
  std::vector<std::byte> bytes(head.size);
  const std::size_t count = std::min<std::size_t>(head.size, kFirstBytes - sizeof head);
  std::copy_n(first.begin() + sizeof head, count, bytes.begin());
  if (count < bytes.size()) SUBBYTE_CHECK(exchange.broadcast(std::span(bytes).subspan(count), 0));
  return MessageReader(head.kind, std::move(bytes));
}

Status agree_on(Exchange& exchange, std::string_view mine) {
  using Text = std::array<char, kMaxAlike + 1>;  // ends with 0
  std::array<Text, 1> own = {};
  mine.copy(own.front().data(), kMaxAlike);
  std::vector<Text> all(static_cast<std::size_t>(exchange.size()));
  SUBBYTE_CHECK(
      exchange.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all))));
  const auto other = std::ranges::find_if(all, [&](const Text& one) { return one != all.front(); });
  if (other == all.end()) return {};
  return failed(
      exchange, static_cast<int>(other - all.begin()),
      "expected what rank 0 is, " + std::string(all.front().data()) + ", found " + other->data());
}

Status agree(Exchange& exchange, const Status& mine) {
  std::vector<std::byte> own(kErrorBytes);
  if (!mine.ok()) {
    const std::string& text = mine.error().message;
    std::memcpy(own.data(), text.data(), std::min(text.size(), kErrorBytes - 2));
    own.back() = std::byte{1};
  }
  std::vector<std::byte> all(kErrorBytes * exchange.size());
  SUBBYTE_CHECK(exchange.all_gather(own, all));
  for (int rank = 0; rank < exchange.size(); ++rank) {
    const std::span<const std::byte> of_rank =
        std::span(all).subspan(rank * kErrorBytes, kErrorBytes);
    if (of_rank.back() == std::byte{0}) continue;
    if (rank == 0 && exchange.rank() == 0) return mine;
    return failed(exchange, rank, reinterpret_cast<const char*>(of_rank.data()));
  }
  return {};
}

Result<int64_t> least(Exchange& exchange, const Result<int64_t>& mine) {
  SUBBYTE_CHECK(agree(exchange, mine.ok() ? Status() : Status(mine.error())));
  std::vector<int64_t> all(static_cast<std::size_t>(exchange.size()));
  SUBBYTE_CHECK(exchange.all_gather(std::as_bytes(std::span(&mine.value(), 1)),
                                    std::as_writable_bytes(std::span(all))));
  return *std::ranges::min_element(all);
}

}  // namespace subbyte
