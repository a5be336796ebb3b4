# subbyte_cuda(<layer>): library subbyte_<layer>_cuda of the *.cu files in cuda/ and cuda/ops/ of
# the layer, and of three made files for each line of cuda/weights.def. Without nvcc there is no
# such library and nothing else is missing.
#
# Code is made for sm_80 and for sm_90a (wgmma exists only there), and PTX of sm_80 for GPUs to
# come. 80on90 is what Ampere runs, compiled for Hopper: to test it there. The runtime is linked
# statically: a program needs nothing but the driver.
include(CheckLanguage)
set(SUBBYTE_CUDA_ARCHITECTURES 80 90a CACHE STRING "GPUs that the CUDA kernels are compiled for")
# Lines that are left out have no kernels: products fail there. For builds that only have to show
# that everything compiles and links.
set(SUBBYTE_CUDA_WEIGHTS all CACHE STRING "Lines of weights.def that get kernels: all, or names")

set(subbyte_has_nvcc OFF)  # CMAKE_CUDA_COMPILER stays in the cache when the option goes off
# Why a build has no CUDA, for src/cuda_backend/without_cuda.cc.
set(subbyte_no_cuda "SUBBYTE_CUDA=OFF, ./dev build makes one with it")
if(SUBBYTE_CUDA AND SUBBYTE_SANITIZE)
  set(subbyte_no_cuda "SUBBYTE_SANITIZE=${SUBBYTE_SANITIZE}: nvcc knows no sanitizers")
elseif(SUBBYTE_CUDA)
  set(subbyte_no_cuda "there was no nvcc")
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(subbyte_has_nvcc ON)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
  else()
    message(STATUS "No nvcc: the CUDA kernels are left out")
  endif()
endif()

function(subbyte_cuda layer)
  if(NOT subbyte_has_nvcc)
    return()
  endif()
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/cuda)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.cu ${folder}/ops/*.cu)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/weights.def)
  file(STRINGS ${folder}/weights.def lines REGEX "^SUBBYTE_CUDA_WEIGHTS")
  set(built_lines "")
  foreach(line IN LISTS lines)
    string(REGEX MATCH "\\((.+), (.+), (.+), (.+)\\)" matched "${line}")
    set(WEIGHTS_NAME ${CMAKE_MATCH_1})
    if(NOT SUBBYTE_CUDA_WEIGHTS STREQUAL "all" AND NOT WEIGHTS_NAME IN_LIST SUBBYTE_CUDA_WEIGHTS)
      continue()
    endif()
    string(APPEND built_lines "${line}\n")
    set(WEIGHTS_DECODER ${CMAKE_MATCH_2})
    set(WEIGHTS_BITS ${CMAKE_MATCH_3})
    set(WEIGHTS_GROUPS ${CMAKE_MATCH_4})
    set(made ${CMAKE_CURRENT_BINARY_DIR}/cuda/${WEIGHTS_NAME}.cu)
    set(made_experts ${CMAKE_CURRENT_BINARY_DIR}/cuda/${WEIGHTS_NAME}_experts.cu)
    configure_file(${folder}/weights.cu.in ${made} @ONLY)
    set(made_step ${CMAKE_CURRENT_BINARY_DIR}/cuda/${WEIGHTS_NAME}_step.cu)
    configure_file(${folder}/experts/weights.cu.in ${made_experts} @ONLY)
    configure_file(${folder}/step/weights.cu.in ${made_step} @ONLY)
    list(APPEND sources ${made} ${made_experts} ${made_step})
  endforeach()
  add_library(subbyte_${layer}_cuda STATIC ${sources})
  if(NOT SUBBYTE_CUDA_WEIGHTS STREQUAL "all")
    foreach(name IN LISTS SUBBYTE_CUDA_WEIGHTS)
      if(NOT built_lines MATCHES "[(]${name},")
        message(FATAL_ERROR "SUBBYTE_CUDA_WEIGHTS: ${name} is no line of ${folder}/weights.def")
      endif()
    endforeach()
    set(root ${CMAKE_CURRENT_BINARY_DIR}/cuda_weights)
    file(CONFIGURE OUTPUT ${root}/${layer}/cuda/weights.def CONTENT "${built_lines}" @ONLY)
    target_include_directories(subbyte_${layer}_cuda BEFORE PRIVATE ${root})
  endif()
  set_property(GLOBAL APPEND_STRING PROPERTY subbyte_test_programs
    "build subbyte_${layer}_cuda src/${layer}/cuda src/${layer}/gpu\n")
  add_library(subbyte::${layer}_cuda ALIAS subbyte_${layer}_cuda)
  set_target_properties(subbyte_${layer}_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(subbyte_${layer}_cuda PUBLIC subbyte::${layer} PRIVATE CUDA::cudart_static)
  foreach(arch IN LISTS SUBBYTE_CUDA_ARCHITECTURES)
    set(code sm_${arch})
    if(arch MATCHES "^([0-9]+)on([0-9]+)$")
      set(arch ${CMAKE_MATCH_1})
      set(code sm_${CMAKE_MATCH_2})
    elseif(NOT arch MATCHES "a$")
      set(code [sm_${arch},compute_${arch}])
    endif()
    target_compile_options(subbyte_${layer}_cuda PRIVATE
      "SHELL:-gencode arch=compute_${arch},code=${code}")
  endforeach()
  target_compile_options(subbyte_${layer}_cuda PRIVATE -std=c++20
    -Xcompiler=-Wall,-Wextra,-fvisibility=hidden -Wno-deprecated-gpu-targets)
endfunction()
