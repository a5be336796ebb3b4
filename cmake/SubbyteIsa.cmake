# SUBBYTE_ISAS: the tiers of CPU kernels that are built, besides scalar. A tier takes half a minute
# to more than a minute, so what runs on this machine only need not have them all.
set(SUBBYTE_ISAS all CACHE STRING
  "CPU kernels to build: all, native (the best here), runnable (all that run here), scalar, a list")

# A build that is used where it is made need not optimize what nobody runs there.
option(SUBBYTE_OTHER_ISAS_O0 "Compile CPU kernels without optimization that this machine cannot \
run, or, with SUBBYTE_ISAS=native, that it runs only when asked to" OFF)

file(GLOB subbyte_known_isas RELATIVE ${PROJECT_SOURCE_DIR}/src/kernels/cpu
  ${PROJECT_SOURCE_DIR}/src/kernels/cpu/*)
list(FILTER subbyte_known_isas EXCLUDE REGEX "[.]|generic")

set(subbyte_isas ${SUBBYTE_ISAS})
set(subbyte_isas_O0 "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(subbyte_isas scalar)  # the tiers are of x86-64; these kernels run anywhere
elseif(SUBBYTE_ISAS MATCHES "^(native|runnable)$" OR SUBBYTE_OTHER_ISAS_O0)
  try_run(subbyte_isa_status subbyte_isa_compiled
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/native_isa.cc ${PROJECT_SOURCE_DIR}/src/base/cpu_features.cc
    CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${PROJECT_SOURCE_DIR}/src
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
    RUN_OUTPUT_VARIABLE native_isas)
  if(NOT subbyte_isa_compiled OR NOT subbyte_isa_status EQUAL 0 OR
      NOT native_isas MATCHES "^best ([a-z0-9]+)\nothers ([a-z0-9;]*)\n$")
    message(FATAL_ERROR "SUBBYTE_ISAS=${SUBBYTE_ISAS}, SUBBYTE_OTHER_ISAS_O0: could not ask this "
      "machine; name a tier instead, or turn the latter off")
  endif()
  set(subbyte_isas_O0 ${CMAKE_MATCH_2})
  if(SUBBYTE_ISAS STREQUAL "native")
    set(subbyte_isas ${CMAKE_MATCH_1})
    set(subbyte_isas_O0 scalar)
    list(REMOVE_ITEM subbyte_isas_O0 ${subbyte_isas})
  elseif(SUBBYTE_ISAS STREQUAL "runnable")
    set(subbyte_isas ${subbyte_known_isas})
    list(REMOVE_ITEM subbyte_isas ${subbyte_isas_O0})
  endif()
  if(NOT SUBBYTE_OTHER_ISAS_O0)
    set(subbyte_isas_O0 "")
  endif()
  message(STATUS "CPU kernels: ${subbyte_isas}; without optimization: ${subbyte_isas_O0}")
endif()

foreach(isa IN LISTS subbyte_isas)
  if(NOT isa IN_LIST subbyte_known_isas AND NOT isa STREQUAL "all")
    message(FATAL_ERROR
      "SUBBYTE_ISAS: ${isa}: expected all, native, runnable or some of ${subbyte_known_isas}")
  endif()
endforeach()

# subbyte_isa(<layer> <isa> <flag>...) compiles cpu/<isa>/*.cc of the layer with the flags of that
# instruction set, or leaves them out when SUBBYTE_ISAS does not name it.
#
# Those files use no inline function that others share, of the standard library or of ours: the
# linker may keep the copy that was built with AVX-512 for everybody, and an older machine would
# die of it. A test (tools/check_isa_symbols.py) looks for such copies in the objects.
function(subbyte_isa layer isa)
  set(target subbyte_${layer})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpu/${isa}/*.cc)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes the deliberately undefined operands of its own AVX-512 headers for mistakes.
    list(APPEND ARGN -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  # Else M = 1 gains or loses up to 15 % with where its loop comes to lie.
  list(APPEND ARGN -falign-functions=64 -falign-loops=32)
  if(isa IN_LIST subbyte_isas_O0)
    list(APPEND ARGN -O0)
  endif()
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
  if(NOT isa IN_LIST subbyte_isas AND NOT subbyte_isas STREQUAL "all")
    if(isa STREQUAL "avx512" AND "${subbyte_isas}" MATCHES "avx512(vnni|bf16)")
      list(FILTER sources EXCLUDE REGEX "_vectors\\.cc$")  # these tiers share them
    endif()
    get_target_property(all ${target} SOURCES)
    list(REMOVE_ITEM all ${sources})
    set_target_properties(${target} PROPERTIES SOURCES "${all}")
    return()
  endif()
  string(TOUPPER ${isa} upper)
  # Of the one file that asks, so that another choice compiles that one again and not all kernels.
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/cpu/cpu_kernels.cc APPEND PROPERTY
    COMPILE_DEFINITIONS SUBBYTE_HAS_${upper})
  if(SUBBYTE_BUILD_TESTS)
    add_test(NAME isa_symbols_${isa}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_isa_symbols.py
        ${CMAKE_NM} $<TARGET_FILE:${target}> ${isa})
  endif()
endfunction()
