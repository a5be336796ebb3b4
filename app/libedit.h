#pragma once
// libedit, loaded when a person types: where it is not installed, the program and the module of
// Python run all the same and read lines as they come.

#include <histedit.h>

namespace subbyte::app {

#define SUBBYTE_LIBEDIT_FUNCTIONS(function)                                                      \
  function(el_cursor) function(el_deletestr) function(el_end) function(el_get) function(el_gets) \
      function(el_init) function(el_insertstr) function(el_line) function(el_set)                \
          function(el_wgetc) function(el_winsertstr) function(history) function(history_end)     \
              function(history_init)

/// Its functions, by their own names.
struct Libedit {
#define SUBBYTE_MEMBER(name) decltype(&::name) name = nullptr;
  SUBBYTE_LIBEDIT_FUNCTIONS(SUBBYTE_MEMBER)
#undef SUBBYTE_MEMBER
};

/// Null where this machine has no libedit. Stays loaded.
const Libedit* libedit();

}  // namespace subbyte::app
