// plugin_host PLUGIN MODEL: loads the shared library as Python does and runs its function.

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  void* const plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) {
    std::fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  using Continue = int(const char*, const char*, char*, std::size_t);
  Continue* function = nullptr;
  void* const found = dlsym(plugin, "plugin_continue");
  static_assert(sizeof(function) == sizeof(found));
  std::memcpy(&function, &found, sizeof(function));
  if (function == nullptr) return 1;
  char text[256];
  const int status = function(argv[2], "Mr. Sherlock", text, sizeof text);
  std::printf("%s\n", text);
  return status != 0 || std::strncmp(text, " Holmes", 7) != 0;
}
