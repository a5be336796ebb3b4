# subbyte_layer(<name> [DEPENDS <lower layer>...] [LIBRARIES <external library>...]
#   [HIDDEN_DEPENDS <lower layer>...] [TEST_DEPENDS <lower layer>...])
#
# Makes the folder that calls it one layer of the stack:
#   *.cc            library subbyte_<name>
#   *_test.cc       program <name>_test, run by ctest; it sees TEST_DEPENDS, too
#
# An include always reads "<layer>/<file>.h". To let the build enforce the direction of
# the stack, each layer has an include root of its own that holds one symbolic link, so
# a header of a layer that is not in DEPENDS is simply not on the include path:
#
#   build/include/formats/formats -> src/formats
#
# What stands upon a layer sees its DEPENDS, too, but not its HIDDEN_DEPENDS.
function(subbyte_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;HIDDEN_DEPENDS;LIBRARIES;TEST_DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")

  set(root ${PROJECT_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${root}/${name} SYMBOLIC)

  if(sources)
    add_library(subbyte_${name} STATIC ${sources})
    # Shared libraries of others take them, too: modules of Python, plugins.
    set_target_properties(subbyte_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(subbyte_${name} PRIVATE subbyte_options)
    if(name IN_LIST SUBBYTE_LAYERS_O0)
      target_compile_options(subbyte_${name} PRIVATE -O0)
    endif()
    set(scope PUBLIC)
  else()
    add_library(subbyte_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(subbyte::${name} ALIAS subbyte_${name})
  target_include_directories(subbyte_${name} ${scope} ${root})
  list(TRANSFORM ARG_DEPENDS PREPEND subbyte::)
  list(TRANSFORM ARG_HIDDEN_DEPENDS PREPEND subbyte::)
  list(TRANSFORM ARG_TEST_DEPENDS PREPEND subbyte::)
  target_link_libraries(subbyte_${name} ${scope} subbyte_interface ${ARG_DEPENDS}
    ${ARG_LIBRARIES})
  if(sources AND fmt::fmt IN_LIST ARG_LIBRARIES)
    subbyte_precompiled_header(subbyte_${name})
  endif()
  # At the end of the folder's CMakeLists.txt, which may leave files out.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL subbyte_unity subbyte_${name})")
  if(ARG_HIDDEN_DEPENDS)
    target_link_libraries(subbyte_${name} PRIVATE ${ARG_HIDDEN_DEPENDS})
  endif()

  if(SUBBYTE_BUILD_TESTS AND tests)
    subbyte_test(${name}_test ${tests} LIBRARIES subbyte::${name} ${ARG_TEST_DEPENDS})
  endif()
endfunction()

# subbyte_test(<name> <source>... LIBRARIES <library>...): one GoogleTest program.
function(subbyte_test name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES" ${ARGN})
  find_package(GTest REQUIRED)
  subbyte_unity_tests(${name} sources ${ARG_UNPARSED_ARGUMENTS})
  add_executable(${name} ${sources})
  subbyte_test_paths()
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} subbyte_options subbyte_test_paths
    GTest::gtest_main)
  subbyte_quick_compile(${name})
  set(header subbyte_test_header)
  subbyte_is_O0(${name} is_O0)
  if(is_O0)
    string(APPEND header _O0)  # g++ takes only those of the same optimization
  endif()
  if(NOT TARGET ${header})
    add_library(${header} OBJECT ${PROJECT_SOURCE_DIR}/tests/support/test_header.cc)
    target_precompile_headers(${header} PRIVATE <gtest/gtest.h> <filesystem> <fstream>)
    target_link_libraries(${header} PRIVATE subbyte_options GTest::gtest)
    subbyte_quick_compile(${header})
  endif()
  target_precompile_headers(${name} REUSE_FROM ${header})
  subbyte_test_program(test ${name} SOURCES ${ARG_UNPARSED_ARGUMENTS} LIBRARIES ${ARG_LIBRARIES})
  subbyte_test_parts(${name} ${ARG_UNPARSED_ARGUMENTS})
  # Names of parameterised cases are those that the tests give: values of structs are bytes.
  add_test(NAME ${name}.names COMMAND ${name} --gtest_list_tests)
  set_tests_properties(${name}.names PROPERTIES LABELS ${name}
    FAIL_REGULAR_EXPRESSION "/[0-9]+  # GetParam.. = [^0-9]")
endfunction()

# subbyte_test_parts(<name> <source>...): ctest runs the tests of the program in parts of some three
# files, each in one process (tools/run_gtest.py, which names those that fail). GPUs are hidden:
# these tests say what happens without one, and gpu_test is not among them.
function(subbyte_test_parts name)
  list(LENGTH ARGN num_parts)
  math(EXPR num_parts "(${num_parts} + 2) / 3")
  math(EXPR last "${num_parts} - 1")
  set(traps "")
  if(SUBBYTE_SANITIZE_QUICK)
    set(traps ASAN_OPTIONS=handle_sigill=1)
  endif()
  foreach(part RANGE ${last})
    add_test(NAME ${name}.part_${part} COMMAND_EXPAND_LISTS COMMAND
      ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/run_gtest.py --part ${part}/${num_parts}
      --report ${PROJECT_BINARY_DIR}/test_reports/${name}.part_${part}
      ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.part_${part} PROPERTIES LABELS ${name} COST ${num_parts}
      ENVIRONMENT "CUDA_VISIBLE_DEVICES=;${traps}")
  endforeach()
endfunction()

# subbyte_test_program(<kind> <name> SOURCES <source>... [LIBRARIES <library>...]): a line of
# test_programs.txt, from which tools/changed_tests.py chooses.
function(subbyte_test_program kind name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(folders "")
  foreach(source IN LISTS ARG_SOURCES)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    list(APPEND folders ${folder})
  endforeach()
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/src/")
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE folders)
  endif()
  list(REMOVE_DUPLICATES folders)
  list(FILTER ARG_LIBRARIES INCLUDE REGEX "^subbyte::")
  list(TRANSFORM ARG_LIBRARIES REPLACE "^subbyte::" "")
  string(JOIN " " line ${kind} ${name} ${folders} : ${ARG_LIBRARIES})
  set_property(GLOBAL APPEND_STRING PROPERTY subbyte_test_programs "${line}\n")
endfunction()

# subbyte_test_paths(): library subbyte_test_paths with what tests/support/paths.h declares; tests/
# is on the include path of what links it.
function(subbyte_test_paths)
  if(TARGET subbyte_test_paths)
    return()
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/tests/support/paths.cc.in ${PROJECT_BINARY_DIR}/paths.cc
    @ONLY)
  add_library(subbyte_test_paths STATIC ${PROJECT_BINARY_DIR}/paths.cc)
  target_include_directories(subbyte_test_paths PUBLIC ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(subbyte_test_paths PRIVATE subbyte_options)
endfunction()

# subbyte_precompiled_header(<target>): fmt and what the standard library has of containers,
# parsed once for all layers with fmt: a third of what their files take to compile.
function(subbyte_precompiled_header target)
  set(header subbyte_header)
  get_target_property(options ${target} COMPILE_OPTIONS)
  if("-O0" IN_LIST options)
    set(header subbyte_header_O0)  # g++ takes only those of the same optimization
  endif()
  if(NOT TARGET ${header})
    find_package(fmt REQUIRED)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/header.cc CONTENT "")
    add_library(${header} OBJECT ${PROJECT_BINARY_DIR}/header.cc)
    set_target_properties(${header} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_precompile_headers(${header} PRIVATE <algorithm> <filesystem> <fmt/format.h>
      <functional> <map> <memory> <optional> <span> <string> <vector>)
    target_link_libraries(${header} PRIVATE subbyte_options fmt::fmt)
    if(header STREQUAL "subbyte_header_O0")
      target_compile_options(${header} PRIVATE -O0)
    endif()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE -fPIC)  # as the header is: a program's own is -fPIE
  endif()
  target_precompile_headers(${target} REUSE_FROM ${header})
endfunction()

# subbyte_unity(<target>): with SUBBYTE_UNITY, compiles files of the target as one where their names
# allow it (tools/unity_groups.py): half of the time, as templates of the standard library, and what
# nvcc does with any file, are the larger part of it.
function(subbyte_unity target)
  get_target_property(type ${target} TYPE)
  if(NOT SUBBYTE_UNITY OR type STREQUAL "INTERFACE_LIBRARY")
    return()
  endif()
  get_target_property(all ${target} SOURCES)
  set(made "")
  foreach(source IN LISTS all)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    if(definitions OR source MATCHES "^${PROJECT_BINARY_DIR}/")
      list(APPEND made ${source})
    endif()
  endforeach()
  list(REMOVE_ITEM all ${made})
  foreach(suffix cc cu)
    set(sources ${all})
    list(FILTER sources INCLUDE REGEX "\\.${suffix}$")
    list(REMOVE_ITEM all ${sources})
    if(sources)
      subbyte_unity_sources(combined unity_groups ${target} ${suffix} ${sources})
      list(APPEND made ${combined})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${all};${made}")
  # g++ takes a type of an anonymous namespace for one of a header.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endfunction()

# subbyte_unity_tests(<name> <out> <source>...): sets <out> to the sources of a test program.
# With SUBBYTE_UNITY files of tests are compiled as one, each in a namespace of its own
# (tools/unity_tests.py): half of the time or less.
function(subbyte_unity_tests name out)
  set(others ${ARGN})
  if(SUBBYTE_UNITY)
    set(tests ${ARGN})
    list(FILTER others EXCLUDE REGEX "_test\\.cc$")
    list(FILTER tests INCLUDE REGEX "_test\\.cc$")
    subbyte_unity_sources(combined unity_tests ${name} cc ${tests})
    list(APPEND others ${combined})
  endif()
  set(${out} ${others} PARENT_SCOPE)
endfunction()

# subbyte_unity_sources(<out> <tool> <name> <suffix> <source>...): sets <out> to what is compiled in
# place of the sources, as tools/<tool>.py plans and writes it.
function(subbyte_unity_sources out tool name suffix)
  set(tool ${PROJECT_SOURCE_DIR}/tools/${tool}.py)
  set(sources "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE)
    list(APPEND sources ${source})
  endforeach()
  execute_process(COMMAND ${Python3_EXECUTABLE} ${tool} --plan ${sources}
    OUTPUT_VARIABLE plan COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" plan "${plan}")
  set(sources "")
  set(groups "")
  foreach(line IN LISTS plan)
    string(REGEX MATCH "^([^ ]+) (.+)$" line "${line}")
    if(CMAKE_MATCH_1 STREQUAL "-")
      list(APPEND sources ${CMAKE_MATCH_2})
    else()
      list(APPEND groups ${CMAKE_MATCH_1})
      list(APPEND group_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    set(made ${CMAKE_CURRENT_BINARY_DIR}/${name}_${group}.${suffix})
    add_custom_command(OUTPUT ${made} DEPENDS ${group_${group}} ${tool} VERBATIM
      COMMAND ${Python3_EXECUTABLE} ${tool} --output ${made} ${group_${group}})
    list(APPEND sources ${made})
  endforeach()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# subbyte_quick_compile(<target>): for code that does not decide how fast anything is. What it saves
# is half of the time that a build takes.
function(subbyte_quick_compile target)
  subbyte_is_O0(${target} is_O0)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:RelWithDebInfo>:-O1> $<$<BOOL:${is_O0}>:-O0>)
endfunction()

# subbyte_is_O0(<target> <out>): whether SUBBYTE_TESTS_O0 names it, or its own name ends so.
function(subbyte_is_O0 target out)
  if(SUBBYTE_TESTS_O0 STREQUAL "all" OR target IN_LIST SUBBYTE_TESTS_O0 OR target MATCHES "_O0$")
    set(${out} TRUE PARENT_SCOPE)
  else()
    set(${out} FALSE PARENT_SCOPE)
  endif()
endfunction()

# subbyte_only_compiles(<target>): for programs that no test runs. A build without all CUDA kernels,
# as ci is, only has to show that they compile and link, and does so where the target only_compiled
# is named (./dev test --all).
function(subbyte_only_compiles target)
  if(SUBBYTE_CUDA_WEIGHTS STREQUAL "all")
    return()
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  if(NOT TARGET only_compiled)
    add_custom_target(only_compiled)
  endif()
  add_dependencies(only_compiled ${target})
endfunction()
