#include "jinja/template.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "jinja/characters.h"
#include "jinja/evaluator.h"
#include "jinja/parser.h"

namespace subbyte::jinja {
namespace {

/// Names and texts of a template may be of any length.
constexpr std::size_t kMaxMessageBytes = 400;

Error error_of(const Refusal& refusal, std::string_view where, int line) {
  std::string_view message = refusal.message;
  const bool is_long = message.size() > kMaxMessageBytes;
  if (is_long) message = message.substr(0, character_before(message, kMaxMessageBytes));
  return {refusal.code, fmt::format("{}:{}: {}{}", where, refusal.line > 0 ? refusal.line : line,
                                    message, is_long ? "..." : "")};
}

/// A value of JSON. Texts are of `origin`, but those of the keys "role" among `roles`, which are of
/// the template.
Value from_json(Heap& heap, const json::Value& value, Origin origin,
                std::span<const std::string_view> roles) {
  heap.step();
  if (value.is_null()) return Value(None{});
  if (value.is_boolean()) return Value(value.get<bool>());
  if (value.is_string()) return heap.text(value.string(), origin);
  if (const auto digits = json::long_digits(value)) return heap.long_integer(*digits);
  if (value.is_number_integer()) return Value(value.get<int64_t>());
  if (value.is_number_float()) return Value(value.get<double>());
  if (value.is_array()) {
    Values items(heap);
    items.reserve(value.size());
    for (const json::Value& item : value) items.push_back(from_json(heap, item, origin, roles));
    return heap.list(std::move(items));
  }
  Entries entries(heap);
  entries.reserve(value.size());
  for (const auto& [key, item] : value.items()) {
    const bool is_role =
        key == "role" && item.is_string() && std::ranges::find(roles, item.string()) != roles.end();
    entries.emplace_back(heap.text(key, origin),
                         from_json(heap, item, is_role ? Origin::kTemplate : origin, roles));
  }
  return heap.dictionary(std::move(entries));
}

}  // namespace

struct Template::Data {
  explicit Data(std::string_view place) : where(place) {}

  std::string where;
  Meter meter{Limits()};  // of the constants in the tree
  Syntax syntax;
};

Template::Template(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::compile(std::string_view source, std::string_view where) {
  if (source.size() > kMaxSourceBytes) {
    return Error{kLimit, fmt::format("{}: the template has {} bytes, more than {}", where,
                                     source.size(), kMaxSourceBytes)};
  }
  if (const auto bad = find_invalid_utf8(source)) {
    return Error{kSyntax, fmt::format("{}: byte {} is no UTF-8", where, *bad)};
  }
  auto data = std::make_unique<Data>(where);
  try {
    data->syntax = parse(source, data->meter);
    return Template(std::move(data));
  } catch (const Refusal& refusal) {
    return error_of(refusal, where, 1);
  }
}

Result<OriginText> Template::render(const std::vector<Variable>& variables,
                                    const RenderOptions& options) const {
  Heap heap(options.limits);
  Evaluator evaluator(heap, options.now);
  const auto render = [&]() -> Result<OriginText> {
    try {
      Inputs values(heap);
      for (const Variable& variable : variables) {
        values.emplace_back(variable.name,
                            from_json(heap, variable.value, variable.origin, options.roles));
      }
      return evaluator.run(data_->syntax.body, values);
    } catch (const Refusal& refusal) {
      return error_of(refusal, data_->where, evaluator.line());
    }
  };
  Result<OriginText> text = render();
  if (options.usage != nullptr) *options.usage = heap.usage();
  return text;
}

bool Template::reads(std::string_view name) const {
  return data_->syntax.names.contains(name);
}

}  // namespace subbyte::jinja
