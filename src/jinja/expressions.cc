#include <fmt/format.h>

#include "base/quote.h"
#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/methods.h"
#include "jinja/operations.h"

namespace subbyte::jinja {

using Kind = ExpressionKind;

Value Evaluator::evaluate(const Expression& expression, Scope& scope) {
  const Deeper deeper(*this);
  heap_.step();
  line_ = expression.line;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kName:
      return evaluate_name(expression, scope);
    case Kind::kTuple:
    case Kind::kList:
    case Kind::kDictionary:
      return evaluate_items(expression, scope);
    case Kind::kAttribute: {
      const Value value = evaluate(*expression.children[0], scope);
      return attribute_of(*this, value, expression.name);
    }
    case Kind::kItem: {
      const Value value = evaluate(*expression.children[0], scope);
      return item_of(*this, value, evaluate(*expression.children[1], scope));
    }
    case Kind::kSlice:
      return evaluate_slice(expression, scope);
    case Kind::kCall:
      return evaluate_call(expression, scope);
    case Kind::kFilter:
      return evaluate_filter(expression, scope);
    case Kind::kTest: {
      const Value value = evaluate(*expression.children[0], scope);
      return Value(call_test(*this, expression.name, value, evaluate_arguments(expression, scope)));
    }
    case Kind::kConditional:
      return evaluate_conditional(expression, scope);
    case Kind::kComparison:
      return evaluate_comparison(expression, scope);
    case Kind::kConcat:
      return evaluate_concat(expression, scope);
    default:
      return evaluate_operation(expression, scope);
  }
}

Value Evaluator::evaluate_operation(const Expression& expression, Scope& scope) {
  Value first = evaluate(*expression.children[0], scope);
  switch (expression.kind) {
    case Kind::kNot:
      return Value(!truth(first));
    case Kind::kNegative:
      return negative(first);
    case Kind::kPositive: {
      int64_t whole = 0;
      return first.integer(whole) ? Value(whole) : negative(negative(first));
    }
    case Kind::kAnd:
      return truth(first) ? evaluate(*expression.children[1], scope) : first;
    case Kind::kOr:
      return truth(first) ? first : evaluate(*expression.children[1], scope);
    default:
      return arithmetic(heap_, expression.operators[0], first,
                        evaluate(*expression.children[1], scope));
  }
}

Value Evaluator::evaluate_name(const Expression& expression, Scope& scope) {
  if (const Value* const found = scope.find(expression.name)) return *found;
  if (Object* const known = global(heap_, expression.name)) return Value(known);
  return heap_.undefined(fmt::format("{} is undefined", quote_name(expression.name, 60)));
}

Value Evaluator::evaluate_items(const Expression& expression, Scope& scope) {
  Values items(heap_);
  items.reserve(expression.children.size());
  for (const auto& child : expression.children) items.push_back(evaluate(*child, scope));
  if (expression.kind == Kind::kList) return heap_.list(std::move(items));
  if (expression.kind == Kind::kTuple) return heap_.tuple(std::move(items));
  Entries entries(heap_);
  entries.reserve(items.size() / 2);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    entries.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  }
  return heap_.dictionary(std::move(entries));
}

Value Evaluator::evaluate_slice(const Expression& expression, Scope& scope) {
  const auto part = [&](std::size_t index) {
    const auto& child = expression.children[index];
    return child ? evaluate(*child, scope) : Value(None{});
  };
  const Value value = part(0);
  const Value begin = part(1);
  const Value end = part(2);
  return slice_of(heap_, value, begin, end, part(3));
}

Value Evaluator::evaluate_call(const Expression& expression, Scope& scope) {
  // Before anything inside is evaluated, which may call as well.
  const bool has_caller = std::exchange(has_caller_, false);
  const Value caller = has_caller ? extra_caller_ : Value();
  const Expression& function = *expression.children[0];
  const auto arguments = [&] {
    Arguments made = evaluate_arguments(expression, scope);
    if (has_caller) made.named.emplace_back(Bytes("caller", heap_), caller);
    line_ = expression.line;
    return made;
  };
  if (function.kind == Kind::kAttribute) {
    const Value self = evaluate(*function.children[0], scope);
    if (member_of(self, function.name) == Member::kMethod) {
      return call_method(*this, self, function.name, arguments());
    }
    const Value method = attribute_of(*this, self, function.name);
    return call(method, arguments());
  }
  const Value called = evaluate(function, scope);
  return call(called, arguments());
}

Value Evaluator::evaluate_filter(const Expression& expression, Scope& scope) {
  const auto& child = expression.children[0];
  const Value value = child ? evaluate(*child, scope) : block_;
  const Arguments arguments = evaluate_arguments(expression, scope);
  line_ = expression.line;
  return call_filter(*this, expression.name, value, arguments);
}

Value Evaluator::evaluate_comparison(const Expression& expression, Scope& scope) {
  Value left = evaluate(*expression.children[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(*expression.children[i + 1], scope);
    if (!compare(heap_, expression.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::evaluate_concat(const Expression& expression, Scope& scope) {
  List<String> parts(heap_);
  std::size_t size = 0;
  for (const auto& child : expression.children) {
    parts.push_back(to_text(heap_, evaluate(*child, scope)));
    size += parts.back()->size();
  }
  TextBuilder text(heap_);
  text.reserve(size);
  for (const String& part : parts) text.append(*part);
  return heap_.text(text);
}

Value Evaluator::evaluate_conditional(const Expression& expression, Scope& scope) {
  if (truth(evaluate(*expression.children[1], scope))) {
    return evaluate(*expression.children[0], scope);
  }
  const auto& otherwise = expression.children[2];
  if (otherwise) return evaluate(*otherwise, scope);
  return heap_.undefined("a condition without else is false");
}

Arguments Evaluator::evaluate_arguments(const Expression& expression, Scope& scope) {
  Arguments arguments(heap_);
  for (const Argument& argument : expression.arguments) {
    Value value = evaluate(*argument.value, scope);
    switch (argument.kind) {
      case Argument::Kind::kPositional:
        arguments.positional.push_back(std::move(value));
        break;
      case Argument::Kind::kNamed:
        arguments.named.emplace_back(Bytes(argument.name, heap_), std::move(value));
        break;
      case Argument::Kind::kList:
        for (Value& item : items_of(heap_, value)) arguments.positional.push_back(std::move(item));
        break;
      case Argument::Kind::kDictionary:
        if (value.dictionary() == nullptr) refuse(kType, "** takes a dict");
        for (const auto& [key, item] : value.dictionary()->entries(heap_)) {
          if (key.string() == nullptr) refuse(kType, "** takes a dict with names");
          arguments.named.emplace_back(Bytes(key.string()->bytes(heap_), heap_), item);
        }
        break;
    }
  }
  return arguments;
}

}  // namespace subbyte::jinja
