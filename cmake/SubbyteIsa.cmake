# subbyte_isa_flags(<isa> <flag>...) compiles cpu/<isa>/*.cc with the flags of that instruction
# set. Those files use no inline function of the standard library: the linker may keep the copy
# that was built with AVX-512 for everybody.
function(subbyte_isa_flags isa)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cpu/${isa}/*.cc)
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${ARGN}")
endfunction()
