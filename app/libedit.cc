#include "app/libedit.h"

#include <dlfcn.h>

#include <optional>

namespace subbyte::app {
namespace {

std::optional<Libedit> load() {
  void* library = nullptr;
  for (const char* name : {"libedit.so.2", "libedit.so.0"}) {  // Debian's, and that of others
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return std::nullopt;
  Libedit functions;
  bool complete = true;
#define SUBBYTE_LOAD(name)                                                            \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(library, #name)); \
  complete = complete && functions.name != nullptr;
  SUBBYTE_LIBEDIT_FUNCTIONS(SUBBYTE_LOAD)
#undef SUBBYTE_LOAD
  if (!complete) return std::nullopt;
  return functions;
}

}  // namespace

const Libedit* libedit() {
  static const std::optional<Libedit> loaded = load();
  return loaded ? &*loaded : nullptr;
}

}  // namespace subbyte::app
