#include "unicode/unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "unicode/unicode_data.h"

namespace subbyte::unicode {
namespace {

constexpr std::array<std::string_view, 30> kCategories = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// Hangul is composed by arithmetic: chapter 3.12 of the standard.
constexpr char32_t kSyllables = 0xAC00;
constexpr char32_t kLeads = 0x1100;
constexpr char32_t kVowels = 0x1161;
constexpr char32_t kBeforeTrails = 0x11A7;
constexpr char32_t kNumLeads = 19;
constexpr char32_t kNumVowels = 21;
constexpr char32_t kNumTrails = 28;  // with none
constexpr char32_t kNumSyllables = kNumLeads * kNumVowels * kNumTrails;

/// Reads the numbers of a table, whose head is in tools/write_unicode_tables.py.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool done() const { return text_.empty(); }

  uint32_t number() {
    uint32_t value = 0;
    for (unsigned shift = 0;; shift += 5) {
      const uint32_t digit = value_of(text_.front());
      text_.remove_prefix(1);
      value |= (digit & 31) << shift;
      if (digit < 32) return value;
    }
  }

  /// A signed number, added to `last`.
  char32_t moved(char32_t last) {
    const uint32_t value = number();
    return (value & 1) == 0 ? last + value / 2 : last - value / 2 - 1;
  }

 private:
  static uint32_t value_of(char c) {
    if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
    if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A') + 10;
    if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a') + 36;
    return c == '-' ? 62 : 63;
  }

  std::string_view text_;
};

/// A value for each code point.
struct Runs {
  explicit Runs(std::string_view table) {
    Reader reader(table);
    for (char32_t start = 0; !reader.done();) {
      const uint32_t run = reader.number();
      starts.push_back(start);
      values.push_back(static_cast<uint8_t>(run));
      start += run >> 8;
    }
  }

  uint8_t operator[](char32_t point) const {
    const auto after = std::ranges::upper_bound(starts, point);
    return values[static_cast<std::size_t>(after - starts.begin()) - 1];
  }

  std::vector<char32_t> starts;
  std::vector<uint8_t> values;
};

/// Code points that become others.
struct Mappings {
  explicit Mappings(std::string_view table) {
    Reader reader(table);
    char32_t point = 0;
    char32_t part = 0;
    while (!reader.done()) {
      point += reader.number();
      points.push_back(point);
      begins.push_back(static_cast<uint32_t>(parts.size()));
      for (uint32_t count = reader.number(); count > 0; --count) {
        part = reader.moved(part);
        parts.push_back(part);
      }
    }
    begins.push_back(static_cast<uint32_t>(parts.size()));
  }

  bool contains(char32_t point) const { return std::ranges::binary_search(points, point); }

  /// Empty where there is none.
  std::pair<const char32_t*, const char32_t*> find(char32_t point) const {
    const auto found = std::ranges::lower_bound(points, point);
    if (found == points.end() || *found != point) return {nullptr, nullptr};
    const auto idx = static_cast<std::size_t>(found - points.begin());
    return {parts.data() + begins[idx], parts.data() + begins[idx + 1]};
  }

  std::vector<char32_t> points;
  std::vector<uint32_t> begins;
  std::vector<char32_t> parts;
};

const Runs& categories() {
  static const Runs runs(unicode_data::kCategoryRuns);
  return runs;
}

const Runs& combining_classes() {
  static const Runs runs(unicode_data::kCombiningRuns);
  return runs;
}

const Mappings& canonical() {
  static const Mappings mappings(unicode_data::kCanonical);
  return mappings;
}

const Mappings& compatible_ones() {
  static const Mappings mappings(unicode_data::kCompatible);
  return mappings;
}

const Mappings& excluded() {
  static const Mappings mappings(unicode_data::kExcluded);
  return mappings;
}

// Values of their runs.
constexpr uint8_t kUpper = 1;
constexpr uint8_t kLower = 2;
constexpr uint8_t kBegins = 1;

const Runs& cases() {
  static const Runs runs(unicode_data::kCaseRuns);
  return runs;
}

const Runs& identifiers() {
  static const Runs runs(unicode_data::kIdentifierRuns);
  return runs;
}

struct Composition {
  char32_t first;
  char32_t second;
  char32_t made;
};

const std::vector<Composition>& compositions() {
  static const std::vector<Composition> made = [] {
    std::vector<Composition> found;
    for (const char32_t point : canonical().points) {
      const auto [begin, end] = canonical().find(point);
      if (end - begin == 2 && !excluded().contains(point)) {
        found.push_back({begin[0], begin[1], point});
      }
    }
    std::ranges::sort(found, {}, [](const auto& c) { return std::pair(c.first, c.second); });
    return found;
  }();
  return made;
}

bool is_syllable(char32_t point) {
  return point >= kSyllables && point < kSyllables + kNumSyllables;
}

/// In lower case, without what does not count.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    plain += c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  }
  return plain;
}

}  // namespace

uint32_t category_bits(std::string_view name) {
  uint32_t bits = 0;
  for (std::size_t i = 0; i < kCategories.size(); ++i) {
    const bool one = name.size() == 2 && kCategories[i] == name;
    const bool all = name.size() == 1 && kCategories[i][0] == name[0];
    if (one || all) bits |= uint32_t{1} << i;
  }
  return bits;
}

unsigned category(char32_t point) {
  return categories()[point];
}

const std::vector<char32_t>& category_starts() {
  return categories().starts;
}

std::optional<std::vector<Range>> script(std::string_view name) {
  const std::string wanted = plain_name(name);
  std::string_view names = unicode_data::kScriptNames;
  for (uint8_t number = 0; !names.empty(); ++number) {
    const std::string_view entry = names.substr(0, names.find(','));
    names.remove_prefix(entry.size() + 1);
    const std::size_t equal = entry.find('=');
    if (plain_name(entry.substr(0, equal)) != wanted &&
        plain_name(entry.substr(equal + 1)) != wanted) {
      continue;
    }
    static const Runs runs(unicode_data::kScriptRuns);
    std::vector<Range> ranges;
    for (std::size_t i = 0; i < runs.starts.size(); ++i) {
      const char32_t end = i + 1 < runs.starts.size() ? runs.starts[i + 1] : kEnd;
      if (runs.values[i] == number) ranges.push_back({runs.starts[i], end - 1});
    }
    return ranges;
  }
  return std::nullopt;
}

int width(char32_t point) {
  static const Runs runs(unicode_data::kWidthRuns);
  return runs[point];
}

bool is_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_alphabetic_symbol(char32_t c) {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

std::u32string_view in_case(char32_t point, LetterCase letter_case) {
  static const Mappings lower(unicode_data::kLowerCase);
  static const Mappings upper(unicode_data::kUpperCase);
  static const Mappings title(unicode_data::kTitleCase);
  static const Mappings folded(unicode_data::kFoldedCase);
  const bool rises = letter_case == LetterCase::kUpper || letter_case == LetterCase::kTitle;
  auto found = std::pair<const char32_t*, const char32_t*>();
  if (letter_case == LetterCase::kTitle) found = title.find(point);
  if (letter_case == LetterCase::kFolded) found = folded.find(point);
  if (found.first == found.second) found = (rises ? upper : lower).find(point);
  return {found.first, found.second};
}

bool is_upper(char32_t point) {
  return cases()[point] == kUpper;
}

bool is_lower(char32_t point) {
  return cases()[point] == kLower;
}

NumericType numeric_type(char32_t point) {
  static const Runs runs(unicode_data::kNumericRuns);
  return static_cast<NumericType>(runs[point]);
}

bool begins_identifier(char32_t point) {
  return identifiers()[point] == kBegins;
}

bool continues_identifier(char32_t point) {
  return identifiers()[point] != 0;
}

uint8_t combining_class(char32_t point) {
  return combining_classes()[point];
}

void decompose(char32_t point, bool compatible, std::vector<char32_t>& out) {
  if (is_syllable(point)) {
    const char32_t syllable = point - kSyllables;
    out.push_back(kLeads + syllable / (kNumVowels * kNumTrails));
    out.push_back(kVowels + syllable / kNumTrails % kNumVowels);
    if (syllable % kNumTrails != 0) out.push_back(kBeforeTrails + syllable % kNumTrails);
    return;
  }
  auto parts = canonical().find(point);
  if (compatible && parts.first == parts.second) parts = compatible_ones().find(point);
  if (parts.first == parts.second) {
    out.push_back(point);
    return;
  }
  // The depth is that of the tables: four at most.
  for (const char32_t* part = parts.first; part != parts.second; ++part) {
    decompose(*part, compatible, out);
  }
}

std::optional<char32_t> compose(char32_t first, char32_t second) {
  if (first >= kLeads && first < kLeads + kNumLeads && second >= kVowels &&
      second < kVowels + kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTrails;
  }
  if (is_syllable(first) && (first - kSyllables) % kNumTrails == 0 && second > kBeforeTrails &&
      second < kBeforeTrails + kNumTrails) {
    return first + second - kBeforeTrails;
  }
  const auto& all = compositions();
  const auto found = std::ranges::lower_bound(all, std::pair(first, second), {}, [](const auto& c) {
    return std::pair(c.first, c.second);
  });
  if (found == all.end() || found->first != first || found->second != second) return std::nullopt;
  return found->made;
}

std::vector<bool> changed_by_form(bool composed, bool compatible) {
  std::vector<bool> bits(kEnd);
  const auto mark = [&bits](const std::vector<char32_t>& points) {
    for (const char32_t point : points) bits[point] = true;
  };
  const auto mark_range = [&bits](char32_t first, char32_t count) {
    std::fill_n(bits.begin() + static_cast<std::ptrdiff_t>(first), count, true);
  };
  const Runs& classes = combining_classes();
  for (std::size_t i = 0; i + 1 < classes.starts.size(); ++i) {
    if (classes.values[i] == 0) continue;
    mark_range(classes.starts[i], classes.starts[i + 1] - classes.starts[i]);
  }
  if (compatible) mark(compatible_ones().points);
  if (!composed || compatible) mark(canonical().points);
  if (!composed) {
    mark_range(kSyllables, kNumSyllables);
    return bits;
  }
  mark_range(kVowels, kNumVowels);
  mark_range(kBeforeTrails + 1, kNumTrails - 1);
  for (const Composition& composition : compositions()) bits[composition.second] = true;
  mark(excluded().points);
  for (const char32_t point : canonical().points) {  // what becomes a single other one
    const auto [begin, end] = canonical().find(point);
    if (end - begin == 1) bits[point] = true;
  }
  return bits;
}

}  // namespace subbyte::unicode
