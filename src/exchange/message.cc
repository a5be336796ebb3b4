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
    const std::string text = reinterpret_cast<const char*>(of_rank.data());
    return Error{"exchange.failed", "rank " + std::to_string(rank) + " of " +
                                        std::to_string(exchange.size()) + ": " + text};
  }
  return {};
}

}  // namespace subbyte
