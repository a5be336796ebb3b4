# Debian's cross compiler for 64-bit ARM, and qemu to run what it makes. `./dev aarch64-test`
# installs both, and unpacks the libraries of that architecture to build/aarch64-packages.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

get_filename_component(subbyte_packages ${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-packages
  ABSOLUTE)
set(subbyte_libraries ${subbyte_packages}/usr/lib/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${subbyte_packages} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${subbyte_packages})
set(ENV{PKG_CONFIG_LIBDIR} ${subbyte_libraries}/pkgconfig)
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,-rpath-link,${subbyte_libraries})
set(CMAKE_CROSSCOMPILING_EMULATOR
  qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=${subbyte_libraries})
