#pragma once
// Texts of values: bytes that know where they come from. They never change, and whoever looks at
// them pays.

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "jinja/characters.h"
#include "jinja/meter.h"
#include "jinja/origin_text.h"

namespace subbyte::jinja {

class Text {
 public:
  using Run = OriginText::Run;
  class Key {  // that builders have
    friend class TextBuilder;
    Key() = default;
  };

  Text(Key, Bytes bytes, List<Run> runs, Origin origin)
      : bytes_(std::move(bytes)), runs_(std::move(runs)), only_{bytes_.size(), origin} {}

  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// kInput where any byte is.
  Origin origin() const {
    return runs_.empty() && (empty() || only_.origin == Origin::kTemplate) ? Origin::kTemplate
                                                                           : Origin::kInput;
  }
  /// Runs in order, which cover all bytes; neighbours differ. A run has a byte at least.
  std::span<const Run> runs() const {
    if (!runs_.empty()) return runs_;
    return {&only_, only_.end > 0 ? 1U : 0U};
  }

  /// Charges a look at all bytes, or at those of a part.
  std::string_view bytes(Meter& meter) const { return bytes(meter, 0, size()); }
  std::string_view bytes(Meter& meter, std::size_t begin, std::size_t end) const {
    meter.look_at(end - begin);
    return std::string_view(bytes_).substr(begin, end - begin);
  }
  /// The same for what looks up each character in tables, or writes it by itself.
  std::string_view letters(Meter& meter) const {
    meter.look_up(size());
    return bytes_;
  }
  /// The same for what goes over the bytes without a look at each character.
  std::string_view scan(Meter& meter) const { return scan(meter, 0, size()); }
  std::string_view scan(Meter& meter, std::size_t begin, std::size_t end) const {
    meter.scan(end - begin);
    return std::string_view(bytes_).substr(begin, end - begin);
  }
  Character character(Meter& meter, std::size_t at) const {
    return character_at(bytes(meter, at, std::min(at + 4, size())), 0);
  }
  /// In characters. It is counted once.
  std::size_t length(Meter& meter) const;
  /// The byte where character `index` begins, or the end.
  std::size_t byte_of(Meter& meter, std::size_t index) const;

  /// A copy that outlives the meter.
  OriginText copy(Meter& meter) const;

 private:
  friend class TextBuilder;
  static constexpr std::size_t kUnknown = SIZE_MAX;

  Bytes bytes_;
  List<Run> runs_;  // none where there is only one
  Run only_;
  mutable std::atomic<std::size_t> length_ = kUnknown;  // texts of the template are shared
};

/// A text while it is made.
class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : meter_(meter), bytes_(meter), runs_(meter) {}

  std::size_t size() const { return bytes_.size(); }
  Meter& meter() { return meter_; }
  void reserve(std::size_t bytes) { bytes_.reserve(meter_.checked_size(bytes, 1)); }
  void append(std::string_view bytes, Origin origin);
  void append(const Text& text) { append(text, 0, text.size()); }
  /// Adds the bytes of `text` from `begin` up to `end`.
  void append(const Text& text, std::size_t begin, std::size_t end);
  /// Adds `bytes` so many times; a negative number is none.
  void repeat(std::string_view bytes, int64_t count, Origin origin);
  void repeat(const Text& text, int64_t count);
  void append_character(char32_t c, Origin origin);
  /// Counts all that is made as of the input.
  void mark_input();

  std::shared_ptr<const Text> finish();

 private:
  void begin_run(Origin origin);

  Meter& meter_;
  Bytes bytes_;
  List<Text::Run> runs_;  // but the last
  Origin origin_ = Origin::kTemplate;
};

}  // namespace subbyte::jinja
