#include "jinja/template.h"

#include <fmt/format.h>

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

}  // namespace

struct Template::Data {
  std::string where;
  Syntax syntax;
};

Template::Template(std::unique_ptr<const Data> data) : data_(std::move(data)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Result<Template> Template::compile(std::string_view source, std::string_view where) {
  if (const auto bad = find_invalid_utf8(source)) {
    return Error{kSyntax, fmt::format("{}: byte {} is no UTF-8", where, *bad)};
  }
  try {
    return Template(std::make_unique<const Data>(Data{std::string(where), parse(source)}));
  } catch (const Refusal& refusal) {
    return error_of(refusal, where, 1);
  }
}

Result<OriginText> Template::render(const std::vector<Variable>& variables,
                                    const RenderOptions& options) const {
  Heap heap(options.limits);
  Evaluator evaluator(heap, options.now);
  try {
    std::vector<std::pair<std::string, Value>> values;
    for (const Variable& variable : variables) {
      values.emplace_back(variable.name,
                          heap.from_json(variable.value, variable.origin, options.roles));
    }
    return evaluator.run(data_->syntax.body, values);
  } catch (const Refusal& refusal) {
    return error_of(refusal, data_->where, evaluator.line());
  }
}

bool Template::reads(std::string_view name) const {
  return data_->syntax.names.contains(name);
}

}  // namespace subbyte::jinja
