# Compiler and linker flags of all native programs: protection against memory errors, or sanitizers that find them.
set(K8SDDS_SANITIZE "" CACHE STRING "sanitizers for a test build: address,undefined or thread")

set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(K8SDDS_SANITIZE)
  set(flags -g -fsanitize=${K8SDDS_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_compile_options(${flags})
  add_link_options(${flags})
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
else()
  add_compile_options(-fstack-protector-strong)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    add_compile_options(-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)   # requires optimization
  endif()
endif()
add_link_options(-Wl,-z,relro,-z,now)
