# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The recipe by which Spack builds Attikos, in a repository of its own: `spack repo add cmake/spack`, then `spack dev-build
attikos@main` in a checkout."""

from spack.package import *


class Attikos(CMakePackage, CudaPackage):
    """Attention, matrix products and fused operations on Kokkos, one source for CPUs and GPUs, with hand-tuned CUDA
    kernels."""

    license("Apache-2.0 WITH LLVM-exception")

    version("main", branch="main")

    variant("c", default=True, description="Build libattikos, the C interface")
    variant("fortran", default=False, description="Build the Fortran module over libattikos")
    variant("kokkos-kernels", default=False, description="Use the BLAS of Kokkos Kernels for products on the host")
    variant("openmp", default=True, description="Use a Kokkos with OpenMP")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("fortran", type="build", when="+fortran")
    depends_on("cmake@3.25:", type="build")
    depends_on("cmake@3.26:", type="build", when="+cuda")
    depends_on("python@3.9:", type="build", when="+fortran")

    depends_on("kokkos@4.7: cxxstd=20")
    depends_on("kokkos+pic", when="+c")  # a Kokkos that is linked into libattikos
    depends_on("kokkos+openmp", when="+openmp")
    depends_on("kokkos+cuda+cuda_lambda+cmake_lang", when="+cuda")
    for _arch in CudaPackage.cuda_arch_values:
        depends_on(f"kokkos cuda_arch={_arch}", when=f"+cuda cuda_arch={_arch}")
    depends_on("kokkos-kernels+blas", when="+kokkos-kernels")
    depends_on("cuda@12:", when="+cuda")

    conflicts("+fortran", when="~c", msg="the Fortran module is over libattikos")
    conflicts("%gcc@:11", msg="C++20 as GCC 12 and newer have it is needed")
    conflicts("cuda_arch=none", when="+cuda", msg="name the architecture, as Kokkos has it: cuda_arch=90")

    def cmake_args(self):
        return [
            self.define_from_variant("ATTIKOS_BUILD_C", "c"),
            self.define_from_variant("ATTIKOS_BUILD_FORTRAN", "fortran"),
            self.define_from_variant("ATTIKOS_ENABLE_KOKKOS_KERNELS", "kokkos-kernels"),
            self.define_from_variant("ATTIKOS_REQUIRE_CUDA_COMPANION", "cuda"),
            # Spack's compiler wrapper names the processor.
            self.define("ATTIKOS_ARCHITECTURE", ""),
            self.define("ATTIKOS_BUILD_TESTS", False),
            self.define("ATTIKOS_BUILD_EXAMPLES", False),
        ]
