// The tests that may stand after `is`.

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/quote.h"
#include "jinja/evaluator.h"
#include "jinja/filters.h"
#include "jinja/operations.h"

namespace subbyte::jinja {
namespace {

void check_no_arguments(const Arguments& arguments) {
  const Bound bound("the test", arguments, {}, 0);
}

const Value& other_of(const Arguments& arguments) {
  if (arguments.positional.size() != 1 || !arguments.named.empty()) {
    refuse(kType, "the test takes one value");
  }
  return arguments.positional[0];
}

template <bool (*fits)(const Value&)>
bool run_kind(Evaluator&, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  return fits(value);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.is<bool>();
}
bool is_true(const Value& value) {
  return value.is<bool>() && *value.as<bool>();
}
bool is_false(const Value& value) {
  return value.is<bool>() && !*value.as<bool>();
}
bool is_integer(const Value& value) {
  return value.is<int64_t>() || value.is<LongInteger>();
}
bool is_float(const Value& value) {
  return value.is<double>();
}
bool is_any_number(const Value& value) {
  return is_numeric(value);
}
bool is_string(const Value& value) {
  return value.string() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dictionary() != nullptr;
}
bool is_callable(const Value& value) {
  return value.object() != nullptr && value.object()->is_callable();
}
bool is_escaped(const Value& value) {
  return value.string() != nullptr && value.string()->is_markup;
}
bool is_sequence(const Value& value) {
  const Sequence* const sequence = value.sequence();
  if (sequence != nullptr) return sequence->kind() <= SequenceKind::kRange;
  return value.string() != nullptr || value.dictionary() != nullptr || value.is_undefined();
}

template <Operator operation>
bool run_comparison(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return compare(evaluator.heap(), operation, value, other_of(arguments));
}

Value rest(Evaluator& evaluator, const Value& value, const Value& divisor) {
  return arithmetic(evaluator.heap(), Operator::kModulo, value, divisor);
}

bool run_odd(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  return equal(evaluator.heap(), rest(evaluator, value, Value(int64_t{2})), Value(int64_t{1}));
}

bool run_even(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  return equal(evaluator.heap(), rest(evaluator, value, Value(int64_t{2})), Value(int64_t{0}));
}

bool run_divisible(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  return equal(evaluator.heap(), rest(evaluator, value, other_of(arguments)), Value(int64_t{0}));
}

bool run_lower(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  Heap& heap = evaluator.heap();
  return *answer_of_text("islower", to_text(heap, value).letters(heap));
}

bool run_upper(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  Heap& heap = evaluator.heap();
  return *answer_of_text("isupper", to_text(heap, value).letters(heap));
}

/// Python's `is`: the same object. Values without an identity of their own are compared.
bool run_sameas(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  const Value& other = other_of(arguments);
  if (value.state().index() != other.state().index()) return false;
  if (value.sequence() != nullptr) return value.sequence() == other.sequence();
  if (value.dictionary() != nullptr) return value.dictionary() == other.dictionary();
  return equal(evaluator.heap(), value, other);
}

bool run_filter(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  Heap& heap = evaluator.heap();
  return is_filter(to_text(heap, value).bytes(heap));
}

bool run_test(Evaluator& evaluator, const Value& value, const Arguments& arguments) {
  check_no_arguments(arguments);
  Heap& heap = evaluator.heap();
  return is_test(to_text(heap, value).bytes(heap));
}

constexpr Test kTests[] = {{"defined", run_kind<is_defined>},
                           {"undefined", run_kind<is_undefined>},
                           {"none", run_kind<is_none>},
                           {"boolean", run_kind<is_boolean>},
                           {"true", run_kind<is_true>},
                           {"false", run_kind<is_false>},
                           {"integer", run_kind<is_integer>},
                           {"float", run_kind<is_float>},
                           {"number", run_kind<is_any_number>},
                           {"string", run_kind<is_string>},
                           {"mapping", run_kind<is_mapping>},
                           {"sequence", run_kind<is_sequence>},
                           {"iterable", run_kind<is_iterable>},
                           {"callable", run_kind<is_callable>},
                           {"escaped", run_kind<is_escaped>},
                           {"odd", run_odd},
                           {"even", run_even},
                           {"divisibleby", run_divisible},
                           {"lower", run_lower},
                           {"upper", run_upper},
                           {"sameas", run_sameas},
                           {"filter", run_filter},
                           {"test", run_test},
                           {"in", run_comparison<Operator::kIn>},
                           {"eq", run_comparison<Operator::kEqual>},
                           {"equalto", run_comparison<Operator::kEqual>},
                           {"==", run_comparison<Operator::kEqual>},
                           {"ne", run_comparison<Operator::kNotEqual>},
                           {"!=", run_comparison<Operator::kNotEqual>},
                           {"lt", run_comparison<Operator::kLess>},
                           {"lessthan", run_comparison<Operator::kLess>},
                           {"<", run_comparison<Operator::kLess>},
                           {"le", run_comparison<Operator::kLessEqual>},
                           {"<=", run_comparison<Operator::kLessEqual>},
                           {"gt", run_comparison<Operator::kGreater>},
                           {"greaterthan", run_comparison<Operator::kGreater>},
                           {">", run_comparison<Operator::kGreater>},
                           {"ge", run_comparison<Operator::kGreaterEqual>},
                           {">=", run_comparison<Operator::kGreaterEqual>}};

}  // namespace

std::vector<std::string_view> test_names() {
  std::vector<std::string_view> names;
  for (const Test& test : kTests) names.push_back(test.name);
  return names;
}

bool is_test(std::string_view name) {
  return std::ranges::find(kTests, name, &Test::name) != std::end(kTests);
}

bool call_test(Evaluator& evaluator, std::string_view name, const Value& value,
               const Arguments& arguments) {
  evaluator.heap().step();
  const auto* const test = std::ranges::find(kTests, name, &Test::name);
  if (test == std::end(kTests)) {
    refuse(kSyntax, fmt::format("there is no test {}", quote(name)));
  }
  return test->run(evaluator, value, arguments);
}

}  // namespace subbyte::jinja
