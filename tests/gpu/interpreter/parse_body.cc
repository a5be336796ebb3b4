// The body of a function: declarations, labels, instructions with their operands, and scopes.
#include <algorithm>
#include <cctype>

#include "lexer.h"
#include "program.h"
#include "report.h"

namespace subbyte::interpreter {
namespace {

class BodyReader {
 public:
  explicit BodyReader(Function& function) : function_(function) {}

  void read(std::string_view body);

 private:
  void open_scope();
  void close_scope() { scope_ = scopes_[scope_].parent; }
  /// Skips what begins at `i` and is no part of a statement. Returns whether there was something.
  bool skip(std::string_view body, size_t& i);
  bool read_label(std::string_view name);
  void read_statement(std::string_view statement);
  void declare(std::string_view statement);
  void declare_registers(std::string_view names);
  void add_instruction(std::string_view text);
  void read_call(Instruction& instruction, std::string_view rest);
  void resolve_branches();

  int known_register(const std::string& name) const;
  int register_named(const std::string& name);
  Operand operand(std::string_view text);
  Operand address(std::string_view text);
  Operand pair(std::string_view first, std::string_view second);
  Operand symbol(const std::string& name) const;

  struct Scope {
    int parent = -1;
    std::unordered_map<std::string, int> registers;
    std::unordered_map<std::string, int> labels;
  };
  Function& function_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);
  int scope_ = 0;
};

void BodyReader::open_scope() {
  scopes_.push_back({scope_, {}, {}});
  scope_ = static_cast<int>(scopes_.size()) - 1;
}

bool BodyReader::skip(std::string_view body, size_t& i) {
  const std::string_view rest = body.substr(i);
  if (rest.starts_with("//") || rest.starts_with(".loc\t") || rest.starts_with(".loc ") ||
      rest.starts_with(".file\t") || rest.starts_with(".file ")) {
    i = std::min(body.find('\n', i), body.size());
  } else if (rest.starts_with("/*")) {
    i = body.find("*/", i) + 2;
  } else {
    return false;
  }
  return true;
}

void BodyReader::read(std::string_view body) {
  std::string current;
  size_t i = 0;
  while (i < body.size()) {
    const char c = body[i];
    const bool is_start = trimmed(current).empty();
    if ((c == '/' || (c == '.' && is_start)) && skip(body, i)) continue;
    ++i;
    if (is_start && c == '{') {
      open_scope();
    } else if (is_start && c == '}') {
      close_scope();
    } else if (c == ';') {
      read_statement(trimmed(current));
    } else if (c == ':' && i < body.size() && body[i] != ':' && read_label(trimmed(current))) {
    } else {
      current += c;
      continue;
    }
    current.clear();
  }
  resolve_branches();
  add_instruction("ret");
}

bool BodyReader::read_label(std::string_view name) {
  if (name.find_first_of(" \t.,:") != std::string_view::npos) return false;
  scopes_[scope_].labels[std::string(name)] = static_cast<int>(function_.code.size());
  return true;
}

void BodyReader::read_statement(std::string_view statement) {
  if (statement.empty() || statement.starts_with(".pragma")) return;
  if (statement[0] == '.') {
    declare(statement);
  } else {
    add_instruction(statement);
  }
}

/// Registers are made when they are first named, but for those of a scope: ".reg .b32 %r<9>" only
/// says how many there are.
void BodyReader::declare_registers(std::string_view names) {
  for (const std::string& name : arguments_of(names)) {
    if (name.find('<') == std::string::npos) {
      scopes_[scope_].registers.emplace(name, function_.num_registers++);
    }
  }
}

void BodyReader::declare(std::string_view statement) {
  const std::vector<std::string> words = words_of(statement);
  if (words[0] == ".reg") {
    declare_registers(statement.substr(statement.find(words[1]) + words[1].size()));
    return;
  }
  Declaration declaration = parse_declaration(statement);
  const auto add = [&](Variables& variables, uint64_t& end) {
    variables[declaration.name] = {declaration.place(end), declaration.bytes};
  };
  if (words[0] == ".shared") {
    add(function_.shared, function_.shared_bytes);
  } else if (words[0] == ".local") {
    add(function_.locals, function_.local_bytes);
  } else if (words[0] == ".param") {
    // Calls have arguments of the same names, one after the other.
    const auto known = function_.arguments.find(declaration.name);
    if (known != function_.arguments.end() && known->second.bytes >= declaration.bytes) return;
    declaration.alignment = std::max<uint64_t>(declaration.alignment, 16);
    add(function_.arguments, function_.argument_bytes);
  } else {
    stop("no such declaration is known: %s", std::string(statement).c_str());
  }
}

int BodyReader::known_register(const std::string& name) const {
  for (int scope = scope_; scope >= 0; scope = scopes_[scope].parent) {
    const auto found = scopes_[scope].registers.find(name);
    if (found != scopes_[scope].registers.end()) return found->second;
  }
  return -1;
}

int BodyReader::register_named(const std::string& name) {
  if (const int known = known_register(name); known >= 0) return known;
  scopes_[0].registers.emplace(name, function_.num_registers);
  return function_.num_registers++;
}

Operand BodyReader::symbol(const std::string& name) const {
  const struct {
    const Variables& variables;
    OperandKind kind;
  } places[] = {{function_.parameters, OperandKind::kParameter},
                {function_.arguments, OperandKind::kArgument},
                {function_.locals, OperandKind::kLocal},
                {function_.shared, OperandKind::kShared},
                {function_.module->shared, OperandKind::kShared}};
  Operand operand;
  for (const auto& place : places) {
    if (const auto found = place.variables.find(name); found != place.variables.end()) {
      operand.kind = place.kind;
      operand.value = found->second.offset;
      return operand;
    }
  }
  const auto& dynamic = function_.module->dynamic_shared;
  const auto global = function_.module->globals.find(name);
  if (std::find(dynamic.begin(), dynamic.end(), name) != dynamic.end()) {
    operand.kind = OperandKind::kDynamicShared;
  } else if (global != function_.module->globals.end()) {
    operand.kind = OperandKind::kNumber;
    operand.value = reinterpret_cast<uint64_t>(global->second.data());
  } else {
    stop("'%s' is declared nowhere in %s", name.c_str(), function_.name.c_str());
  }
  return operand;
}

/// What is inside the brackets of [%rd1+16] or, of a tensor map, [%rd1, {%r1, %r2}].
Operand BodyReader::address(std::string_view text) {
  const std::vector<std::string> parts = arguments_of(text);
  std::string_view base = parts[0];
  const size_t plus = base.find('+');
  Operand found = operand(trimmed(base.substr(0, plus)));
  if (plus != std::string_view::npos) found.value += parse_number(trimmed(base.substr(plus + 1)));
  if (parts.size() > 1) found.parts.push_back(operand(parts[1]));
  return found;
}

Operand BodyReader::pair(std::string_view first, std::string_view second) {
  Operand found = operand(first);
  const Operand other = operand(second);
  if (other.kind == OperandKind::kRegister) found.second = other.number;
  return found;
}

Operand BodyReader::operand(std::string_view text) {
  Operand found;
  if (text == "_") {
    found.kind = OperandKind::kSink;
  } else if (text[0] == '{') {
    found.kind = OperandKind::kVector;
    for (const std::string& part : arguments_of(inside(text))) {
      found.parts.push_back(operand(part));
    }
  } else if (text[0] == '[') {
    return address(inside(text));
  } else if (text[0] == '!') {
    found = operand(text.substr(1));
    found.negated = true;
  } else if (const size_t bar = text.find('|'); bar != std::string_view::npos) {
    return pair(text.substr(0, bar), text.substr(bar + 1));
  } else if (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-') {
    found.kind = OperandKind::kNumber;
    found.value = parse_number(text);
  } else if (const SpecialRegister special = find_special_register(text)) {
    found.kind = OperandKind::kSpecial;
    found.special = special;
  } else if (text[0] == '%' || known_register(std::string(text)) >= 0) {
    found.kind = OperandKind::kRegister;
    found.number = register_named(std::string(text));
  } else {
    return symbol(std::string(text));
  }
  return found;
}

/// call (result), function, (arguments);
void BodyReader::read_call(Instruction& instruction, std::string_view rest) {
  const auto offset_of = [&](const std::string& name) {
    const auto found = function_.arguments.find(name);
    if (found == function_.arguments.end()) stop("no argument '%s' of a call", name.c_str());
    return found->second.offset;
  };
  std::vector<std::string> parts = arguments_of(rest);
  if (parts[0][0] == '(') {
    instruction.has_result = true;
    instruction.result_offset = offset_of(std::string(trimmed(inside(parts[0]))));
    parts.erase(parts.begin());
  }
  instruction.callee = parts[0];
  if (parts.size() < 2) return;
  for (const std::string& name : arguments_of(inside(parts[1]))) {
    instruction.argument_offsets.push_back(offset_of(name));
  }
}

void BodyReader::add_instruction(std::string_view text) {
  Instruction instruction;
  instruction.text = text;
  instruction.scope = scope_;
  if (text[0] == '@') {
    const size_t end = text.find_first_of(" \t\n");
    std::string_view predicate = text.substr(1, end - 1);
    instruction.unless = predicate[0] == '!';
    if (instruction.unless) predicate.remove_prefix(1);
    instruction.predicate = register_named(std::string(predicate));
    text = trimmed(text.substr(end));
  }
  const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
  const std::string_view rest = trimmed(text.substr(end));
  instruction.words = parts_of(text.substr(0, end));
  read_words(instruction);
  if (instruction.execute == branch) {
    instruction.callee = rest;
  } else if (instruction.execute == call) {
    read_call(instruction, rest);
  } else if (instruction.execute != do_nothing) {
    for (const std::string& part : arguments_of(rest)) {
      instruction.operands.push_back(operand(part));
    }
  }
  function_.code.push_back(std::move(instruction));
}

void BodyReader::resolve_branches() {
  for (Instruction& instruction : function_.code) {
    if (instruction.execute != branch) continue;
    for (int scope = instruction.scope; scope >= 0; scope = scopes_[scope].parent) {
      const auto found = scopes_[scope].labels.find(instruction.callee);
      if (found == scopes_[scope].labels.end()) continue;
      instruction.target = found->second;
      break;
    }
    if (instruction.target < 0) stop("no label %s", instruction.callee.c_str());
  }
}

}  // namespace

void read_body(Function& function, std::string_view body) {
  BodyReader(function).read(body);
}

}  // namespace subbyte::interpreter
