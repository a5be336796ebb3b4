#include "checkpoints/containers/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "foreign_layouts/ggml_types.h"

namespace subbyte {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kMagic = "GGUF";
constexpr std::size_t kHeaderBytes = 24;
// What the shortest of each takes; a count beyond that is never right.
constexpr uint64_t kKeyBytes = 8 + 4 + 1;
constexpr uint64_t kTensorBytes = 8 + 4 + 8 + 4 + 8;
// Far above every published file: the largest has some 100 keys and 2,000 tensors.
constexpr uint64_t kMaxKeys = 1 << 16;
constexpr uint64_t kMaxTensors = 1 << 17;
constexpr uint64_t kMaxKeyName = 65535;
constexpr uint64_t kMaxTensorName = 63;  // and a zero, in the memory of llama.cpp
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kMaxAlignment = 1 << 20;
constexpr std::string_view kAlignment = "general.alignment";

bool is_finite(GgufType type, const std::byte* at) {
  if (type == GgufType::kF32) return std::isfinite(load_gguf<float>(at));
  return type != GgufType::kF64 || std::isfinite(load_gguf<double>(at));
}

}  // namespace

// ---- reading

/// Walks over a file from its beginning. Whoever takes bytes has asked whether they are there.
class GgufReader {
 public:
  GgufReader(MappedFile file, std::vector<Error>* problems, bool is_beginning = false)
      : problems_(problems), is_beginning_(is_beginning) {
    gguf_.file_ = std::make_shared<const MappedFile>(std::move(file));
    bytes_ = gguf_.file_->bytes();
  }

  Result<GgufFile> read() {
    SUBBYTE_CHECK(read_header());
    for (uint64_t i = 0; i < num_keys_; ++i) SUBBYTE_CHECK(read_key(i));
    SUBBYTE_CHECK(index_keys());
    SUBBYTE_CHECK(read_alignment());
    for (uint64_t i = 0; i < num_tensors_; ++i) SUBBYTE_CHECK(read_tensor(i));
    SUBBYTE_CHECK(find_twin_tensors());
    SUBBYTE_CHECK(place_tensors());
    return std::move(gguf_);
  }

 private:
  struct Place {
    std::size_t tensor = 0;  // of gguf_.tensors_
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  Error refuse(std::string_view code, std::string_view problem) const {
    return {code, fmt::format("{}: {}", gguf_.path().native(), problem)};
  }

  /// What is wrong with one key or tensor, without which the rest can be read.
  Status leave_out(Error error) {
    if (problems_ == nullptr) return error;
    problems_->push_back(std::move(error));
    return {};
  }

  Error truncated(std::string_view what) const {
    return refuse("gguf.truncated", fmt::format("expected {} at byte {}, found the end of the file "
                                                "({} bytes)",
                                                what, at_, bytes_.size()));
  }

  bool has(uint64_t size) const { return size <= bytes_.size() - at_; }

  template <typename T>
  T take() {
    const T value = load_gguf<T>(bytes_.data() + at_);
    at_ += sizeof value;
    return value;
  }

  Result<std::string_view> take_string(std::string_view what) {
    if (!has(8)) return truncated(what);
    const auto size = load_gguf<uint64_t>(bytes_.data() + at_);
    if (size > bytes_.size() - at_ - 8) {
      return refuse("gguf.truncated", fmt::format("{}: expected a text of {} bytes at byte {}, "
                                                  "found {} bytes in the file",
                                                  what, size, at_, bytes_.size() - at_ - 8));
    }
    const std::string_view text = gguf_text_at(bytes_.data() + at_);
    at_ += 8 + text.size();
    return text;
  }

  Status read_header() {
    if (bytes_.size() < kHeaderBytes) {
      return refuse("gguf.truncated", fmt::format("expected at least {} bytes, found {}",
                                                  kHeaderBytes, bytes_.size()));
    }
    if (std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) {
      return refuse("gguf.magic", "expected a file that begins with GGUF");
    }
    at_ = kMagic.size();
    const auto version = take<uint32_t>();
    if (version != 0 && (version & 0xFFFF) == 0) {
      return refuse("gguf.version", "a big-endian file, which is not read");
    }
    if (version != 2 && version != 3) {
      return refuse("gguf.version", fmt::format("expected version 2 or 3, found {}", version));
    }
    num_tensors_ = take<uint64_t>();
    num_keys_ = take<uint64_t>();
    const uint64_t left = bytes_.size() - at_;
    SUBBYTE_CHECK(check_count("keys", num_keys_, std::min(kMaxKeys, left / kKeyBytes)));
    return check_count("tensors", num_tensors_, std::min(kMaxTensors, left / kTensorBytes));
  }

  Status check_count(std::string_view what, uint64_t count, uint64_t most) const {
    if (count <= most) return {};
    return refuse("gguf.limit",
                  fmt::format("expected at most {} {} in a file of {} bytes, found {}", most, what,
                              bytes_.size(), count));
  }

  Status wrong_value(std::string_view key, std::string_view problem) {
    return leave_out(refuse("gguf.value", fmt::format("{}: {}", quote_name(key), problem)));
  }

  /// Why a text is none; empty when it is one.
  static std::string text_problem(std::string_view text) {
    if (text.find('\0') != text.npos) return "a zero byte";
    const auto bad = find_invalid_utf8(text);
    return bad ? fmt::format("a text that is not UTF-8 at byte {}", *bad) : std::string();
  }

  Status read_key(uint64_t i) {
    SUBBYTE_TRY(const std::string_view name, take_string(fmt::format("the name of key {}", i)));
    if (!has(4)) return truncated(fmt::format("the type of {}", quote_name(name)));
    const auto type = take<uint32_t>();
    if (type > static_cast<uint32_t>(GgufType::kF64)) {
      return refuse("gguf.value", fmt::format("{}: expected a type of at most 12, found {}",
                                              quote_name(name), type));
    }
    const std::size_t begin = at_;
    std::string problem;
    SUBBYTE_CHECK(skip_value(name, static_cast<GgufType>(type), problem));
    const auto bytes = bytes_.subspan(begin, at_ - begin);
    if (name.empty() || name.size() > kMaxKeyName) {
      return leave_out(refuse("gguf.key", fmt::format("key {}: expected a name of 1 to {} bytes, "
                                                      "found {}",
                                                      i, kMaxKeyName, name.size())));
    }
    if (const std::string bad = text_problem(name); !bad.empty()) {
      return leave_out(
          refuse("gguf.key", fmt::format("the name {} has {}", quote_name(name), bad)));
    }
    if (!problem.empty()) return wrong_value(name, problem);
    gguf_.keys_.push_back({name, GgufValue(static_cast<GgufType>(type), bytes)});
    return {};
  }

  Status skip_value(std::string_view name, GgufType type, std::string& problem) {
    if (type != GgufType::kArray) return skip_elements(name, type, 1, problem);
    if (!has(12)) return truncated(fmt::format("the array {}", quote_name(name)));
    const auto element = take<uint32_t>();
    const auto count = take<uint64_t>();
    if (element > static_cast<uint32_t>(GgufType::kF64) ||
        element == static_cast<uint32_t>(GgufType::kArray)) {
      return refuse("gguf.value",
                    fmt::format("{}: expected an array of numbers or texts, found one of {}",
                                quote_name(name),
                                element == static_cast<uint32_t>(GgufType::kArray)
                                    ? std::string("arrays")
                                    : fmt::format("type {}", element)));
    }
    return skip_elements(name, static_cast<GgufType>(element), count, problem);
  }

  /// Goes over elements and finds the first that is wrong.
  Status skip_elements(std::string_view name, GgufType type, uint64_t count, std::string& problem) {
    const auto note = [&](uint64_t i, std::string_view what) {
      if (problem.empty())
        problem = count == 1 ? std::string(what) : fmt::format("[{}]: {}", i, what);
    };
    const std::size_t width = gguf_width(type);
    const uint64_t left = bytes_.size() - at_;
    if (count > left / (width == 0 ? 8 : width)) {
      return refuse("gguf.truncated",
                    fmt::format("{}: expected {} {} at byte {}, found {} bytes in the file",
                                quote_name(name), count, gguf_type_name(type), at_, left));
    }
    if (type == GgufType::kString) {
      for (uint64_t i = 0; i < count; ++i) {
        SUBBYTE_TRY(const std::string_view text, take_string(quote_name(name)));
        if (const std::string bad = text_problem(text); !bad.empty()) note(i, "found " + bad);
      }
      return {};
    }
    const std::byte* const first = bytes_.data() + at_;
    at_ += count * width;
    for (uint64_t i = 0; type == GgufType::kBool && i < count; ++i) {
      const auto value = static_cast<unsigned>(first[i]);
      if (value > 1) note(i, fmt::format("expected true (1) or false (0), found {}", value));
    }
    if (type != GgufType::kF32 && type != GgufType::kF64) return {};
    for (uint64_t i = 0; i < count; ++i) {
      if (!is_finite(type, first + i * width)) note(i, "expected a finite number");
    }
    return {};
  }

  Status index_keys() {
    auto& order = gguf_.by_name_;
    order.resize(gguf_.keys_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto name = [&](std::size_t i) { return gguf_.keys_[i].name; };
    std::ranges::stable_sort(order, {}, name);
    for (std::size_t i = 1; i < order.size(); ++i) {
      if (name(order[i]) != name(order[i - 1])) continue;
      SUBBYTE_CHECK(leave_out(
          refuse("gguf.key", fmt::format("the key {} appears twice", quote_name(name(order[i]))))));
    }
    return {};
  }

  Status read_alignment() {
    const GgufValue* const value = gguf_.find(kAlignment);
    if (value == nullptr) return {};
    const auto number = value->is_array() ? std::nullopt : value->integer();
    if (!number || *number < 1 || static_cast<uint64_t>(*number) > kMaxAlignment ||
        !std::has_single_bit(static_cast<uint64_t>(*number))) {
      return gguf_.error("gguf.value", kAlignment,
                         fmt::format("a power of two of at most {}", kMaxAlignment));
    }
    alignment_ = static_cast<uint64_t>(*number);
    return {};
  }

  Status wrong_tensor(std::string_view code, std::string_view name, std::string_view problem) {
    return leave_out(refuse(code, fmt::format("tensor {}: {}", quote_name(name), problem)));
  }

  Status read_tensor(uint64_t i) {
    SUBBYTE_TRY(const std::string_view name, take_string(fmt::format("the name of tensor {}", i)));
    if (!has(4)) return truncated(fmt::format("tensor {}", quote_name(name)));
    const auto dimensions = take<uint32_t>();
    if (dimensions < 1 || dimensions > kMaxDimensions) {
      return refuse("gguf.tensor", fmt::format("tensor {}: expected 1 to {} dimensions, found {}",
                                               quote_name(name), kMaxDimensions, dimensions));
    }
    if (!has(dimensions * 8 + 12)) return truncated(fmt::format("tensor {}", quote_name(name)));
    GgufTensor tensor;
    tensor.name = name;
    tensor.shape.resize(dimensions);
    for (auto at = tensor.shape.rbegin(); at != tensor.shape.rend(); ++at) *at = take<uint64_t>();
    tensor.type = take<uint32_t>();
    Place place = {gguf_.tensors_.size(), take<uint64_t>(), 0};
    const auto problem = tensor_problem(tensor, place.size);
    if (!problem) {
      gguf_.tensors_.push_back(std::move(tensor));
      places_.push_back(place);
      return {};
    }
    is_whole_ = false;
    return wrong_tensor(problem->code, name, problem->message);
  }

  /// What is wrong with it by itself; its size where nothing is.
  static std::optional<Error> tensor_problem(const GgufTensor& tensor, uint64_t& size) {
    if (tensor.name.empty() || tensor.name.size() > kMaxTensorName) {
      return Error{"gguf.tensor", fmt::format("expected a name of 1 to {} bytes, found {}",
                                              kMaxTensorName, tensor.name.size())};
    }
    if (const std::string bad = text_problem(tensor.name); !bad.empty()) {
      return Error{"gguf.tensor", fmt::format("its name has {}", bad)};
    }
    if (std::ranges::find(tensor.shape, uint64_t{0}) != tensor.shape.end()) {
      return Error{"gguf.tensor", "expected dimensions above 0, found 0"};
    }
    const GgmlType* const type = find_ggml_type(tensor.type);
    if (type == nullptr) {
      return Error{"gguf.type",
                   is_removed_ggml_type(tensor.type)
                       ? fmt::format("type {} was removed from GGUF and is not read", tensor.type)
                       : fmt::format("type {} is not known", tensor.type)};
    }
    const uint64_t inputs = tensor.shape.back();
    if (inputs % type->block != 0) {
      return Error{"gguf.tensor", fmt::format("expected inputs in blocks of {} ({}), found {}",
                                              type->block, type->name, inputs)};
    }
    const auto elements = checked_product(tensor.shape);
    const auto bytes = elements ? checked_mul(*elements / type->block, type->bytes) : std::nullopt;
    if (!bytes || *bytes > uint64_t{1} << 62) {
      return Error{"gguf.tensor", "its dimensions give a size that no file has"};
    }
    size = *bytes;
    return std::nullopt;
  }

  Status find_twin_tensors() {
    std::vector<std::string_view> names;
    names.reserve(gguf_.tensors_.size());
    for (const GgufTensor& tensor : gguf_.tensors_) names.push_back(tensor.name);
    std::ranges::sort(names);
    const auto twin = std::ranges::adjacent_find(names);
    if (twin == names.end()) return {};
    return refuse("gguf.tensor", fmt::format("tensor {}: appears twice", quote_name(*twin)));
  }

  /// Tensors follow each other in the order of the list, each padded. Where one was left out, it is
  /// not known where the next begins.
  Status place_tensors() {
    const uint64_t begin = round_up(at_, alignment_);
    uint64_t next = 0;
    std::vector<bool> is_in_file(places_.size(), false);
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      GgufTensor& tensor = gguf_.tensors_[place.tensor];
      if (is_whole_ && place.offset != next) {
        return refuse("gguf.offset", fmt::format("tensor {}: expected an offset of {}, found {}",
                                                 quote_name(tensor.name), next, place.offset));
      }
      const uint64_t left = bytes_.size() - std::min<uint64_t>(begin, bytes_.size());
      const bool fits = place.offset <= left && place.size <= left - place.offset;
      if (fits) {
        tensor.bytes = bytes_.subspan(begin + place.offset, place.size);
        is_in_file[i] = true;
      } else if (is_beginning_) {
        is_in_file[i] = true;
      } else {
        SUBBYTE_CHECK(wrong_tensor(
            "gguf.truncated", tensor.name,
            fmt::format("expected {} bytes at offset {} of the data, found {} bytes of data",
                        place.size, place.offset, left)));
      }
      next = round_up(std::min(place.offset + place.size, uint64_t{1} << 63), alignment_);
    }
    std::size_t i = 0;
    std::erase_if(gguf_.tensors_, [&](const GgufTensor&) { return !is_in_file[i++]; });
    if (!is_whole_ || places_.empty() || begin + next >= bytes_.size()) return {};
    return leave_out(refuse("gguf.trailing_bytes", fmt::format("expected {} bytes, found {}",
                                                               begin + next, bytes_.size())));
  }

  GgufFile gguf_;
  std::vector<Error>* problems_;
  bool is_beginning_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  uint64_t num_keys_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t alignment_ = 32;
  bool is_whole_ = true;  // no tensor was left out
  std::vector<Place> places_;
};

Result<GgufFile> GgufFile::open(const std::filesystem::path& path, std::vector<Error>* problems) {
  SUBBYTE_TRY(MappedFile file, MappedFile::open(path));
  return of(std::move(file), problems);
}

Result<GgufFile> GgufFile::of(MappedFile file, std::vector<Error>* problems) {
  return GgufReader(std::move(file), problems).read();
}

Result<GgufFile> GgufFile::of_beginning(MappedFile file) {
  return GgufReader(std::move(file), nullptr, true).read();
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto name = [&](std::size_t i) { return keys_[i].name; };
  const auto at = std::ranges::lower_bound(by_name_, key, {}, name);
  return at == by_name_.end() || name(*at) != key ? nullptr : &keys_[*at].value;
}

Error GgufFile::error(std::string_view code, std::string_view key,
                      std::string_view expected) const {
  const GgufValue* const value = find(key);
  return {code, fmt::format("{}: {}: expected {}, found {}", path().native(), key, expected,
                            value == nullptr ? "none" : value->describe())};
}

bool begins_as_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const auto file = MappedFile::open(path);
  return file.ok() && file->bytes().size() >= kMagic.size() &&
         std::memcmp(file->bytes().data(), kMagic.data(), kMagic.size()) == 0;
}

bool is_gguf(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_named =
      path.extension() == ".gguf" && std::filesystem::is_regular_file(path, ignored);
  return is_named || begins_as_gguf(path);
}

}  // namespace subbyte
