# Options of the project, and what its own files are compiled with.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    message(STATUS "No CMAKE_BUILD_TYPE: RelWithDebInfo")
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Kind of build" FORCE)
  else()
    message(WARNING "CMAKE_BUILD_TYPE is empty, so that the kernels of subbyte are compiled "
      "without optimization: set Release or RelWithDebInfo")
  endif()
endif()

# What makes a wheel (pyproject.toml) wants neither tests nor benchmarks.
set(subbyte_tests_default ${PROJECT_IS_TOP_LEVEL})
if(SKBUILD)
  set(subbyte_tests_default OFF)
endif()
option(SUBBYTE_BUILD_PROGRAM "Build the command line" ${PROJECT_IS_TOP_LEVEL})
option(SUBBYTE_BUILD_PYTHON "Build the Python module (nanobind)" OFF)
option(SUBBYTE_BUILD_TESTS "Build the tests" ${subbyte_tests_default})
option(SUBBYTE_BUILD_BENCHMARKS "Build the benchmarks" ${subbyte_tests_default})
option(SUBBYTE_BUILD_TORCH "Build the operators of PyTorch (needs no torch)" OFF)
option(SUBBYTE_BUILD_FUZZERS "Build the fuzz targets (clang)" OFF)
option(SUBBYTE_CUDA "Build the CUDA kernels where nvcc is found" ${PROJECT_IS_TOP_LEVEL})
option(SUBBYTE_SANITIZE_QUICK "Sanitizers without what takes long to compile" OFF)
set(SUBBYTE_KERNELS_OPTIMIZATION -O3 CACHE STRING "Optimization of CPU kernels")
set(SUBBYTE_TESTS_O0 "" CACHE STRING "Tests to compile without optimization: their targets, or all")
set(SUBBYTE_LAYERS_O0 "" CACHE STRING "Layers to compile without optimization")
option(SUBBYTE_UNITY "Compile several files as one: where another build has each by itself" OFF)
option(SUBBYTE_STATIC_DEPENDENCIES "Put fmt and the C++ library into what is linked, \
which needs the C library and libgcc alone then" OFF)
set(SUBBYTE_SANITIZE "" CACHE STRING "Sanitizers to build with: address,undefined or thread")

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
find_package(Threads REQUIRED)
if(SUBBYTE_BUILD_TESTS OR SUBBYTE_UNITY)
  # Once for all folders: each call asks the interpreter anew, for a fifth of a second.
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
endif()

# What the headers need, and so all that a program takes over that links a layer.
add_library(subbyte_interface INTERFACE)
target_compile_features(subbyte_interface INTERFACE cxx_std_20)
target_link_libraries(subbyte_interface INTERFACE Threads::Threads)

# What every target of ours links, PRIVATE: warnings, visibility and contraction are not handed on.
add_library(subbyte_options INTERFACE)
target_link_libraries(subbyte_options INTERFACE subbyte_interface)
# For nvcc see SubbyteCuda.cmake.
target_compile_options(subbyte_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -fvisibility=hidden
  # Results must not depend on whether the compiler contracts a*b+c: kernels ask for FMA by name.
  -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler collects garbage less often: a file takes 7 % less time and 70 MB more of some 400.
  target_compile_options(subbyte_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-expand=400>"
    "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=262144>")
endif()

if(SUBBYTE_STATIC_DEPENDENCIES)
  # Debian has no archive of fmt; what nothing is taken from is not needed. libgcc stays outside, as
  # the C library needs it anyway and unwinds the stacks of threads with it.
  target_compile_definitions(subbyte_options INTERFACE FMT_HEADER_ONLY)
  target_link_options(subbyte_options INTERFACE -static-libstdc++ LINKER:--as-needed)
endif()

if(SUBBYTE_SANITIZE)
  target_compile_options(subbyte_options INTERFACE
    -fsanitize=${SUBBYTE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(SUBBYTE_SANITIZE_QUICK)
    # The address sanitizer reports each use of a null pointer by itself, and what is undefined ends
    # the program where it is found: the stack says the line (see subbyte_test_parts).
    target_compile_options(subbyte_options INTERFACE
      -fno-sanitize=null,vptr -fsanitize-undefined-trap-on-error)
  endif()
  # A program that is linked from such objects needs the runtime, whoever makes it.
  target_link_options(subbyte_interface INTERFACE -fsanitize=${SUBBYTE_SANITIZE})
endif()
