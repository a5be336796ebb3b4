#include "checkpoints/containers/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/quote.h"
#include "base/utf8.h"
#include "checkpoints/containers/safetensors_codes.h"
#include "checkpoints/containers/safetensors_rules.h"
#include "json/events.h"

namespace subbyte {
namespace {

namespace codes = safetensors_codes;

/// Reads the header from the events of the JSON parser, without a tree of it in memory. Any value
/// where the format has none ends the parse, so nothing nests deeper than three levels.
class HeaderHandler final : public json::Events {
 public:
  explicit HeaderHandler(std::string_view where) : where_(where) {}

  bool null() override {
    // The reference reader takes "__metadata__": null for none.
    return (place_ == Place::kHeader && in_metadata_) || scalar("null");
  }
  bool boolean(bool value) override { return scalar(value ? "true" : "false"); }
  // The parser comes here for every number with a minus sign, -0 too.
  bool number_integer(int64_t value) override {
    return scalar(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_float(double, const std::string& text) override {
    return scalar(std::string_view(text).substr(0, 40));
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      if (num_dims_ == kMaxRank) {
        return fail_entry(codes::kRank,
                          fmt::format("expected at most {} dimensions, found more", kMaxRank));
      }
      dims_[num_dims_++] = value;
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (num_offsets_ == 2) return wrong_offsets("more than two");
      (num_offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return scalar(std::to_string(value));
  }

  bool string(std::string& value) override {
    if (place_ == Place::kMetadata) return add_metadata(value);
    if (place_ != Place::kEntry || field_ != Field::kDtype) return scalar(quote(value));
    const auto dtype = find_dtype(value);
    if (!dtype) return wrong_dtype(quote(value));
    entry_.dtype = *dtype;
    return true;
  }

  bool key(std::string& text) override {
    if (place_ == Place::kEntry) return begin_field(text);
    if (place_ == Place::kMetadata) {
      metadata_key_ = std::move(text);
      return true;
    }
    in_metadata_ = text == "__metadata__";
    if (in_metadata_) {
      if (metadata_seen_) return fail(codes::kDuplicateName, "\"__metadata__\" appears twice");
      metadata_seen_ = true;
      return true;
    }
    if (const Status status = check_tensor_name(text, where_); !status.ok()) {
      error_ = status.error();
      return false;
    }
    entry_.name = std::move(text);
    return true;
  }

  bool start_object() override {
    if (place_ == Place::kStart) {
      place_ = Place::kHeader;
    } else if (place_ == Place::kHeader && in_metadata_) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kHeader) {
      place_ = Place::kEntry;
      fields_ = 0;
    } else {
      return scalar("an object");
    }
    return true;
  }

  bool start_array() override {
    if (place_ != Place::kEntry || field_ == Field::kDtype) return scalar("an array");
    const bool is_shape = field_ == Field::kShape;
    place_ = is_shape ? Place::kShape : Place::kOffsets;
    (is_shape ? num_dims_ : num_offsets_) = 0;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && num_offsets_ != 2) {
      return wrong_offsets(num_offsets_ == 0 ? "none" : "one");
    }
    place_ = Place::kEntry;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry && !end_entry()) return false;
    place_ = place_ == Place::kHeader ? Place::kEnd : Place::kHeader;
    return true;
  }

  void syntax_error(std::string_view problem) override {
    if (place_ == Place::kEnd) {
      fail(codes::kTrailingText, "expected nothing but spaces after the header's '}'");
    } else {
      fail(codes::kJson, fmt::format("the header is not JSON: {}", problem));
    }
  }

  const std::optional<Error>& error() const { return error_; }
  SafetensorsHeader take() { return std::move(header_); }

 private:
  enum class Place { kStart, kHeader, kMetadata, kEntry, kShape, kOffsets, kEnd };
  enum class Field { kDtype, kShape, kOffsets };
  static constexpr std::array<std::string_view, 3> kFields = {"dtype", "shape", "data_offsets"};

  bool fail(std::string_view code, std::string_view problem) {
    error_ = Error{code, fmt::format("{}: {}", where_, problem)};
    return false;
  }

  bool fail_entry(std::string_view code, std::string_view problem) {
    return fail(code, fmt::format("tensor {}: {}", quote(entry_.name), problem));
  }

  bool wrong_dtype(std::string_view found) {
    return fail_entry(codes::kDtype, fmt::format("expected a known dtype, found {}", found));
  }

  bool wrong_offsets(std::string_view found) {
    return fail_entry(
        codes::kOffsets,
        fmt::format("expected two whole numbers below 2^64 as data_offsets, found {}", found));
  }

  /// A value that this place does not take.
  bool scalar(std::string_view found) {
    switch (place_) {
      case Place::kStart:
        return fail(codes::kNotObject,
                    fmt::format("expected an object as header, found {}", found));
      case Place::kMetadata:
        return fail(codes::kMetadata, fmt::format("__metadata__ {}: expected a string, found {}",
                                                  quote(metadata_key_), found));
      case Place::kHeader:
        if (in_metadata_) {
          return fail(codes::kMetadata,
                      fmt::format("__metadata__: expected an object of strings, found {}", found));
        }
        return fail_entry(codes::kEntryType, fmt::format("expected an object, found {}", found));
      case Place::kOffsets:
        return wrong_offsets(found);
      case Place::kEntry:
        if (field_ == Field::kDtype) return wrong_dtype(found);
        if (field_ == Field::kOffsets) return wrong_offsets(found);
        [[fallthrough]];
      default:
        return fail_entry(
            codes::kShape,
            fmt::format("expected whole numbers below 2^64 as shape, found {}", found));
    }
  }

  bool add_metadata(std::string& value) {
    // A duplicate would let two readers see two different files.
    const auto [at, added] =
        header_.metadata.try_emplace(std::move(metadata_key_), std::move(value));
    return added ||
           fail(codes::kMetadata, fmt::format("__metadata__ {}: appears twice", quote(at->first)));
  }

  bool begin_field(std::string_view text) {
    const auto* const found = std::ranges::find(kFields, text);
    if (found == kFields.end()) {
      return fail_entry(
          codes::kUnknownField,
          fmt::format("expected dtype, shape and data_offsets, found {}", quote(text)));
    }
    field_ = static_cast<Field>(found - kFields.begin());
    const unsigned mask = 1u << static_cast<unsigned>(field_);
    if ((fields_ & mask) != 0) {
      return fail_entry(codes::kDuplicateField, fmt::format("{} appears twice", text));
    }
    fields_ |= mask;
    return true;
  }

  bool end_entry() {
    for (std::size_t i = 0; i < kFields.size(); ++i) {
      if ((fields_ & (1u << i)) == 0) {
        return fail_entry(
            codes::kMissingField,
            fmt::format("expected dtype, shape and data_offsets, found no {}", kFields[i]));
      }
    }
    entry_.shape.assign(dims_.begin(), dims_.begin() + static_cast<std::ptrdiff_t>(num_dims_));
    const auto size = tensor_bytes(entry_.name, entry_.dtype, entry_.shape, where_);
    if (!size.ok()) {
      error_ = size.error();
      return false;
    }
    if (entry_.begin > entry_.end) {
      return fail_entry(
          codes::kOffsetRange,
          fmt::format("expected data_offsets in order, found [{}, {}]", entry_.begin, entry_.end));
    }
    if (entry_.end - entry_.begin != *size) {
      return fail_entry(codes::kSizeMismatch,
                        fmt::format("expected {} bytes for {} of {}, found {} in data_offsets "
                                    "[{}, {}]",
                                    *size, name(entry_.dtype), to_string(entry_.shape),
                                    entry_.end - entry_.begin, entry_.begin, entry_.end));
    }
    header_.tensors.push_back(std::exchange(entry_, {}));
    return true;
  }

  std::string_view where_;
  SafetensorsHeader header_;
  std::optional<Error> error_;

  Place place_ = Place::kStart;
  bool in_metadata_ = false;  // the key just read in the header was __metadata__
  bool metadata_seen_ = false;
  std::string metadata_key_;

  TensorEntry entry_;  // the one being read
  Field field_ = Field::kDtype;
  unsigned fields_ = 0;  // bit i: kFields[i] was seen
  std::array<uint64_t, kMaxRank> dims_{};
  std::size_t num_dims_ = 0;
  std::size_t num_offsets_ = 0;
};

/// What a file that is no safetensors file looks like, for the message alone: the bytes of a valid
/// header length may spell any of these, so nothing is ever decided by them.
std::string_view wrong_file_hint(std::span<const std::byte> head) {
  struct Row {
    std::string_view start;
    std::string_view hint;
  };
  static constexpr Row kRows[] = {
      {"version https://git-lfs", "a git-LFS pointer: git lfs pull fetches the file itself"},
      {"<!DOCTYPE", "an HTML page, perhaps an error message of a download"},
      {"<!doctype", "an HTML page, perhaps an error message of a download"},
      {"<html", "an HTML page, perhaps an error message of a download"},
      {"<HTML", "an HTML page, perhaps an error message of a download"},
      {"\x1f\x8b", "a gzip file: unpack it first"},
      {"PK\x03\x04", "a ZIP archive, as PyTorch writes; pickle files are not supported"},
      {"\x80\x02", "a pickle; pickle files are not supported"},
      {"\x80\x03", "a pickle; pickle files are not supported"},
      {"\x80\x04", "a pickle; pickle files are not supported"},
      {"\x80\x05", "a pickle; pickle files are not supported"},
      {"GGUF", "a GGUF file, which is not supported"},
      {"{", "JSON text: the length in front of the header is missing"},
  };
  const std::string_view text(reinterpret_cast<const char*>(head.data()),
                              std::min<std::size_t>(head.size(), 64));
  for (const Row& row : kRows) {
    if (text.starts_with(row.start)) return row.hint;
  }
  return {};
}

uint64_t read_u64(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

/// The text of the header, after the checks of the length in front of it.
Result<std::string_view> header_text(std::span<const std::byte> head, uint64_t file_size,
                                     std::string_view where) {
  const auto refuse = [&](std::string_view code, const std::string& problem) {
    return Error{code, fmt::format("{}: {}", where, problem)};
  };
  if (file_size < 8 || head.size() < 8) {
    return refuse(codes::kTooSmall, fmt::format("expected at least 8 bytes, found {}", file_size));
  }
  const uint64_t size = read_u64(head);
  if (size > kMaxHeaderBytes) {
    return refuse(codes::kHeaderTooLarge, fmt::format("expected a header of at most {} bytes, "
                                                      "found a length of {}",
                                                      kMaxHeaderBytes, size));
  }
  const uint64_t available = std::min<uint64_t>(file_size, head.size()) - 8;
  if (size > available) {
    return refuse(
        codes::kHeaderBeyondFile,
        fmt::format("expected a header of {} bytes, found {} bytes in the file", size, available));
  }
  if (size == 0) return refuse(codes::kEmptyHeader, "expected a header, found a length of 0");
  return std::string_view(reinterpret_cast<const char*>(head.data()) + 8,
                          static_cast<std::size_t>(size));
}

/// Parses the header; the entries are right each by itself after that.
Result<SafetensorsHeader> parse_header(std::string_view text, std::string_view where) {
  const auto refuse = [&](std::string_view code, std::string_view problem) {
    return Error{code, fmt::format("{}: {}", where, problem)};
  };
  if (text.starts_with("\xEF\xBB\xBF")) {
    return refuse(codes::kByteOrderMark, "the header begins with a byte order mark");
  }
  if (const auto bad = find_invalid_utf8(text)) {
    return refuse(codes::kUtf8, fmt::format("the header is not UTF-8 at byte {}", *bad));
  }
  // The parser takes a NUL for the end of its input. What comes before it decides whether the
  // header was padded with NULs or has one in its midst.
  const auto nul = text.find('\0');
  HeaderHandler handler(where);
  json::read_events(text.substr(0, nul), handler);
  if (handler.error()) return *handler.error();
  if (nul != std::string_view::npos) {
    return refuse(codes::kTrailingText,
                  "expected nothing but spaces after the header's '}', "
                  "found a NUL");
  }
  return handler.take();
}

/// Sorting instead of hashing: a file cannot choose names that collide.
Status check_names(const SafetensorsHeader& header, std::string_view where) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const TensorEntry& tensor : header.tensors) names.emplace_back(tensor.name);
  std::ranges::sort(names);
  const auto twin = std::ranges::adjacent_find(names);
  if (twin == names.end()) return {};
  return Error{codes::kDuplicateName,
               fmt::format("{}: tensor {}: appears twice", where, quote(*twin))};
}

/// Every byte of the data belongs to exactly one tensor. `tensors` are in order of their offsets.
Status check_coverage(const std::vector<TensorEntry>& tensors, uint64_t data_size,
                      std::string_view where) {
  uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& tensor : tensors) {
    const auto refuse = [&](std::string_view code, const std::string& problem) {
      return Error{code, fmt::format("{}: tensor {}: {}", where, quote(tensor.name), problem)};
    };
    if (tensor.begin != covered && previous == nullptr) {
      return refuse(codes::kFirstOffset,
                    fmt::format("expected the first tensor at 0, found it at {}", tensor.begin));
    }
    if (tensor.begin != covered) {
      return refuse(tensor.begin > covered ? codes::kHole : codes::kOverlap,
                    fmt::format("expected to begin at {}, where {} ends, found {}", covered,
                                quote(previous->name), tensor.begin));
    }
    if (tensor.end > data_size) {
      return refuse(codes::kTruncatedData,
                    fmt::format("expected data up to {}, found {} bytes of data in the file",
                                tensor.end, data_size));
    }
    covered = tensor.end;
    previous = &tensor;
  }
  if (covered == data_size) return {};
  return Error{codes::kTrailingData,
               fmt::format("{}: expected {} bytes of data, found {} bytes more", where, covered,
                           data_size - covered)};
}

bool is_about_the_frame(std::string_view code) {
  return code == codes::kTooSmall || code == codes::kHeaderTooLarge ||
         code == codes::kHeaderBeyondFile || code == codes::kUtf8 || code == codes::kJson ||
         code == codes::kNotObject;
}

}  // namespace

Result<SafetensorsHeader> read_safetensors_header(std::span<const std::byte> head,
                                                  uint64_t file_size, std::string_view where) {
  Result<SafetensorsHeader> header = [&]() -> Result<SafetensorsHeader> {
    SUBBYTE_TRY(const std::string_view text, header_text(head, file_size, where));
    return parse_header(text, where);
  }();
  if (!header.ok()) {
    const Error& error = header.error();
    const std::string_view hint = wrong_file_hint(head);
    if (hint.empty() || !is_about_the_frame(error.code)) return error;
    return Error{error.code,
                 fmt::format("{}: expected safetensors, found what looks like {}", where, hint)};
  }
  SUBBYTE_CHECK(check_names(*header, where));
  header->data_offset = 8 + read_u64(head);
  const auto order = [](const TensorEntry& tensor) {
    return std::tie(tensor.begin, tensor.end, tensor.name);
  };
  if (!std::ranges::is_sorted(header->tensors, {}, order)) {
    std::ranges::sort(header->tensors, {}, order);
  }
  SUBBYTE_CHECK(check_coverage(header->tensors, file_size - header->data_offset, where));
  return header;
}

}  // namespace subbyte
