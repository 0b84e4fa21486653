/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The header of today beside the declarations of version 1: a function that was declared otherwise, an enumerator of
 * another value or a struct of another shape does not compile. */
#include <attikos/compat/cuflash.h>

#include "functions.h"

#define V1(name) v1_##name
#include "types.h"

#define V1_EQUAL_ENUMERATOR(name, value) _Static_assert(name == value, #name " had another value");
V1_ENUMERATORS(V1_EQUAL_ENUMERATOR)

#define V1_EQUAL(name)                                                                                  \
  _Static_assert(offsetof(Struct, name) == offsetof(Old, name) &&                                       \
                     sizeof(((Struct*)NULL)->name) == sizeof(((Old*)NULL)->name), #name " lay elsewhere");
#define V1_EQUAL_MEMBER(type, name) V1_EQUAL(name)
#define V1_EQUAL_OPTION(kind, name, initial) V1_EQUAL(name)
#define V1_EQUAL_STRUCT(type, table, equal) \
  void check_##type(void);                  \
  void check_##type(void) {                 \
    typedef type Struct;                    \
    typedef v1_##type Old;                  \
    table(equal)                            \
  }
V1_EQUAL_STRUCT(attikos_tensor, V1_TENSOR, V1_EQUAL_MEMBER)
V1_EQUAL_STRUCT(attikos_device_info, V1_DEVICE_INFO, V1_EQUAL_MEMBER)
V1_EQUAL_STRUCT(attikos_gemm_options, V1_GEMM_OPTIONS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_gemm_gradients, V1_GEMM_GRADIENTS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_attention_options, V1_ATTENTION_OPTIONS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_attention_gradients, V1_ATTENTION_GRADIENTS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_decode_options, V1_DECODE_OPTIONS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_append_kv_options, V1_APPEND_KV_OPTIONS, V1_EQUAL_OPTION)
V1_EQUAL_STRUCT(attikos_rope_options, V1_ROPE_OPTIONS, V1_EQUAL_OPTION)
_Static_assert(sizeof(attikos_tensor) == sizeof(v1_attikos_tensor), "arrays of tensors had another step");
