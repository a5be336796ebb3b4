# subbyte_cuda(<layer>): library subbyte_<layer>_cuda of the *.cu files in cuda/ and its folders, of
# the layer, of three made files for each line of cuda/weights.def, and of one, of experts, for each
# of cuda/experts/weights.def. Without nvcc there is no such library and nothing else is missing.
#
# Code is made for sm_80 and for sm_90a (wgmma exists only there), and PTX of sm_80 for GPUs to
# come. 80on90 is what Ampere runs, compiled for Hopper: to test it there. The runtime is linked
# statically: a program needs nothing but the driver.
include(CheckLanguage)
set(SUBBYTE_CUDA_ARCHITECTURES 80 90a CACHE STRING "GPUs that the CUDA kernels are compiled for")
# Lines that are left out have no kernels: products fail there. For builds that only have to show
# that everything compiles and links.
set(SUBBYTE_CUDA_WEIGHTS all CACHE STRING "Lines of weights.def that get kernels: all, or names")

# Kernels are then compiled to PTX alone, and programs, gpu_test among them, are linked with
# tests/gpu/interpreter, which runs it on the CPU, instead of CUDA's runtime.
option(SUBBYTE_INTERPRET_CUDA "Run the CUDA kernels on the CPU, to test them without a GPU" OFF)
if(SUBBYTE_INTERPRET_CUDA AND NOT SUBBYTE_BUILD_TESTS)
  message(FATAL_ERROR "SUBBYTE_INTERPRET_CUDA is for tests: SUBBYTE_BUILD_TESTS=ON")
endif()
set(subbyte_cuda_runtime CUDA::cudart_static)
if(SUBBYTE_INTERPRET_CUDA)
  set(subbyte_cuda_runtime subbyte::interpreted_cuda)
endif()

set(subbyte_has_nvcc OFF)  # CMAKE_CUDA_COMPILER stays in the cache when the option goes off
# Why a build has no CUDA, for src/device/without_cuda.cc.
set(subbyte_no_cuda "SUBBYTE_CUDA=OFF, ./dev build makes one with it")
if(SUBBYTE_CUDA AND SUBBYTE_SANITIZE)
  set(subbyte_no_cuda "SUBBYTE_SANITIZE=${SUBBYTE_SANITIZE}: nvcc knows no sanitizers")
elseif(SUBBYTE_CUDA)
  set(subbyte_no_cuda "there was no nvcc")
  set(host_compiler ${CMAKE_CUDA_HOST_COMPILER})
  check_language(CUDA)
  if(host_compiler)  # which check_language() of CMake 3.25 empties
    set(CMAKE_CUDA_HOST_COMPILER ${host_compiler})
  endif()
  if(CMAKE_CUDA_COMPILER)
    set(subbyte_has_nvcc ON)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    if(SUBBYTE_INTERPRET_CUDA)
      set(CMAKE_CUDA_RUNTIME_LIBRARY None)
    endif()
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
  else()
    message(STATUS "No nvcc: the CUDA kernels are left out")
  endif()
endif()
if(NOT subbyte_has_nvcc)
  target_compile_definitions(subbyte_interface INTERFACE SUBBYTE_NO_CUDA)  # base/host_device.h
endif()

function(subbyte_cuda layer)
  if(NOT subbyte_has_nvcc)
    return()
  endif()
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/*/*.cu)
  set(root ${CMAKE_CURRENT_BINARY_DIR}/cuda_weights)
  set(all_built_lines "")
  foreach(def weights.def experts/weights.def)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/${def})
    file(STRINGS ${folder}/${def} lines REGEX "^SUBBYTE_CUDA_WEIGHTS")
    set(built_lines "")
    foreach(line IN LISTS lines)
      string(REGEX MATCH "\\((.+), (.+), (.+), (.+), (.+)\\)" matched "${line}")
      set(WEIGHTS_NAME ${CMAKE_MATCH_1})
      if(NOT SUBBYTE_CUDA_WEIGHTS STREQUAL "all" AND NOT WEIGHTS_NAME IN_LIST SUBBYTE_CUDA_WEIGHTS)
        continue()
      endif()
      string(APPEND built_lines "${line}\n")
      set(WEIGHTS_DECODER ${CMAKE_MATCH_2})
      set(WEIGHTS_BITS ${CMAKE_MATCH_3})
      set(WEIGHTS_GROUPS ${CMAKE_MATCH_4})
      set(WEIGHTS_LEVELS ${CMAKE_MATCH_5})
      set(made ${CMAKE_CURRENT_BINARY_DIR}/cuda/${WEIGHTS_NAME})
      configure_file(${folder}/experts/weights.cu.in ${made}_experts.cu @ONLY)
      list(APPEND sources ${made}_experts.cu)
      if(def STREQUAL "weights.def")
        configure_file(${folder}/weights.cu.in ${made}.cu @ONLY)
        configure_file(${folder}/step/weights.cu.in ${made}_step.cu @ONLY)
        list(APPEND sources ${made}.cu ${made}_step.cu)
      endif()
    endforeach()
    string(APPEND all_built_lines "${built_lines}")
    if(NOT SUBBYTE_CUDA_WEIGHTS STREQUAL "all")
      file(CONFIGURE OUTPUT ${root}/${layer}/cuda/${def} CONTENT "${built_lines}" @ONLY)
    endif()
  endforeach()
  if(NOT all_built_lines MATCHES "Integers, [0-9]+, [0-9]+, 2[)]")
    list(FILTER sources EXCLUDE REGEX "/step/superblocks[.]cu$")
  endif()
  add_library(subbyte_${layer}_cuda STATIC ${sources})
  subbyte_unity(subbyte_${layer}_cuda)
  if(NOT SUBBYTE_CUDA_WEIGHTS STREQUAL "all")
    foreach(name IN LISTS SUBBYTE_CUDA_WEIGHTS)
      if(NOT all_built_lines MATCHES "[(]${name},")
        message(FATAL_ERROR "SUBBYTE_CUDA_WEIGHTS: ${name} is no line of ${folder}/weights.def or "
          "${folder}/experts/weights.def")
      endif()
    endforeach()
    target_include_directories(subbyte_${layer}_cuda BEFORE PRIVATE ${root})
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY subbyte_test_programs
    "build subbyte_${layer}_cuda src/${layer}/cuda src/${layer}/gpu\n")
  add_library(subbyte::${layer}_cuda ALIAS subbyte_${layer}_cuda)
  set_target_properties(subbyte_${layer}_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(subbyte_${layer}_cuda PUBLIC subbyte::${layer}
    PRIVATE ${subbyte_cuda_runtime})
  subbyte_cuda_code(subbyte_${layer}_cuda)
  target_compile_options(subbyte_${layer}_cuda PRIVATE
    -Xcompiler=-Wall,-Wextra,-fvisibility=hidden)
endfunction()

# subbyte_cuda_code(<target>): compiles its CUDA files for SUBBYTE_CUDA_ARCHITECTURES.
function(subbyte_cuda_code target)
  foreach(arch IN LISTS SUBBYTE_CUDA_ARCHITECTURES)
    set(code sm_${arch})
    if(SUBBYTE_INTERPRET_CUDA)
      set(code compute_${arch})
    elseif(arch MATCHES "^([0-9]+)on([0-9]+)$")
      set(arch ${CMAKE_MATCH_1})
      set(code sm_${CMAKE_MATCH_2})
    elseif(NOT arch MATCHES "a$")
      set(code [sm_${arch},compute_${arch}])
    endif()
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-gencode arch=compute_${arch},code=${code}>")
  endforeach()
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-std=c++20 -Wno-deprecated-gpu-targets>")
  subbyte_ptx_for_interpreter(${target})
endfunction()

# subbyte_ptx_for_interpreter(<target>): keeps the PTX of its objects as text that the interpreter
# finds.
function(subbyte_ptx_for_interpreter target)
  if(SUBBYTE_INTERPRET_CUDA)
    target_compile_options(${target} PRIVATE
      "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xfatbin --compress-mode=none>")
  endif()
endfunction()
