# The backend zenoh, and zenohd, the router. cargo builds both from the crates that zenoh/Cargo.lock pins.
set(CRATE ${CMAKE_CURRENT_LIST_DIR}/zenoh)
set(RUST_TARGET "")                                         # empty for this machine
set(rust_options)
if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  set(RUST_TARGET ${CMAKE_SYSTEM_PROCESSOR}-unknown-linux-gnu)
  set(K8SDDS_RUST_SYSROOT "" CACHE PATH "folder with the standard library for the target; empty if rustc has it")
  if(K8SDDS_RUST_SYSROOT)
    set(rust_options --sysroot=${K8SDDS_RUST_SYSROOT})
  endif()
endif()
file(READ ${CRATE}/Cargo.toml manifest)
string(REGEX MATCH "\nrust-version = \"([0-9.]+)\"" found "${manifest}")
set(RUST_VERSION ${CMAKE_MATCH_1})
string(REGEX MATCH "\nzenohd = [^\n]*\"=([0-9.]+)\"" found "${manifest}")
set(ZENOH_VERSION ${CMAKE_MATCH_1})

# Sets `obstacle` to what prevents the build, or to an empty text.
function(k8sdds_check_rust)
  set(remedy "Debian: rustc-web and cargo-web")
  foreach(tool cargo rustc)
    unset(K8SDDS_${tool} CACHE)                            # it may have been installed or removed since
    find_program(K8SDDS_${tool} ${tool})
    if(NOT K8SDDS_${tool})
      set(obstacle "CMake found no ${tool} (${remedy})" PARENT_SCOPE)
      return()
    endif()
    execute_process(COMMAND ${K8SDDS_${tool}} --version OUTPUT_VARIABLE shown ERROR_QUIET)
    string(REGEX MATCH "[0-9][0-9.]+" version "${shown}")
    if(NOT version VERSION_GREATER_EQUAL RUST_VERSION)
      set(obstacle "${tool} ${version} is older than ${RUST_VERSION} (${remedy})" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(obstacle "" PARENT_SCOPE)
  if(RUST_TARGET)
    execute_process(COMMAND ${K8SDDS_rustc} --target ${RUST_TARGET} ${rust_options} --crate-type lib --emit metadata -o - -
      INPUT_FILE /dev/null RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
    if(code)
      set(obstacle "this machine's Rust has no standard library for ${RUST_TARGET}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

set(obstacle "it was not requested (CMake: -DK8SDDS_ZENOH=ON)")
if(K8SDDS_ZENOH)
  k8sdds_check_rust()
endif()
if(obstacle)
  k8sdds_record(zenoh "not built: ${obstacle}")
  return()
endif()

set(folder ${CMAKE_BINARY_DIR}/zenoh)
set(options --release --locked --manifest-path ${CRATE}/Cargo.toml --target-dir ${folder})
set(environment)
if(RUST_TARGET)
  list(APPEND options --target ${RUST_TARGET})
  string(APPEND folder /${RUST_TARGET})
  string(REPLACE - _ name ${RUST_TARGET})
  string(TOUPPER ${name} NAME)
  set(environment CC_${name}=${CMAKE_C_COMPILER} CFLAGS_${name}=--sysroot=${CMAKE_SYSROOT}
    CARGO_TARGET_${NAME}_LINKER=${CMAKE_C_COMPILER}
    "CARGO_TARGET_${NAME}_RUSTFLAGS=-Clink-arg=--sysroot=${CMAKE_SYSROOT} ${rust_options}")
endif()
set(built ${folder}/release/libk8sdds_zenoh.a ${folder}/release/zenohd)
file(GLOB sources ${CRATE}/Cargo.* ${CRATE}/src/*.rs)
add_custom_command(OUTPUT ${built} DEPENDS ${sources} VERBATIM USES_TERMINAL
  COMMENT "Building the crates of Zenoh, which takes minutes"
  # The router is a dependency that has no library, so it is named. It shares the compiled dependencies. cargo repeats failed
  # downloads itself.
  COMMAND ${CMAKE_COMMAND} -E env ${environment} ${K8SDDS_cargo} build ${options} -p k8sdds_zenoh -p zenohd
  # cargo does not write a file whose content would be the same.
  COMMAND ${CMAKE_COMMAND} -E touch ${built})
add_custom_target(zenoh_crates ALL DEPENDS ${built})

k8sdds_middleware(zenoh middleware/zenoh.cpp middleware/control_message.cpp)
add_dependencies(backend_zenoh zenoh_crates)
target_compile_definitions(backend_zenoh PRIVATE ZENOH_VERSION="${ZENOH_VERSION}")
# The C functions of the crates stay inside of the module, because other libraries have functions of the same names.
target_link_libraries(backend_zenoh PRIVATE ${folder}/release/libk8sdds_zenoh.a ${CMAKE_DL_LIBS} m)
# Assembler code of the crates does not say that it needs no executable stack.
target_link_options(backend_zenoh PRIVATE -Wl,--exclude-libs,ALL -Wl,--gc-sections -Wl,-z,noexecstack)
install(PROGRAMS ${folder}/release/zenohd DESTINATION ${K8SDDS_LIBEXEC})
install(FILES ${CRATE}/LICENSES DESTINATION ${K8SDDS_LIBEXEC} RENAME zenoh-licenses.txt)
k8sdds_record(zenoh "Zenoh ${ZENOH_VERSION}")
