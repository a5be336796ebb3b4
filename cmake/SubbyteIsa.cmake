# subbyte_isa(<layer> <isa> <flag>...) compiles cpu/<isa>/*.cc of the layer with the flags of that
# instruction set, or leaves them out of a scalar build.
#
# Those files use no inline function that others share, of the standard library or of ours: the
# linker may keep the copy that was built with AVX-512 for everybody, and an older machine would
# die of it. A test (tools/check_isa_symbols.py) looks for such copies in the objects.
function(subbyte_isa layer isa)
  set(target subbyte_${layer})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpu/${isa}/*.cc)
  if(SUBBYTE_SCALAR_ONLY)
    get_target_property(all ${target} SOURCES)
    list(REMOVE_ITEM all ${sources})
    set_target_properties(${target} PROPERTIES SOURCES "${all}")
    target_compile_definitions(${target} PRIVATE SUBBYTE_SCALAR_ONLY)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 takes the deliberately undefined operands of its own AVX-512 headers for mistakes.
    list(APPEND ARGN -Wno-maybe-uninitialized -Wno-uninitialized)
  endif()
  # Else M = 1 gains or loses up to 15 % with where its loop comes to lie.
  list(APPEND ARGN -falign-functions=64 -falign-loops=32)
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
  if(SUBBYTE_BUILD_TESTS)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    add_test(NAME isa_symbols_${isa}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/check_isa_symbols.py
        ${CMAKE_NM} $<TARGET_FILE:${target}> ${isa})
  endif()
endfunction()
