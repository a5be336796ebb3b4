// The public headers in a project that adds the sources.

#include <subbyte/session.h>
#include <subbyte/transform.h>

#include <cstdio>

#if __has_include("base/status.h")
#error "the headers of layers are on the include path"
#endif

int main() {
  if (subbyte::Session::open("none").ok()) return 1;
  return std::puts(std::string(subbyte::version()).c_str()) < 0;
}
