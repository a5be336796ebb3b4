#pragma once
// The page of a server, for people with a browser. Its files lie in page/, and are in the program.

#include <string_view>

#include "http/message.h"

namespace subbyte::serve {

/// Texts of page/, put in by CMakeLists.txt.
extern const std::string_view kPageHtml;
extern const std::string_view kPageStyle;
extern const std::string_view kPageScript;

/// The page in one file, with a policy that lets it run its own script and ask this server.
http::Response page();

}  // namespace subbyte::serve
