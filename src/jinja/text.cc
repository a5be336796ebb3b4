#include "jinja/text.h"

#include <algorithm>

#include "jinja/characters.h"
#include "unicode/utf8.h"

namespace subbyte::jinja {
namespace {

constexpr std::size_t kPartsPerStep = 8;  // that are repeated

}  // namespace

std::size_t Text::length(Meter& meter) const {
  std::size_t length = length_.load(std::memory_order_relaxed);
  if (length == kUnknown) {
    length = count_characters(scan(meter));
    length_.store(length, std::memory_order_relaxed);
  }
  return length;
}

std::size_t Text::byte_of(Meter& meter, std::size_t index) const {
  constexpr std::size_t kMostBytes = 4;
  if (index >= size()) return size();
  if (length(meter) == size()) return index;
  return byte_of_character(bytes(meter, 0, std::min(size(), kMostBytes * index)), index);
}

OriginText Text::copy(Meter& meter) const {
  meter.check_output(size() + runs_.size() * sizeof(Run));
  OriginText result;
  result.reserve(size(), runs_.size());
  const std::string_view all = scan(meter);
  std::size_t begin = 0;
  for (const Run& run : runs()) {
    result.append(all.substr(begin, run.end - begin), run.origin);
    begin = run.end;
  }
  return result;
}

void TextBuilder::begin_run(Origin origin) {
  if (origin == origin_) return;
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), origin_});
  origin_ = origin;
}

void TextBuilder::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  begin_run(origin);
  bytes_ += bytes;
}

void TextBuilder::append(const Text& text, std::size_t begin, std::size_t end) {
  const std::span<const Text::Run> runs = text.runs();
  auto run = std::ranges::upper_bound(runs, begin, {}, &Text::Run::end);
  const std::string_view bytes = text.bytes_;
  while (begin < end) {
    const std::size_t stop = std::min(end, run->end);
    append(bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

void TextBuilder::repeat(std::string_view bytes, int64_t count, Origin origin) {
  if (count <= 0 || bytes.empty()) return;
  reserve(size() + meter_.checked_size(static_cast<std::size_t>(count), bytes.size()));
  begin_run(origin);
  if (bytes.size() == 1) {
    bytes_.append(static_cast<std::size_t>(count), bytes[0]);
    return;
  }
  meter_.step(static_cast<std::size_t>(count) / kPartsPerStep);
  for (int64_t i = 0; i < count; ++i) bytes_ += bytes;
}

void TextBuilder::repeat(const Text& text, int64_t count) {
  if (count <= 0 || text.empty()) return;
  if (text.runs().size() == 1) return repeat(std::string_view(text.bytes_), count, text.origin());
  reserve(size() + meter_.checked_size(static_cast<std::size_t>(count), text.size()));
  meter_.step(static_cast<std::size_t>(count) / kPartsPerStep);
  for (int64_t i = 0; i < count; ++i) append(text);
}

void TextBuilder::append_character(char32_t c, Origin origin) {
  begin_run(origin);
  utf8::append(bytes_, c);
}

void TextBuilder::mark_input() {
  runs_.clear();
  origin_ = Origin::kInput;
}

std::shared_ptr<const Text> TextBuilder::finish() {
  if (!runs_.empty()) runs_.push_back({bytes_.size(), origin_});
  return std::allocate_shared<const Text>(Allocator<Text>(meter_), Text::Key(), std::move(bytes_),
                                          std::move(runs_), origin_);
}

}  // namespace subbyte::jinja
