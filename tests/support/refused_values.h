#pragma once
// Values of config.json that are refused by the name of their key.

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "support/model_configs.h"

namespace subbyte::testing {

struct RefusedValue {
  const char* family;  // or the config of one
  const char* key;
  const char* value;  // JSON, perhaps with other keys after it
  const char* code;
  const char* named = key;
};

/// Checks that configs which are taken are refused with each value. `config_of` makes one of
/// RefusedValue::family.
template <class ConfigOf>
void expect_refused(std::span<const RefusedValue> all, const ConfigOf& config_of) {
  for (const auto& [family, key, value, code, named] : all) {
    const std::string base = config_of(family);
    const auto config = changed(base.c_str(), std::string("{\"") + key + "\": " + value + "}");
    ASSERT_FALSE(config.ok()) << family << " " << key << " " << value;
    EXPECT_EQ(config.error().code, code) << family << " " << key << " " << value;
    EXPECT_NE(config.error().message.find(named), std::string::npos) << config.error().message;
  }
}

}  // namespace subbyte::testing
