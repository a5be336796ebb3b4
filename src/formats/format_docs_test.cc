#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include "formats/format.h"
#include "support/paths.h"

namespace subbyte {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

const char* specials(const FormatInfo& format) {
  switch (format.specials) {
    case Specials::kNone:
      return "none";
    case Specials::kNan:
      return "NaN";
    case Specials::kNanInfinity:
      break;
  }
  return "NaN, infinity";
}

TEST(FormatDocs, table_has_one_row_for_each_format_in_order) {
  std::ifstream file(std::string(SUBBYTE_TEST_DATA) + "/../../docs/formats.md");
  ASSERT_TRUE(file.is_open());
  std::stringstream buffer;
  buffer << file.rdbuf();
  const std::string text = buffer.str();
  std::size_t position = 0;
  for (const FormatInfo* format : all_formats()) {
    const std::string row = "\n|" + std::string(format->name) + "|" + std::to_string(format->bits) +
                            "|" + number(format->min) + "|" + number(format->max) + "|" +
                            specials(*format) + "|";
    const std::size_t found = text.find(row, position);
    ASSERT_NE(found, std::string::npos) << "docs/formats.md lacks, or has too early:" << row;
    position = found + row.size();
  }
  const std::size_t table_end = text.find("\n\n", position);
  EXPECT_EQ(text.substr(position, table_end - position).find('\n'), std::string::npos)
      << "docs/formats.md has rows that are no formats";
}

}  // namespace
}  // namespace subbyte
