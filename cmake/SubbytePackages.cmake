# Debian packages, made by cpack from the components of SubbyteInstall.cmake: libsubbyte0,
# libsubbyte-dev and subbyte. Libraries lie where Debian has them if CMAKE_INSTALL_PREFIX is /usr.
# ./dev package makes them (preset packages).

# subbyte_library_licenses(<file>): what the licences of data and libraries inside ask to be handed
# on.
function(subbyte_library_licenses file)
  file(READ ${PROJECT_SOURCE_DIR}/cmake/debian/unicode-license part)
  set(text "\n==== unicode-character-database\n\nTables of letters are made of it.\n\n${part}")
  if(SUBBYTE_STATIC_DEPENDENCIES)
    string(REGEX MATCH "^[0-9]+" major ${CMAKE_CXX_COMPILER_VERSION})
    foreach(package libfmt-dev nlohmann-json3-dev libboost1.81-dev libssl-dev
        libstdc++-${major}-dev)
      file(READ /usr/share/doc/${package}/copyright part)
      string(APPEND text "\n==== ${package}\n\n${part}")
    endforeach()
    if(TARGET subbyte::kernels_cuda)
      string(APPEND text "\n==== cudart_static\n\nThe CUDA runtime of NVIDIA's CUDA toolkit \
${CUDAToolkit_VERSION}, a library that the toolkit's End User License Agreement lets programs\n\
bring along, and to which that agreement applies.\n")
    endif()
  endif()
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT "@text@")
endfunction()

function(subbyte_packages)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_NAME subbyte)
  # Who makes packages says who he is, as Debian's tools ask for it.
  set(CPACK_PACKAGE_CONTACT
    "Seed 2f455a69 maintainers <maintainers@users.noreply.a-seed-2f455a69.example>")
  if(DEFINED ENV{DEBEMAIL})
    set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
  endif()
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_OUTPUT_FILE_PREFIX ${PROJECT_BINARY_DIR}/packages)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_GROUPING IGNORE)
  set(CPACK_COMPONENTS_ALL runtime dev tools)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
  set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
  set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
  set(machines "processors")
  if(TARGET subbyte::kernels_cuda)
    set(CPACK_DEBIAN_PACKAGE_RELEASE 1+cuda)  # newer than without
    set(machines "processors and on GPUs")
  endif()
  set(revision ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})
  set(about "Language models whose weights have 2 to 8 bits are run, verified,\n\
converted and quantized on ${machines}, without Python and\n\
without a framework.")
  set(title "language models with weights below eight bits")

  set(CPACK_DEBIAN_DEV_PACKAGE_NAME libsubbyte-dev)
  set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
  set(runtime libsubbyte${PROJECT_VERSION_MAJOR})
  set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${runtime} (= ${revision})")
  if(NOT SUBBYTE_STATIC_DEPENDENCIES)
    string(APPEND CPACK_DEBIAN_DEV_PACKAGE_DEPENDS ", libfmt-dev")
  endif()
  set(CPACK_COMPONENT_DEV_DESCRIPTION "${title} - development files\n${about}\n\n\
Headers for C++20 and C, the static library of the C++ interface, and what\n\
CMake and pkg-config need.")
  set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME subbyte)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_TOOLS_PACKAGE_RECOMMENDS libedit2)
  set(CPACK_COMPONENT_TOOLS_DESCRIPTION "${title} - command line\n${about}")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime})
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
  set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${title} - shared library\n${about}\n\n\
The C interface.")
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)

  # Each package has its licence and its changelog; a usual installation has neither.
  set(made ${PROJECT_BINARY_DIR}/package)
  string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
  file(CONFIGURE OUTPUT ${made}/changelog.Debian @ONLY CONTENT
    "subbyte (@revision@) unstable; urgency=medium\n
  * Release @PROJECT_VERSION@.\n
 -- @CPACK_PACKAGE_CONTACT@  @date@\n")
  execute_process(COMMAND gzip -9nkf ${made}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
  subbyte_library_licenses(${made}/LICENSES-OF-LIBRARIES)
  file(READ ${PROJECT_SOURCE_DIR}/cmake/debian/copyright ours)
  file(READ ${made}/LICENSES-OF-LIBRARIES others)
  file(CONFIGURE OUTPUT ${made}/copyright @ONLY CONTENT "@ours@@others@")
  install(FILES ${made}/LICENSES-OF-LIBRARIES DESTINATION subbyte COMPONENT python EXCLUDE_FROM_ALL)
  foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER ${component} upper)
    set(documents ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
    install(FILES ${made}/copyright ${made}/changelog.Debian.gz
      DESTINATION ${documents} COMPONENT ${component} EXCLUDE_FROM_ALL)
  endforeach()
  include(CPack)
endfunction()
