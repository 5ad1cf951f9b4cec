# Compilers and flags. The flags belong to an interface target and not to CMAKE_CXX_FLAGS, because the
# guest and the launcher are built in the same tree with others (cmake/musl.cmake).

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  message(FATAL_ERROR
    "g++ ${CMAKE_CXX_COMPILER_VERSION} miscompiles C++20 coroutines: temporaries in a co_await expression are "
    "destroyed twice, silently. Use clang++-19 (cmake --preset release) or g++ 13 and later.")
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 19)
  message(FATAL_ERROR "clang ${CMAKE_CXX_COMPILER_VERSION} is too old: Caisson needs clang++-19 or later.")
endif()

option(CAISSON_FAILPOINTS "Compile CAISSON_FAILPOINT(name) in (test builds)" OFF)
set(CAISSON_SANITIZE "" CACHE STRING "Value of -fsanitize=, empty for none")

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
# -O1 keeps sanitized and debug tests fast enough to be run often.
set(CMAKE_CXX_FLAGS_DEBUG "-g1 -O1")
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1 -DNDEBUG")

set(CAISSON_WARNINGS -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual -Werror)

add_library(caisson_flags INTERFACE)
target_include_directories(caisson_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_options(caisson_flags INTERFACE ${CAISSON_WARNINGS} -fstack-protector-strong -fPIE
  -fno-omit-frame-pointer)
target_compile_definitions(caisson_flags INTERFACE
  _GLIBCXX_ASSERTIONS CAISSON_VERSION="${PROJECT_VERSION}")
target_link_options(caisson_flags INTERFACE -pie -Wl,-z,relro,-z,now -fuse-ld=mold)
if(CAISSON_SANITIZE)
  target_compile_options(caisson_flags INTERFACE -fsanitize=${CAISSON_SANITIZE} -fno-sanitize-recover=all)
  target_link_options(caisson_flags INTERFACE -fsanitize=${CAISSON_SANITIZE})
else()
  target_compile_options(caisson_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
endif()
if(CAISSON_FAILPOINTS)
  target_compile_definitions(caisson_flags INTERFACE CAISSON_FAILPOINTS=1)
endif()
