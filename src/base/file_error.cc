#include "base/file_error.h"

#include <cerrno>
#include <cstring>

namespace subbyte {
namespace {

std::string_view code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return "file.not_found";
    case EACCES:
    case EPERM:
    case EROFS:
      return "file.permission";
    case EEXIST:
      return "file.exists";
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return "file.no_space";
    default:
      return "file.io";
  }
}

}  // namespace

Error file_error(int error_number, const std::filesystem::path& path, std::string_view action) {
  char buffer[128];
  std::string message = path.native();
  message.append(": cannot ").append(action).append(": ");
  message.append(strerror_r(error_number, buffer, sizeof buffer));  // the GNU one: returns text
  return {code_of(error_number), std::move(message)};
}

}  // namespace subbyte
