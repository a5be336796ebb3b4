#pragma once
// Messages of the first rank to all others, for ranks that are processes: what to load, and then
// what each step computes.
//
//   rank 0    send(kind, MessageWriter)        the others    receive(), MessageReader
//
// Kinds are those of who sends and receives them; kEndOfMessages ends them all.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "exchange/exchange.h"

namespace subbyte {

inline constexpr uint32_t kEndOfMessages = 0;

/// Bytes of numbers, of lists of them and of texts, one after the other.
class MessageWriter {
 public:
  template <class T>
  void add(const T& number) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto raw = std::bit_cast<std::array<std::byte, sizeof(T)>>(number);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  template <class T>
  void add_all(std::span<const T> numbers) {
    add(static_cast<uint64_t>(numbers.size()));
    const auto raw = std::as_bytes(numbers);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  void add_text(std::string_view text) { add_all(std::span(text)); }

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// A message, read in the order that it was written in. Beyond its end everything is 0 or empty.
class MessageReader {
 public:
  MessageReader(uint32_t kind, std::vector<std::byte> bytes)
      : kind_(kind), bytes_(std::move(bytes)) {}

  uint32_t kind() const { return kind_; }
  template <class T>
  T take() {
    T number{};
    const std::span<const std::byte> raw = next(sizeof(T));
    if (raw.size() == sizeof(T)) std::memcpy(&number, raw.data(), sizeof(T));
    return number;
  }
  template <class T>
  std::vector<T> take_all() {
    const auto count = take<uint64_t>();
    if (count > (bytes_.size() - begin_) / sizeof(T)) return {};
    std::vector<T> numbers(count);
    const std::span<const std::byte> raw = next(count * sizeof(T));
    if (count > 0) std::memcpy(numbers.data(), raw.data(), raw.size());
    return numbers;
  }
  std::string take_text() {
    const std::vector<char> text = take_all<char>();
    return {text.begin(), text.end()};
  }

 private:
  std::span<const std::byte> next(std::size_t size) {
    if (size > bytes_.size() - begin_) return {};
    begin_ += size;
    return std::span(bytes_).subspan(begin_ - size, size);
  }

  uint32_t kind_;
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

/// Sends from rank 0, while all others receive(). Codes: those of Exchange.
Status send(Exchange& exchange, uint32_t kind, const MessageWriter& message = {});
Result<MessageReader> receive(Exchange& exchange);

/// Tells all ranks whether each says the text of rank 0, of at most kMaxAlike bytes. Code
/// exchange.failed names the first that does not.
inline constexpr std::size_t kMaxAlike = 63;
Status agree_on(Exchange& exchange, std::string_view mine);

/// Tells all ranks how something went that each has done: the first error, with its rank. Code
/// exchange.failed, on rank 0 the code of its own error where that is the first.
Status agree(Exchange& exchange, const Status& mine);

/// The least of a number of each rank, where all have one. Codes: those of agree().
Result<int64_t> least(Exchange& exchange, const Result<int64_t>& mine);

}  // namespace subbyte
