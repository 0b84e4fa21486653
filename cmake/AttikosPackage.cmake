# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The CMake package: the same names from the build tree and from an install tree, which may be moved.

include(CMakePackageConfigHelpers)

# attikos_write_config(<folder> <Kokkos hint> <Kokkos Kernels hint>)
function(attikos_write_config folder kokkos_hint kokkos_kernels_hint)
  set(ATTIKOS_CONFIG_KOKKOS_HINT "set(attikos_kokkos_hint \"${kokkos_hint}\")")
  set(ATTIKOS_CONFIG_KOKKOS_KERNELS_HINT "set(attikos_kokkos_kernels_hint \"${kokkos_kernels_hint}\")")
  configure_package_config_file(
    "${PROJECT_SOURCE_DIR}/cmake/AttikosConfig.cmake.in" "${folder}/AttikosConfig.cmake"
    INSTALL_DESTINATION "${ATTIKOS_INSTALL_CMAKEDIR}" NO_SET_AND_CHECK_MACRO)
endfunction()

set(ATTIKOS_INSTALL_CMAKEDIR "${CMAKE_INSTALL_LIBDIR}/cmake/Attikos")

set(ATTIKOS_HAVE_C OFF)
set(ATTIKOS_HAVE_INSTALLED_FORTRAN OFF)
if(ATTIKOS_BUILD_C AND ATTIKOS_INSTALL)  # bindings/c and bindings/fortran add theirs to the export below
  set(ATTIKOS_HAVE_C ON)
  set(ATTIKOS_HAVE_INSTALLED_FORTRAN ${ATTIKOS_HAVE_FORTRAN})
endif()
set(attikos_exported attikos)
if(ATTIKOS_BUILD_CUDA_COMPANION)
  list(APPEND attikos_exported attikos_cuda)
endif()
install(TARGETS ${attikos_exported} EXPORT AttikosTargets
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
        RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
unset(attikos_exported)

# Build tree: find_package(Attikos) with Attikos_DIR=<build>.
export(EXPORT AttikosTargets NAMESPACE Attikos:: FILE "${PROJECT_BINARY_DIR}/AttikosTargets.cmake")
set(attikos_modules cmake/AttikosTargetLanguage.cmake cmake/AttikosBuildType.cmake cmake/AttikosMpi.cmake
    cmake/AttikosNccl.cmake)  # that the package includes
foreach(module IN LISTS attikos_modules)
  get_filename_component(name "${module}" NAME)
  configure_file(${module} "${PROJECT_BINARY_DIR}/${name}" COPYONLY)
endforeach()
attikos_write_config("${PROJECT_BINARY_DIR}" "${ATTIKOS_KOKKOS_DIR}" "${ATTIKOS_KOKKOS_KERNELS_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/AttikosConfigVersion.cmake"
                                 VERSION ${PROJECT_VERSION} COMPATIBILITY SameMajorVersion)

# Install tree. A Kokkos built along with Attikos is installed into the same prefix, hence the hint.
if(ATTIKOS_INSTALL)
  attikos_write_config("${PROJECT_BINARY_DIR}/install-config" "\${PACKAGE_PREFIX_DIR}" "\${PACKAGE_PREFIX_DIR}")
  install(EXPORT AttikosTargets NAMESPACE Attikos:: DESTINATION "${ATTIKOS_INSTALL_CMAKEDIR}")
  install(FILES "${PROJECT_BINARY_DIR}/install-config/AttikosConfig.cmake"
                "${PROJECT_BINARY_DIR}/AttikosConfigVersion.cmake"
                ${attikos_modules}
          DESTINATION "${ATTIKOS_INSTALL_CMAKEDIR}")
  install(DIRECTORY include/attikos DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
          FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
  install(FILES "${PROJECT_BINARY_DIR}/include/attikos/config.hpp"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/attikos")
  if(ATTIKOS_HAVE_C)  # for those who build without CMake
    file(RELATIVE_PATH attikos_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
    configure_file(cmake/attikos-c.pc.in "${PROJECT_BINARY_DIR}/attikos-c.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/attikos-c.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  endif()
  install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/attikos")
endif()
