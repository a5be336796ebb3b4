#include "jinja/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/quote.h"
#include "jinja/evaluator.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kTextMethods[] = {
    "capitalize", "casefold",   "center",       "count",        "endswith",  "expandtabs",
    "find",       "format",     "index",        "isalnum",      "isalpha",   "isascii",
    "isdecimal",  "isdigit",    "isidentifier", "islower",      "isnumeric", "isprintable",
    "isspace",    "istitle",    "isupper",      "join",         "ljust",     "lower",
    "lstrip",     "partition",  "removeprefix", "removesuffix", "replace",   "rfind",
    "rindex",     "rjust",      "rpartition",   "rsplit",       "rstrip",    "split",
    "splitlines", "startswith", "strip",        "swapcase",     "title",     "upper",
    "zfill",      "encode",     "format_map",   "maketrans",    "translate"};
constexpr std::string_view kListMethods[] = {"copy", "count", "index"};
constexpr std::string_view kTupleMethods[] = {"count", "index"};
constexpr std::string_view kDictionaryMethods[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kFloatMethods[] = {"is_integer"};
constexpr Methods kMethods[] = {{"str", kTextMethods},
                                {"list", kListMethods},
                                {"tuple", kTupleMethods},
                                {"dict", kDictionaryMethods},
                                {"float", kFloatMethods}};
constexpr std::string_view kUnsafeOfLists[] = {"append", "clear",  "extend",  "insert",
                                               "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kUnsafeOfDictionaries[] = {"clear",   "fromkeys",   "pop",
                                                      "popitem", "setdefault", "update"};

bool has(Names names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

Names methods_of(const Value& value) {
  if (value.string() != nullptr) return kTextMethods;
  if (value.dictionary() != nullptr) return kDictionaryMethods;
  if (value.is<double>()) return kFloatMethods;
  const Sequence* const sequence = value.sequence();
  if (sequence == nullptr) return {};
  if (sequence->kind() == SequenceKind::kList) return kListMethods;
  return sequence->kind() <= SequenceKind::kRange ? Names(kTupleMethods) : Names();
}

Names unsafe_of(const Value& value) {
  if (value.dictionary() != nullptr) return kUnsafeOfDictionaries;
  const Sequence* const sequence = value.sequence();
  const bool is_list = sequence != nullptr && sequence->kind() == SequenceKind::kList;
  return is_list ? Names(kUnsafeOfLists) : Names();
}

Value call_sequence_method(Heap& heap, const Value& self, std::string_view name,
                           const Arguments& arguments) {
  const Sequence& sequence = *self.sequence();
  if (name == "copy") {
    const Bound bound(name, arguments, {}, 0);
    return self;
  }
  constexpr std::string_view kNames[] = {"value", "start", "stop"};
  const bool counts = name == "count";
  const Bound bound(name, arguments, Names(kNames).first(counts ? 1 : 3), 1);
  const std::size_t end =
      counts || !bound.has(2) ? sequence.size() : place_in(bound.integer(2, 0), sequence.size());
  int64_t count = 0;
  for (std::size_t i = counts ? 0 : place_in(bound.integer(1, 0), sequence.size()); i < end; ++i) {
    if (!equal(heap, sequence.at(heap, i), *bound[0])) continue;
    if (!counts) return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (counts) return Value(count);
  refuse(kValue, fmt::format("the value is not in the {}", type_name(self)));
}

Value call_dictionary_method(Heap& heap, const Value& self, std::string_view name,
                             const Arguments& arguments) {
  const Dictionary& dictionary = *self.dictionary();
  if (name == "get") {
    constexpr std::string_view kNames[] = {"key", "default"};
    const Bound bound(name, arguments, kNames, 1);
    const Value* const found = dictionary.find(heap, *bound[0]);
    if (found != nullptr) return *found;
    return bound.has(1) ? *bound[1] : Value(None{});
  }
  const Bound bound(name, arguments, {}, 0);
  if (name == "copy") return self;
  Values items(heap);
  items.reserve(dictionary.size());
  for (const auto& [key, value] : dictionary.entries(heap)) {
    items.push_back(name == "keys" ? key : name == "values" ? value : heap.tuple({key, value}));
  }
  return heap.list(std::move(items), name == "keys"     ? SequenceKind::kKeys
                                     : name == "values" ? SequenceKind::kValues
                                                        : SequenceKind::kItems);
}

}  // namespace

std::span<const Methods> all_methods() {
  return kMethods;
}

Member member_of(const Value& value, std::string_view name) {
  if (has(methods_of(value), name)) return Member::kMethod;
  return has(unsafe_of(value), name) ? Member::kUnsafe : Member::kNone;
}

Value call_method(Evaluator& evaluator, const Value& self, std::string_view name,
                  const Arguments& arguments) {
  evaluator.heap().step();
  if (const String* const text = self.string()) {
    return call_text_method(evaluator, *text, name, arguments);
  }
  if (self.dictionary() != nullptr) {
    return call_dictionary_method(evaluator.heap(), self, name, arguments);
  }
  if (const auto* const real = self.as<double>()) {
    return Value(std::isfinite(*real) && *real == std::floor(*real));
  }
  return call_sequence_method(evaluator.heap(), self, name, arguments);
}

Bound::Bound(std::string_view function, const Arguments& arguments, Names names,
             std::size_t required)
    : function_(function), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    refuse(kType, fmt::format("{} takes at most {} arguments, found {}", function, names.size(),
                              arguments.positional.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names, std::string_view(name));
    const auto index = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || values_[index] != nullptr) {
      refuse(kType, fmt::format("{} has {} argument {}", function,
                                found == names.end() ? "no" : "twice the", quote_name(name)));
    }
    values_[index] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      refuse(kType, fmt::format("{} lacks its argument {}", function, quote_name(names[i])));
    }
  }
}

int64_t Bound::integer(std::size_t index, int64_t otherwise) const {
  if (!says(index)) return otherwise;
  int64_t number = 0;
  if (!values_[index]->integer(number)) refuse_type(index, "int");
  return number;
}

bool Bound::truth(std::size_t index, bool otherwise) const {
  return has(index) ? jinja::truth(*values_[index]) : otherwise;
}

const String& Bound::text(std::size_t index) const {
  const String* const text = values_[index]->string();
  if (text == nullptr) refuse_type(index, "str");
  return *text;
}

void Bound::refuse_type(std::size_t index, std::string_view expected) const {
  const Value& value = *values_[index];
  if (const auto* const undefined = value.as<Undefined>(); undefined && undefined->why) {
    refuse_undefined(*undefined);
  }
  if (value.is<LongInteger>() && expected == "int") refuse_long_integer();
  refuse(kType, fmt::format("{}: the argument {} should be {}, found {}", function_,
                            quote_name(names_[index]), expected, type_name(value)));
}

}  // namespace subbyte::jinja
