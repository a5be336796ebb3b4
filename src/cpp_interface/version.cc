#include "subbyte/version.h"

#include "base/version.h"

namespace subbyte::v0 {

std::string_view version() {
  return library_version();
}

std::string_view commit() {
  return library_commit();
}

}  // namespace subbyte::v0
