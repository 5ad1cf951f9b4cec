# caisson_musl_program(<name> <source>...): a static program on musl, without exceptions or RTTI, built by
# the same clang with libstdc++'s headers (the guest and the launcher). Why musl: start-up in a VM costs 0.2 ms
# instead of 0.7, and the program runs in any Linux image of its architecture.
#
# Of libstdc++.a only members that need no exception runtime are linked; a check after linking fails the
# build when anything else crept in. std::shared_ptr, std::stoi, iostreams, locale and exceptions are
# therefore not available there.
#
# With -DCAISSON_MUSL=OFF the same sources are linked against static glibc (where musl is missing).

option(CAISSON_MUSL "Build guest and launcher against musl (OFF: static glibc)" ON)
include(cmake/musl-${CMAKE_HOST_SYSTEM_PROCESSOR}.cmake)

set(CAISSON_MUSL_DIR ${CMAKE_BINARY_DIR}/musl)

if(CAISSON_MUSL)
  if(NOT EXISTS ${MUSL_LIB_DIR}/libc.a)
    message(FATAL_ERROR "musl is missing (${MUSL_LIB_DIR}/libc.a): tools/install-packages build")
  endif()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-resource-dir
    OUTPUT_VARIABLE clang_resources OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
    OUTPUT_VARIABLE libstdcxx OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-libgcc-file-name
    OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  # libstdc++.a lies in lib/gcc/<triple>/<version>; its headers are named by that version.
  get_filename_component(libstdcxx_dir ${libstdcxx} REALPATH)
  get_filename_component(libstdcxx_dir ${libstdcxx_dir} DIRECTORY)
  get_filename_component(libstdcxx_version ${libstdcxx_dir} NAME)

  # Kernel headers by themselves: the directory that holds them holds glibc's headers too.
  file(MAKE_DIRECTORY ${CAISSON_MUSL_DIR}/kernel)
  foreach(dir linux asm-generic)
    file(CREATE_LINK /usr/include/${dir} ${CAISSON_MUSL_DIR}/kernel/${dir} SYMBOLIC)
  endforeach()
  file(CREATE_LINK ${MUSL_KERNEL_ASM} ${CAISSON_MUSL_DIR}/kernel/asm SYMBOLIC)
  execute_process(COMMAND ar x ${libstdcxx} tree.o hashtable_c++0x.o hash_bytes.o
    WORKING_DIRECTORY ${CAISSON_MUSL_DIR} COMMAND_ERROR_IS_FATAL ANY)

  set(MUSL_COMPILE_OPTIONS -nostdinc -nostdinc++
    "SHELL:-isystem /usr/include/c++/${libstdcxx_version}"
    "SHELL:-isystem ${MUSL_CXX_TARGET_INCLUDE}/c++/${libstdcxx_version}"
    "SHELL:-isystem ${clang_resources}/include"
    "SHELL:-isystem ${MUSL_INCLUDE_DIR}"
    "SHELL:-isystem ${CAISSON_MUSL_DIR}/kernel"
    "SHELL:-include ${CMAKE_SOURCE_DIR}/cmake/musl/shim.h")
endif()

function(caisson_musl_program name)
  set(runtime)
  if(CAISSON_MUSL)
    set(runtime ${CMAKE_SOURCE_DIR}/cmake/musl/runtime.cc)
  endif()
  add_executable(${name} ${ARGN} ${runtime})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_definitions(${name} PRIVATE CAISSON_VERSION="${PROJECT_VERSION}")
  target_compile_options(${name} PRIVATE ${CAISSON_WARNINGS} -O2 -fno-exceptions -fno-rtti
    -fno-threadsafe-statics -fno-asynchronous-unwind-tables -fstack-protector-strong
    -ffunction-sections -fdata-sections)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  if(CAISSON_MUSL)
    target_compile_options(${name} PRIVATE -fno-pie ${MUSL_COMPILE_OPTIONS})
    target_link_options(${name} PRIVATE -static -nostdlib -Wl,--gc-sections -Wl,-s
      -Wl,-Map=${CAISSON_MUSL_DIR}/${name}.map
      ${MUSL_LIB_DIR}/crt1.o ${MUSL_LIB_DIR}/crti.o)
    target_link_libraries(${name} PRIVATE
      ${CAISSON_MUSL_DIR}/tree.o ${CAISSON_MUSL_DIR}/hashtable_c++0x.o ${CAISSON_MUSL_DIR}/hash_bytes.o
      ${MUSL_LIB_DIR}/libc.a ${libgcc} ${MUSL_LIB_DIR}/crtn.o)
    add_custom_command(TARGET ${name} POST_BUILD
      COMMAND ${CMAKE_SOURCE_DIR}/cmake/musl/check-link ${CAISSON_MUSL_DIR}/${name}.map VERBATIM)
  else()
    target_link_options(${name} PRIVATE -static -Wl,--gc-sections -Wl,-s)
  endif()
endfunction()
