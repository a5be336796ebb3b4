# What `cmake --install` places, in three components:
#
#   runtime   libsubbyte.so.N: the C interface
#   dev       headers, libsubbyte.so, libsubbyte_cpp.a, the CMake package, pkg-config files
#   tools     the program, its man page, completions for shells
#
# Everything is relocatable: nothing that is installed names the prefix.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(subbyte_installs ${PROJECT_IS_TOP_LEVEL})
if(SUBBYTE_SANITIZE)
  set(subbyte_installs OFF)  # nobody could link it without the sanitizer
endif()
option(SUBBYTE_INSTALL "Make install rules, and the libraries that only they need"
  ${subbyte_installs})
set(subbyte_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/subbyte)
set(subbyte_header_dir ${PROJECT_SOURCE_DIR}/include)

# subbyte_closure(<objects> <externals> <target>...): the static libraries of ours that the targets
# stand on, themselves included, and what those need of others.
function(subbyte_closure objects externals)
  set(open ${ARGN})
  set(ours "")
  set(others "")
  while(open)
    list(POP_FRONT open name)
    if(name MATCHES "^\\$<LINK_ONLY:(.+)>$")
      set(name ${CMAKE_MATCH_1})
    endif()
    if(TARGET ${name})
      get_target_property(aliased ${name} ALIASED_TARGET)
      if(aliased)
        set(name ${aliased})
      endif()
    endif()
    if(name IN_LIST ours OR name IN_LIST others OR name MATCHES "^subbyte_(options|interface)$")
      continue()
    elseif(NOT name MATCHES "^subbyte_")
      list(APPEND others ${name})
      continue()
    endif()
    list(APPEND ours ${name})
    get_target_property(type ${name} TYPE)
    set(property LINK_LIBRARIES)
    if(type STREQUAL "INTERFACE_LIBRARY")
      set(property INTERFACE_LINK_LIBRARIES)
    endif()
    get_target_property(needed ${name} ${property})
    if(needed)
      list(APPEND open ${needed})
    endif()
  endwhile()
  set(found "")
  foreach(name IN LISTS ours)
    get_target_property(type ${name} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")
      list(APPEND found $<TARGET_OBJECTS:${name}>)
    endif()
  endforeach()
  set(${objects} ${found} PARENT_SCOPE)
  set(${externals} ${others} PARENT_SCOPE)
endfunction()

# subbyte_objects_of(<archive> <objects>): the object files of an archive of others.
function(subbyte_objects_of archive objects)
  cmake_path(GET archive STEM name)
  set(folder ${PROJECT_BINARY_DIR}/package/${name})
  file(REMOVE_RECURSE ${folder})
  file(MAKE_DIRECTORY ${folder})
  execute_process(COMMAND ${CMAKE_AR} x ${archive} WORKING_DIRECTORY ${folder}
    COMMAND_ERROR_IS_FATAL ANY)
  file(GLOB found ${folder}/*.o)
  set(${objects} ${found} PARENT_SCOPE)
endfunction()

# The C++ library: both interfaces and all layers below them in one archive, as the C interface is
# what has products on GPUs.
function(subbyte_install_cpp)
  subbyte_closure(objects externals subbyte_public subbyte_c_interface)
  list(REMOVE_ITEM externals nlohmann_json::nlohmann_json)  # headers alone
  if(SUBBYTE_STATIC_DEPENDENCIES)
    if(CUDA::cudart_static IN_LIST externals)
      subbyte_objects_of(${CUDA_cudart_static_LIBRARY} others)
      list(APPEND objects ${others})
    endif()
    list(REMOVE_ITEM externals fmt::fmt CUDA::cudart_static)
  endif()
  find_package(fmt REQUIRED)  # imported targets are known in the folders that look for them
  add_library(subbyte_cpp STATIC ${objects})
  set_target_properties(subbyte_cpp PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME cpp)
  target_compile_features(subbyte_cpp INTERFACE cxx_std_20)
  target_include_directories(subbyte_cpp INTERFACE
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(subbyte_cpp PRIVATE ${externals} INTERFACE Threads::Threads)
  set_property(GLOBAL PROPERTY subbyte_externals "${externals}")
  install(TARGETS subbyte_cpp EXPORT subbyte_cpp
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
  # CMake strips programs and shared libraries alone.
  install(CODE "if(CMAKE_INSTALL_DO_STRIP)
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-debug --enable-deterministic-archives
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/libsubbyte_cpp.a\"
      COMMAND_ERROR_IS_FATAL ANY)
  endif()" COMPONENT dev)
  install(EXPORT subbyte_cpp NAMESPACE subbyte:: FILE subbyteCppTargets.cmake
    DESTINATION ${subbyte_package_dir} COMPONENT dev)
  file(GLOB headers CONFIGURE_DEPENDS ${subbyte_header_dir}/subbyte/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/subbyte COMPONENT dev)
endfunction()

# The C library, shared: it exports what its headers mark with SUBBYTE_API and nothing else.
function(subbyte_install_c)
  set(text)
  foreach(header subbyte.h subbyte_models.h)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
      ${subbyte_header_dir}/subbyte/${header})
    file(READ ${subbyte_header_dir}/subbyte/${header} part)
    string(APPEND text "${part}")
  endforeach()
  string(REGEX MATCHALL "SUBBYTE_API[^;{}()]*[^A-Za-z0-9_](subbyte_[a-z0-9_]+)[ \n]*\\(" calls
    "${text}")
  list(TRANSFORM calls REPLACE "^.*[^A-Za-z0-9_](subbyte_[a-z0-9_]+)[ \n]*\\($" "\\1")
  list(SORT calls)
  list(JOIN calls ";\n    " names)
  set(script ${PROJECT_BINARY_DIR}/subbyte.map)
  file(CONFIGURE OUTPUT ${script} @ONLY CONTENT
    "SUBBYTE_@PROJECT_VERSION_MAJOR@ {\n  global:\n    @names@;\n  local:\n    *;\n};\n")

  add_library(subbyte_c SHARED ${PROJECT_BINARY_DIR}/subbyte_c.cc)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/subbyte_c.cc CONTENT "")
  add_library(subbyte::c ALIAS subbyte_c)
  set_target_properties(subbyte_c PROPERTIES OUTPUT_NAME subbyte EXPORT_NAME c
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${script})
  target_include_directories(subbyte_c INTERFACE $<BUILD_INTERFACE:${subbyte_header_dir}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(subbyte_c PRIVATE subbyte_options
    $<LINK_LIBRARY:WHOLE_ARCHIVE,subbyte::c_interface>)
  target_link_options(subbyte_c PRIVATE LINKER:--version-script=${script} LINKER:--no-undefined
    LINKER:--gc-sections LINKER:-z,relro,-z,now)
  install(TARGETS subbyte_c EXPORT subbyte_c LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT runtime NAMELINK_COMPONENT dev)
  install(EXPORT subbyte_c NAMESPACE subbyte:: FILE subbyteCTargets.cmake
    DESTINATION ${subbyte_package_dir} COMPONENT dev)
endfunction()

# subbyteConfig.cmake and the pkg-config files.
function(subbyte_install_package)
  set(subbyte_components cpp c)
  if(TARGET subbyte::kernels_cuda)
    list(APPEND subbyte_components cuda)
  endif()
  get_property(externals GLOBAL PROPERTY subbyte_externals)
  # How the package finds what the archive needs: a line here for each such library.
  set(subbyte_find "")
  set(subbyte_requires "")
  set(subbyte_libs "-lstdc++ -lm")
  foreach(name IN LISTS externals)
    if(name STREQUAL "fmt::fmt")
      string(APPEND subbyte_find "  find_dependency(fmt)\n")
      list(APPEND subbyte_requires fmt)
    elseif(name STREQUAL "CUDA::cudart_static")
      string(APPEND subbyte_find "  find_dependency(CUDAToolkit)\n")
      string(APPEND subbyte_libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
    elseif(NOT name STREQUAL "Threads::Threads")
      message(FATAL_ERROR "cmake/SubbyteInstall.cmake: how does a package find ${name}?")
    endif()
  endforeach()
  list(JOIN subbyte_requires " " subbyte_requires)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/subbyteConfig.cmake.in
    ${PROJECT_BINARY_DIR}/package/subbyteConfig.cmake INSTALL_DESTINATION ${subbyte_package_dir}
    NO_SET_AND_CHECK_MACRO)
  # Below 1.0 a minor version may change what is public.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/subbyteConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/package/subbyteConfig.cmake
    ${PROJECT_BINARY_DIR}/package/subbyteConfigVersion.cmake
    DESTINATION ${subbyte_package_dir} COMPONENT dev)

  set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY
    ${CMAKE_INSTALL_PREFIX}/${pc_dir} OUTPUT_VARIABLE subbyte_to_prefix)
  foreach(pc subbyte subbyte-cpp)
    configure_file(${PROJECT_SOURCE_DIR}/cmake/${pc}.pc.in ${PROJECT_BINARY_DIR}/package/${pc}.pc
      @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/package/${pc}.pc DESTINATION ${pc_dir} COMPONENT dev)
  endforeach()
endfunction()

# The program, with what it prints of itself for man and for shells.
function(subbyte_install_program)
  set(made ${PROJECT_BINARY_DIR}/package)
  find_program(GZIP gzip REQUIRED)
  add_custom_command(OUTPUT ${made}/subbyte.1.gz
    COMMAND subbyte man > ${made}/subbyte.1
    COMMAND ${GZIP} -9nkf ${made}/subbyte.1
    DEPENDS subbyte VERBATIM)
  set(outputs ${made}/subbyte.1.gz)
  foreach(shell bash zsh fish)
    add_custom_command(OUTPUT ${made}/completion.${shell}
      COMMAND subbyte completion ${shell} > ${made}/completion.${shell} DEPENDS subbyte VERBATIM)
    list(APPEND outputs ${made}/completion.${shell})
  endforeach()
  add_custom_target(subbyte_pages ALL DEPENDS ${outputs})
  install(TARGETS subbyte RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  # systemd and Debian look in lib/, wherever libraries are.
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/subbyte.service DESTINATION lib/systemd/system
    COMPONENT tools)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/nginx.conf
    DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/subbyte/examples COMPONENT tools)
  install(FILES ${made}/subbyte.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  set(data ${CMAKE_INSTALL_DATADIR})
  install(FILES ${made}/completion.bash DESTINATION ${data}/bash-completion/completions
    RENAME subbyte COMPONENT tools)
  install(FILES ${made}/completion.zsh DESTINATION ${data}/zsh/vendor-completions
    RENAME _subbyte COMPONENT tools)
  install(FILES ${made}/completion.fish DESTINATION ${data}/fish/vendor_completions.d
    RENAME subbyte.fish COMPONENT tools)
endfunction()

function(subbyte_install)
  if(NOT SUBBYTE_INSTALL)
    return()
  endif()
  subbyte_install_cpp()
  subbyte_install_c()
  subbyte_install_package()
  if(TARGET subbyte)
    subbyte_install_program()
    subbyte_packages()
  endif()
endfunction()
