#include "checkpoints/expert_names.h"

#include <fmt/format.h>

#include <charconv>

#include "base/quote.h"

namespace subbyte {
namespace {

constexpr std::string_view kExperts = "experts.";

}  // namespace

std::optional<ExpertName> parse_expert_name(std::string_view name) {
  const std::size_t experts = name.rfind(kExperts);
  if (experts == std::string_view::npos) return std::nullopt;
  const std::string_view rest = name.substr(experts + kExperts.size());
  int64_t expert = 0;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), expert);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  const bool leading_zero = digits > 1 && rest.front() == '0';
  if (failure != std::errc() || expert < 0 || leading_zero || rest.front() == '-' ||
      digits + 1 >= rest.size() || rest[digits] != '.') {
    return std::nullopt;
  }
  std::string stack(name.substr(0, experts + kExperts.size()));
  stack += rest.substr(digits + 1);
  return ExpertName{std::move(stack), expert};
}

Status check_gate_of_expert(const QuantizationConfig& config, std::string_view module) {
  if (!config.by_gptqmodel) return {};
  return Error{"model.unsupported",
               fmt::format("{}: {}: expected the rows of gate, found a half of the rows that gate "
                           "and up take in turns, which is what GPTQModel writes of such experts",
                           config.where, quote_name(module))};
}

std::string expert_name(std::string_view stack, int64_t expert) {
  const std::string number = std::to_string(expert);
  const std::size_t experts = stack.rfind(kExperts);
  if (experts == std::string_view::npos) return std::string(stack) + "." + number;
  const std::size_t end = experts + kExperts.size();
  return std::string(stack.substr(0, end)) + number + "." + std::string(stack.substr(end));
}

}  // namespace subbyte
