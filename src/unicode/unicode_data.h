#pragma once
// Tables of the Unicode Character Database as tools/write_unicode_tables.py packs them. Only
// unicode.cc reads them.

#include <string_view>

namespace subbyte::unicode_data {

extern const std::string_view kCategoryRuns;    // runs
extern const std::string_view kScriptNames;     // "Hani=Han,...", by number
extern const std::string_view kScriptRuns;      // runs
extern const std::string_view kWidthRuns;       // runs
extern const std::string_view kLowerCase;       // mappings
extern const std::string_view kUpperCase;       // mappings
extern const std::string_view kTitleCase;       // mappings, where it is not the upper case
extern const std::string_view kFoldedCase;      // mappings, where it is not the lower case
extern const std::string_view kCaseRuns;        // runs: 1 upper, 2 lower
extern const std::string_view kNumericRuns;     // runs of NumericType
extern const std::string_view kIdentifierRuns;  // runs: 1 begins one, 2 goes on with one
extern const std::string_view kCombiningRuns;   // runs
extern const std::string_view kCanonical;       // mappings, one step
extern const std::string_view kCompatible;      // mappings, one step
extern const std::string_view kExcluded;        // mappings to nothing: never composed

}  // namespace subbyte::unicode_data
