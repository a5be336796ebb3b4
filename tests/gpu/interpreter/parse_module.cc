// Modules: variables outside of functions, and where functions begin and end.
#include <algorithm>
#include <cctype>
#include <cstring>

#include "lexer.h"
#include "program.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

constexpr size_t kNowhere = std::string::npos;

/// A function in the text of a module.
struct Found {
  std::string_view result, parameters, directives, body;
};

/// The position after the bracket that closes the one at `open`.
size_t after_bracket(std::string_view text, size_t open, char opens, char closes) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == opens) ++depth;
    if (text[i] == closes && --depth == 0) return i + 1;
  }
  stop("a module ends within brackets");
}

/// Reads the function whose name is at `at`. Returns whether it has a body.
bool read_function(std::string_view text, size_t at, size_t name_end, Found& found) {
  const size_t line = text.rfind('\n', at) + 1;
  const std::string_view before = text.substr(line, at - line);
  if (before.find(".entry") == kNowhere && before.find(".func") == kNowhere) return false;
  if (const size_t open = before.find('('); open != kNowhere) {
    found.result = before.substr(open + 1, before.find(')') - open - 1);
  }
  size_t after = text.find_first_of("({;", name_end);
  if (text[after] == '(') {
    const size_t end = after_bracket(text, after, '(', ')');
    found.parameters = inside(text.substr(after, end - after));
    after = end;
  }
  const size_t body = text.find_first_of("{;", after);
  if (text[body] != '{') return false;
  found.directives = text.substr(after, body - after);
  found.body = inside(text.substr(body, after_bracket(text, body, '{', '}') - body));
  return true;
}

bool search_function(std::string_view text, std::string_view name, Found& found) {
  for (size_t at = text.find(name); at != kNowhere; at = text.find(name, at + 1)) {
    const size_t end = at + name.size();
    const bool whole = text[end] == '(' || std::isspace(static_cast<unsigned char>(text[end]));
    if (whole && read_function(text, at, end, found)) return true;
  }
  return false;
}

/// The product of the numbers after a directive such as .maxntid, or `otherwise`.
int product_of_directive(std::string_view directives, std::string_view name, int otherwise) {
  const size_t at = directives.find(name);
  if (at == kNowhere) return otherwise;
  std::string_view rest = directives.substr(at + name.size());
  rest = rest.substr(0, std::min(rest.find('.'), rest.size()));
  int product = 1;
  for (const std::string& number : arguments_of(trimmed(rest))) {
    product *= static_cast<int>(parse_number(number));
  }
  return product;
}

void read_parameters(Function& function, std::string_view list) {
  for (const std::string& text : arguments_of(list)) {
    const Declaration parameter = parse_declaration(text);
    function.parameters[parameter.name] = {parameter.place(function.parameter_bytes),
                                           parameter.bytes};
    function.parameter_names.push_back(parameter.name);
  }
}

/// Bytes of a variable with its first values, and some after it for loads of whole words.
std::vector<uint8_t> first_values(const Declaration& declaration, std::string_view values) {
  std::vector<uint8_t> bytes(declaration.bytes + 16);
  if (values.starts_with('{')) values = inside(values);
  size_t at = 0;
  for (const std::string& text : arguments_of(values)) {
    const uint64_t value = parse_number(text);
    std::memcpy(&bytes.at(at), &value, declaration.element_bytes);
    at += declaration.element_bytes;
  }
  return bytes;
}

void read_variable(Module& module, std::string_view statement) {
  const bool is_shared = statement.find(".shared") != kNowhere;
  const size_t equals = statement.find('=');
  const Declaration declaration = parse_declaration(statement.substr(0, equals));
  if (is_shared && declaration.is_open) {
    module.dynamic_shared.push_back(declaration.name);
  } else if (is_shared) {
    module.shared[declaration.name] = {declaration.place(module.shared_bytes), declaration.bytes};
  } else {
    const std::string_view values =
        equals == kNowhere ? std::string_view() : trimmed(statement.substr(equals + 1));
    module.globals[declaration.name] = first_values(declaration, values);
  }
}

bool declares_variable(std::string_view statement) {
  for (const char* other : {".func", ".entry", ".param", ".version"}) {
    if (statement.find(other) != kNowhere) return false;
  }
  for (const char* space : {".shared ", ".global ", ".const "}) {
    if (statement.find(space) != kNowhere) return true;
  }
  return false;
}

}  // namespace

void read_variables(Module& module) {
  const std::string_view text = module.text;
  size_t i = 0;
  while (i < text.size()) {
    // A function, its head included, or a statement.
    const size_t line = text.find_first_not_of(" \t\n", i);
    if (line == kNowhere) return;
    const size_t line_end = std::min(text.find('\n', line), text.size());
    const std::string_view first = text.substr(line, line_end - line);
    const size_t end = text.find(';', line);
    if (declares_variable(first) && end != kNowhere) {
      read_variable(module, text.substr(line, end - line));
      i = end + 1;
    } else if (first.starts_with("{")) {
      i = after_bracket(text, line, '{', '}');
    } else {
      i = line_end + 1;
    }
  }
}

const Function* find_function(Module& module, const std::string& name) {
  if (const auto known = module.functions.find(name); known != module.functions.end()) {
    return known->second.get();
  }
  Found found;
  if (!search_function(module.text, name, found)) return nullptr;
  auto made = std::make_unique<Function>();
  Function& function = *made;
  module.functions[name] = std::move(made);  // known to calls of itself
  function.module = &module;
  function.name = name;
  function.max_threads = product_of_directive(found.directives, ".maxntid", 1024);
  function.cluster = product_of_directive(found.directives, ".reqnctapercluster", 1);
  function.shared_bytes = module.shared_bytes;
  read_parameters(function, found.parameters);
  if (!trimmed(found.result).empty()) {
    const Declaration result = parse_declaration(found.result);
    function.arguments[result.name] = {result.place(function.argument_bytes), result.bytes};
  }
  read_body(function, found.body);
  return &function;
}

}  // namespace subbyte::interpreter
