#pragma once
// What the parts of malformed_set.cc share: text of headers, and a list that names its cases.

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoints/containers/safetensors_codes.h"
#include "conformance/malformed_set.h"
#include "support/safetensors_bytes.h"

namespace subbyte::conformance {

/// "n_07_name" or "y_00_name".
inline std::string case_name(int number, std::string_view name, std::string_view code) {
  std::string text = code.empty() ? "y_" : "n_";
  text += static_cast<char>('0' + number / 10);
  text += static_cast<char>('0' + number % 10);
  return text.append("_").append(name);
}

class CaseList {
 public:
  /// All cases that follow are of this class and have this code.
  void section(int number, std::string_view code) {
    number_ = number;
    code_ = code;
  }
  void add(std::string_view name, std::string bytes) { add(name, std::move(bytes), code_); }
  void add(std::string_view name, std::string bytes, std::string_view code) {
    cases_.push_back({case_name(number_, name, code), number_, std::move(bytes), code});
  }
  std::vector<FileCase> take() { return std::move(cases_); }

 private:
  std::vector<FileCase> cases_;
  int number_ = kControl;
  std::string_view code_;
};

/// "name":{"dtype":...,"shape":...,"data_offsets":...}, all parts as JSON text.
inline std::string raw_entry(std::string_view name, std::string_view dtype, std::string_view shape,
                             std::string_view offsets) {
  return std::string(name)
      .append(R"(:{"dtype":)")
      .append(dtype)
      .append(R"(,"shape":)")
      .append(shape)
      .append(R"(,"data_offsets":)")
      .append(offsets)
      .append("}");
}

/// The same with a plain name and dtype.
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::string_view offsets) {
  const auto quoted = [](std::string_view text) { return '"' + std::string(text) + '"'; };
  return raw_entry(quoted(name), quoted(dtype), shape, offsets);
}

/// A file with these members in its header and `data_size` bytes of data.
inline std::string file(std::initializer_list<std::string> members, std::size_t data_size) {
  std::string header = "{";
  for (const std::string& member : members) header += (header.size() > 1 ? "," : "") + member;
  return safetensors_bytes(header + "}", sample_data(data_size));
}

/// Two tensors, 12 bytes of data.
inline std::string valid_file() {
  return file({entry("a", "F32", "[2]", "[0,8]"), entry("b", "F16", "[2]", "[8,12]")}, 12);
}

/// `count` times `text`.
inline std::string repeat(std::string_view text, std::size_t count) {
  std::string all;
  for (std::size_t i = 0; i < count; ++i) all += text;
  return all;
}

void add_controls(CaseList& list);     // malformed_controls.cc
void add_framing(CaseList& list);      // malformed_framing.cc, classes 1 to 11
void add_header_text(CaseList& list);  // malformed_text.cc, classes 12 to 22
void add_names(CaseList& list);        // malformed_names.cc, classes 23 to 30
void add_entries(CaseList& list);      // malformed_entries.cc, classes 31 to 42
void add_offsets(CaseList& list);      // malformed_offsets.cc, classes 43 to 55

}  // namespace subbyte::conformance
