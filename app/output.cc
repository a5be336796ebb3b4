#include "app/output.h"

#include <nlohmann/json.hpp>

namespace subbyte::app {

void print(std::FILE* to, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), to);
}

std::string json_text(const nlohmann::ordered_json& object, int indent) {
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  return object.dump(indent, ' ', /*ensure_ascii=*/true, kReplace) + "\n";
}

}  // namespace subbyte::app
