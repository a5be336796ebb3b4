// The interface as a whole: its list of functions, its numbers and names, errors of threads.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "formats/format.h"
#include "subbyte/version.h"
#include "support/c_handles.h"
#include "support/paths.h"

namespace subbyte::testing {
namespace {

std::vector<std::string> functions_of_headers() {
  const auto project = std::filesystem::path(SUBBYTE_TEST_DATA) / "../..";
  std::ostringstream text;
  for (const char* name : {"subbyte.h", "subbyte_models.h"}) {
    text << std::ifstream(project / "include/subbyte" / name).rdbuf();
  }
  const std::string header = text.str();
  const std::regex pattern(R"(SUBBYTE_API [a-z0-9_ *]*?(subbyte_[a-z0-9_]+)\()");
  std::vector<std::string> names;
  for (std::sregex_iterator i(header.begin(), header.end(), pattern), end; i != end; ++i) {
    names.push_back((*i)[1]);
  }
  return names;
}

TEST(CFunctions, are_those_of_the_headers) {
  const std::vector<std::string> listed = {
#define SUBBYTE_C_FUNCTION(name) #name,
#include "c_interface/functions.def"
#undef SUBBYTE_C_FUNCTION
  };
  EXPECT_EQ(functions_of_headers(), listed);
}

/// A call in which every argument is 0.
template <typename Result, typename... Args>
void call_with_nothing(const char* name, Result (*function)(Args...)) {
  if constexpr (std::is_same_v<Result, int> && sizeof...(Args) > 0) {
    EXPECT_NE(function(Args{}...), SUBBYTE_OK) << name;
    EXPECT_NE(std::string(subbyte_last_error()), "") << name;
    EXPECT_EQ(std::string(subbyte_last_error()).find('\n'), std::string::npos) << name;
  } else {
    static_cast<void>(function(Args{}...));
  }
}

TEST(CFunctions, refuse_nothing_at_all) {
#define SUBBYTE_C_FUNCTION(name) call_with_nothing(#name, &name);
#include "c_interface/functions.def"
#undef SUBBYTE_C_FUNCTION
}

TEST(CFormats, have_the_numbers_and_names_of_the_library) {
  for (const FormatInfo* format : all_formats()) {
    const std::string name(format->name);
    int32_t number = 0;
    ASSERT_EQ(subbyte_find_format(name.c_str(), &number), SUBBYTE_OK);
    EXPECT_EQ(number, format->id == Format::kIQ4 ? 33 : static_cast<int32_t>(format->id));
    EXPECT_EQ(subbyte_format_name(number), name);
  }
  // The numbers of programs that are compiled already.
  const std::pair<int32_t, const char*> kept[] = {
      {SUBBYTE_F32, "f32"},   {SUBBYTE_BF16, "bf16"}, {SUBBYTE_E2M1, "e2m1"},
      {SUBBYTE_E4M4, "e4m4"}, {SUBBYTE_U4, "u4"},     {SUBBYTE_U8, "u8"},
      {SUBBYTE_I2, "i2"},     {SUBBYTE_NF4, "nf4"},   {SUBBYTE_NFL5, "nfl5"},
      {SUBBYTE_VQ2, "vq2"},   {SUBBYTE_VQ4, "vq4"},   {SUBBYTE_U16, "u16"},
      {SUBBYTE_I32, "i32"},   {SUBBYTE_U32, "u32"},   {SUBBYTE_IQ4, "iq4"}};
  int32_t number = 0;
  for (const auto& [expected, name] : kept) {
    EXPECT_STREQ(subbyte_format_name(expected), name);
    EXPECT_EQ(subbyte_find_format(name, &number), SUBBYTE_OK);
    EXPECT_EQ(number, expected);
  }
  for (int32_t any = SUBBYTE_F32; any <= SUBBYTE_IQ4; ++any) {
    EXPECT_NE(subbyte_format_name(any), nullptr) << any;
  }
  EXPECT_EQ(subbyte_format_name(0), nullptr);
  EXPECT_EQ(subbyte_format_name(1000), nullptr);
  EXPECT_EQ(subbyte_find_format("u9", &number), SUBBYTE_ARGUMENT);
  EXPECT_STREQ(subbyte_last_error(), "name: expected the name of a format, found \"u9\"");
  expect_nulls_refused("subbyte_find_format", &subbyte_find_format, {}, {"u4", &number});
}

TEST(CVersion, is_that_of_the_library) {
  EXPECT_EQ(subbyte_version(), subbyte::version());
  EXPECT_EQ(subbyte_commit(), subbyte::commit());
  EXPECT_EQ(subbyte_version_number(), SUBBYTE_HEADER_VERSION);
  int major = 0, minor = 0, patch = 0;
  ASSERT_EQ(std::sscanf(subbyte_version(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_EQ(SUBBYTE_HEADER_VERSION, 10000 * major + 100 * minor + patch);
}

TEST(CErrors, are_those_of_the_thread) {
  int32_t number = 0;
  EXPECT_NE(subbyte_find_format("mine", &number), SUBBYTE_OK);
  std::thread([&] {
    EXPECT_STREQ(subbyte_last_error(), "");
    EXPECT_STREQ(subbyte_last_error_code(), "");
    EXPECT_NE(subbyte_find_format("yours", &number), SUBBYTE_OK);
    EXPECT_NE(std::string(subbyte_last_error()).find("yours"), std::string::npos);
  }).join();
  EXPECT_NE(std::string(subbyte_last_error()).find("mine"), std::string::npos);
  EXPECT_EQ(subbyte_find_format("u4", &number), SUBBYTE_OK);
  EXPECT_NE(std::string(subbyte_last_error()).find("mine"), std::string::npos) << "it stays";
}

TEST(CContext, takes_options_of_older_and_newer_programs) {
  struct Newer {
    subbyte_context_options known;
    int64_t unknown;
  } newer = {c_struct<subbyte_context_options>(), 0};
  newer.known.struct_size = sizeof newer;
  newer.known.num_threads = 1;
  subbyte_context* context = nullptr;
  ASSERT_EQ(subbyte_context_create(&newer.known, &context), SUBBYTE_OK) << subbyte_last_error();
  subbyte_context_destroy(context);
  newer.unknown = 1;
  EXPECT_EQ(code_of(subbyte_context_create(&newer.known, &context)), "c.struct_size");
  auto older = c_struct<subbyte_context_options>();
  older.isa = "none";
  EXPECT_EQ(code_of(subbyte_context_create(&older, &context)), "isa.unknown");
  older.struct_size = offsetof(subbyte_context_options, isa);
  older.num_threads = 1;
  ASSERT_EQ(subbyte_context_create(&older, &context), SUBBYTE_OK) << subbyte_last_error();
  subbyte_context_destroy(context);
  older.struct_size = 0;
  EXPECT_EQ(code_of(subbyte_context_create(&older, &context)), "c.struct_size");
  auto wrong = c_struct<subbyte_context_options>();
  wrong.precision = "f8";
  EXPECT_EQ(code_of(subbyte_context_create(&wrong, &context)), "c.argument");
  wrong = c_struct<subbyte_context_options>();
  wrong.num_threads = -1;
  EXPECT_EQ(code_of(subbyte_context_create(&wrong, &context)), "c.argument");
  ASSERT_EQ(subbyte_context_create(nullptr, &context), SUBBYTE_OK);
  char* json = nullptr;
  ASSERT_EQ(subbyte_devices(context, &json), SUBBYTE_OK);
  EXPECT_NE(std::string(json).find("\"device\":\"cpu\""), std::string::npos) << json;
  subbyte_free(json);
  expect_nulls_refused("subbyte_devices", &subbyte_devices, {}, {context, &json});
  expect_nulls_refused("subbyte_context_create", &subbyte_context_create, {0}, {nullptr, &context});
  subbyte_context_destroy(context);
}

}  // namespace
}  // namespace subbyte::testing
