#include "verify/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace subbyte {
namespace {

constexpr std::array kCodes = {
#define SUBBYTE_VERIFY_CODE(code, severity) VerifyCode{code, Severity::severity},
#include "verify/codes.def"
#undef SUBBYTE_VERIFY_CODE
};

/// What stands around the name of a tensor in messages of importers, and of the index of shards.
/// Those about one file are about the file first.
constexpr std::pair<std::string_view, std::string_view> kTensorMarks[] = {
    {"tensor \"", "\": "},
    {"tensor \"", "\" "},
};

Severity severity_of(std::string_view code) {
  const auto* const found = std::ranges::find(kCodes, code, &VerifyCode::code);
  return found == kCodes.end() ? Severity::kError : found->severity;
}

/// What follows "FILE: " in a message, where FILE is a path that ends in `where`.
std::string_view after_file(std::string_view message, std::string_view where) {
  const std::string file = fmt::format("{}: ", where);
  const auto at = message.find(file);
  return at == std::string_view::npos ? message : message.substr(at + file.size());
}

/// Messages read "WHAT: expected A, found B" where that says it, else anything.
void split(std::string_view message, Finding& finding) {
  constexpr std::string_view kExpected = "expected ";
  constexpr std::string_view kFound = ", found ";
  const auto expected = message.find(kExpected);
  const auto found = message.rfind(kFound);
  if (expected == std::string_view::npos || found == std::string_view::npos || found < expected) {
    finding.found = message;
    return;
  }
  const auto begin = expected + kExpected.size();
  finding.expected =
      fmt::format("{}{}", message.substr(0, expected), message.substr(begin, found - begin));
  finding.found = message.substr(found + kFound.size());
}

/// Of tensors that are missing, or are none of the model's, one line for all whose names differ in
/// numbers alone: what is wrong is how they are named.
std::vector<Finding> join_alike(std::vector<Finding> findings) {
  std::map<std::pair<std::string, std::string>, std::size_t> first_of;  // place in `joined`
  std::vector<std::pair<Finding, std::size_t>> joined;                  // with how many there are
  for (Finding& finding : findings) {
    const bool may_join = finding.code == "import.missing" || finding.code == "model.surplus";
    const auto [found, is_new] =
        may_join ? first_of.try_emplace({finding.code, tensor_kind(finding.where)}, joined.size())
                 : std::pair(first_of.end(), true);
    if (is_new) {
      joined.emplace_back(std::move(finding), 1);
    } else {
      ++joined[found->second].second;
    }
  }
  std::vector<Finding> result;
  for (auto& [finding, count] : joined) {
    if (count > 1) finding.found += fmt::format(" (and {} more of this kind)", count - 1);
    result.push_back(std::move(finding));
  }
  return result;
}

}  // namespace

std::string tensor_kind(std::string_view name) {
  std::string kind;
  while (true) {
    const std::size_t dot = name.find('.');
    const std::string_view part = name.substr(0, dot);
    const bool is_number =
        !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    kind += is_number ? "#" : part;
    if (dot == std::string_view::npos) return kind;
    kind += '.';
    name.remove_prefix(dot + 1);
  }
}

std::span<const VerifyCode> verify_codes() {
  return kCodes;
}

void Findings::add(std::string_view code, std::string_view where, std::string expected,
                   std::string found) {
  findings_.push_back({std::string(code), severity_of(code), std::string(where),
                       std::move(expected), std::move(found)});
}

void Findings::add(const Error& error, std::string_view where) {
  Finding finding = {std::string(error.code), severity_of(error.code), std::string(where), {}, {}};
  std::string_view rest = after_file(error.message, where);
  for (const auto& [before, after] : kTensorMarks) {
    if (error.code.starts_with("safetensors.")) break;
    const auto at = error.message.find(before);
    const auto end = at == std::string::npos ? at : error.message.find(after, at + before.size());
    if (end == std::string::npos) continue;
    finding.where = error.message.substr(at + before.size(), end - at - before.size());
    rest = std::string_view(error.message).substr(end + after.size());
    break;
  }
  split(rest, finding);
  refused_.insert(finding.where);
  // Readers of one file meet the same.
  if (!messages_.insert(error.message).second) return;
  findings_.push_back(std::move(finding));
}

/// Messages have names in the form of quote_name.
bool Findings::has_refusal(std::string_view tensor) const {
  const std::string quoted = quote_name(tensor);
  return refused_.contains(std::string_view(quoted).substr(1, quoted.size() - 2));
}

bool Findings::has_errors() const {
  return std::ranges::find(findings_, Severity::kError, &Finding::severity) != findings_.end();
}

bool Findings::has(std::string_view code) const {
  return std::ranges::find(findings_, code, &Finding::code) != findings_.end();
}

std::vector<Finding> Findings::take() {
  std::ranges::stable_sort(findings_, {}, &Finding::severity);
  return join_alike(std::move(findings_));
}

}  // namespace subbyte

SUBBYTE_BEGIN_NAMESPACE

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      break;
  }
  return "note";
}

std::string to_string(const Finding& finding) {
  if (finding.expected.empty()) return finding.found;
  return fmt::format("expected {}, found {}", finding.expected, finding.found);
}

SUBBYTE_END_NAMESPACE
