/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * What all of the C interface of Attikos rests on: versions, statuses, tensors, contexts, device facts. Comes with
 * attikos.h.
 */
#ifndef ATTIKOS_ATTIKOS_BASE_H
#define ATTIKOS_ATTIKOS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(ATTIKOS_BUILDING_C) || !defined(_WIN32)
#define ATTIKOS_API __attribute__((visibility("default")))
#else
#define ATTIKOS_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* --- versions and errors ----------------------------------------------------------------------- */

/** Version of the library that was loaded: major * 10000 + minor * 100 + patch. */
ATTIKOS_API int attikos_version(void);
/** The same as text, e.g. "0.1.0". */
ATTIKOS_API char const* attikos_version_string(void);

/* An enumeration holds any int in C; in C++ only where that is said, and callers may pass numbers that are none of it. */
#if defined(__cplusplus)
#define ATTIKOS_ENUM(name) enum name : int
#else
#define ATTIKOS_ENUM(name) enum name
#endif

/** Instruction sets that the library was compiled for and this processor, or its operating system, lacks, e.g.
 * "avx2, fma"; "" where it can run. Where it is not "", attikos_context_create, attikos_get_device_info,
 * attikos_list_kernels and the functions on raw pointers fail with a sentence about it (ATTIKOS_DEVICE_ERROR), and
 * nothing that needs a context is called. Never null. */
ATTIKOS_API char const* attikos_missing_instructions(void);

typedef ATTIKOS_ENUM(attikos_status) {
  ATTIKOS_SUCCESS = 0,
  ATTIKOS_NULL_ARGUMENT = 1,     /**< a pointer that must not be null, or data of a tensor with elements */
  ATTIKOS_NEGATIVE_EXTENT = 2,   /**< an extent or a number of dimensions below 0 */
  ATTIKOS_OVERFLOW = 3,          /**< extents and strides reach beyond 63-bit byte offsets */
  ATTIKOS_MISALIGNED = 4,        /**< a data pointer that is no multiple of its element's size */
  ATTIKOS_SHAPE_MISMATCH = 5,    /**< extents or numbers of dimensions that do not fit together */
  ATTIKOS_DTYPE_MISMATCH = 6,    /**< an element type, or a mix of them, that the operation does not take */
  ATTIKOS_INVALID_STRIDES = 7,   /**< strides by which two elements of an output share memory */
  ATTIKOS_INVALID_ARGUMENT = 8,  /**< a number or an enumerator out of its range, or an output that shares memory
                                      with another tensor of the call */
  ATTIKOS_INVALID_STRUCT = 9,    /**< a struct_size of no version of this struct, or one of a newer version in use */
  ATTIKOS_DEVICE_ERROR = 10,     /**< a device or kind of context that is not there, or memory out of its reach */
  ATTIKOS_UNSUPPORTED = 11,      /**< a combination of options that nothing computes, or a demanded kernel that cannot run */
  ATTIKOS_OUT_OF_MEMORY = 12,    /**< memory that could not be had, or a workspace that is too small */
  ATTIKOS_INTERNAL_ERROR = 13    /**< anything else, e.g. an error that the device reported */
} attikos_status;

/** Name of a status, e.g. "shape mismatch". Never null. */
ATTIKOS_API char const* attikos_status_string(attikos_status status);
/** What was wrong with the last call of this thread that did not succeed; "" before that. Valid until
 * the thread's next call. */
ATTIKOS_API char const* attikos_last_error(void);

/* --- tensors ----------------------------------------------------------------------------------- */

typedef ATTIKOS_ENUM(attikos_dtype) {
  ATTIKOS_FLOAT64 = 0,
  ATTIKOS_FLOAT32 = 1,
  ATTIKOS_FLOAT16 = 2,
  ATTIKOS_BFLOAT16 = 3,
  ATTIKOS_FLOAT8_E4M3 = 4, /**< OCP E4M3: no infinity, largest finite value 448 */
  ATTIKOS_FLOAT8_E5M2 = 5,
  ATTIKOS_INT8 = 6,
  ATTIKOS_UINT8 = 7,
  ATTIKOS_INT32 = 8,
  ATTIKOS_INT64 = 9,
  ATTIKOS_BOOL = 10 /**< one byte, 0 or not 0 */
} attikos_dtype;

/** Bytes of one element; 0 for a number that is no attikos_dtype. */
ATTIKOS_API size_t attikos_dtype_size(int32_t dtype);
/** e.g. "bfloat16". Never null. */
ATTIKOS_API char const* attikos_dtype_name(int32_t dtype);

/** A strided array that the caller owns. Inputs are never written through it. */
typedef struct attikos_tensor {
  void* data;             /**< first element; may be null where there are no elements */
  int32_t dtype;          /**< an attikos_dtype */
  int32_t ndim;           /**< number of dimensions */
  int64_t const* shape;   /**< ndim extents, each 0 or more */
  int64_t const* strides; /**< ndim strides in elements, 0 and negative ones included; null: row-major */
} attikos_tensor;

/* --- contexts ---------------------------------------------------------------------------------- */

typedef ATTIKOS_ENUM(attikos_device_kind) {
  ATTIKOS_HOST = 0,   /**< the parallel host space: OpenMP or Threads where Kokkos has one, else Serial */
  ATTIKOS_SERIAL = 1, /**< one host thread, the caller's */
  ATTIKOS_CUDA = 2
} attikos_device_kind;

/** Where operations run. Distinct contexts may be used from several host threads at once; one context
 * by one thread at a time. */
typedef struct attikos_context attikos_context;

/** Makes a context.
 *
 * CUDA: `ordinal` is the device, `stream` a cudaStream_t of it (null: the legacy default stream),
 * which outlives the contexts that name it. Host kinds: ordinal is 0; contexts of kind ATTIKOS_SERIAL
 * with distinct `stream` values run side by side, the value means nothing else.
 *
 * One Kokkos execution space instance is kept for each kind, device and stream that a context names, and
 * for the 16 named last: making and destroying contexts is cheap, and streams may come and go. A stream may
 * be captured from its first call on if it was made with cudaStreamNonBlocking; what a graph uses is kept.
 * Kokkos is initialized if the process has not done so; in that case, and only then, the library finalizes
 * it when the process ends. Calls of other threads that are under way are waited for then, for five seconds at
 * most, and later ones are refused with ATTIKOS_DEVICE_ERROR. The calling thread's current device stays what it was.
 *
 * In a process that is forked after the first context, calls on the host run on the calling thread alone,
 * and those on CUDA are refused with ATTIKOS_DEVICE_ERROR. So are all calls on a device where a kernel, of
 * this library or not, has failed; the process may go on with other devices, and end as usual. */
ATTIKOS_API attikos_status attikos_context_create(int32_t kind, int32_t ordinal, void* stream,
                                                  attikos_context** context);
/** Does not wait for work under way. Null is allowed. */
ATTIKOS_API void attikos_context_destroy(attikos_context* context);
/** Gives `bytes` of the context's device at an address divisible by 64, which may be used in the order of the
 * context's stream, or null. */
typedef void* (*attikos_allocate_function)(void* user, size_t bytes);
/** Takes back what the other gave, at the latest before the call returns: the call's work is in the stream's queue
 * then, and what is queued behind it may use the memory. */
typedef void (*attikos_release_function)(void* user, void* memory);
/** Calls on this context take the memory that they need for their length from these functions, by the calling
 * thread and with `user`, instead of memory that the library keeps for the stream; into a graph that is captured they
 * record what they are given. Memory that is not given is ATTIKOS_OUT_OF_MEMORY. Both null: the library's own again. */
ATTIKOS_API attikos_status attikos_context_set_allocator(attikos_context* context,
                                                         attikos_allocate_function allocate,
                                                         attikos_release_function release, void* user);
/** Waits until all work of the context's stream is done and reports errors of the device as
 * ATTIKOS_DEVICE_ERROR. */
ATTIKOS_API attikos_status attikos_synchronize(attikos_context* context);
/** Whether contexts of this kind can be made, i.e. the library was built for it and there is a device. */
ATTIKOS_API bool attikos_has_device(int32_t kind, int32_t ordinal);
/** Number of CUDA devices; 0 in a build without CUDA. */
ATTIKOS_API int32_t attikos_cuda_device_count(void);
/** Whether the context's stream is being captured into a CUDA graph. */
ATTIKOS_API bool attikos_is_capturing(attikos_context const* context);

/** Memory of the context's device, aligned for every element type. */
ATTIKOS_API attikos_status attikos_allocate(attikos_context* context, size_t bytes, void** memory);
/** Frees what attikos_allocate gave for a context of the same kind and device, after waiting for the
 * device's work. Null is allowed. */
ATTIKOS_API attikos_status attikos_free(attikos_context* context, void* memory);
/** Copies bytes between host memory and the context's device in the order of its stream; done when the
 * call returns. */
ATTIKOS_API attikos_status attikos_copy(attikos_context* context, void* to, void const* from, size_t bytes);

typedef ATTIKOS_ENUM(attikos_architecture) {
  ATTIKOS_ARCH_UNKNOWN = 0,
  ATTIKOS_ARCH_VOLTA = 1,
  ATTIKOS_ARCH_TURING = 2,
  ATTIKOS_ARCH_AMPERE = 3,
  ATTIKOS_ARCH_ADA = 4,
  ATTIKOS_ARCH_HOPPER = 5,
  ATTIKOS_ARCH_BLACKWELL = 6,
  ATTIKOS_ARCH_HOST = 7
} attikos_architecture;

typedef struct attikos_device_info {
  size_t struct_size;
  char name[128];               /**< of the device, or of the processor */
  char simd[16];                /**< host: widest vectors the library was compiled for, e.g. "avx512" */
  int32_t kind;                 /**< attikos_device_kind */
  int32_t architecture;         /**< attikos_architecture */
  int32_t compute_major;        /**< compute capability; 0 on a host */
  int32_t compute_minor;
  int32_t has_tma;              /**< tensor memory accelerator */
  int32_t has_fp8;              /**< float8 arithmetic in hardware */
  int32_t has_warpgroup_mma;
  int32_t multiprocessors;      /**< streaming multiprocessors, or processors of the host */
  int64_t shared_memory_per_multiprocessor; /**< bytes; 0 on a host */
  int64_t total_memory;         /**< bytes */
  char host_isa[16];            /**< host: instructions that kernels use beside those, e.g. "avx512_bf16", chosen for
                                   the machine, or by the variable ATTIKOS_HOST_ISA at the first call; "compiled":
                                   none */
} attikos_device_info;
#define ATTIKOS_DEVICE_INFO_INIT {sizeof(attikos_device_info), "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ""}

/** Facts about a device. Only members that the caller's struct_size covers are written; those that a library older than
 * the caller does not know stay as they are. */
ATTIKOS_API attikos_status attikos_get_device_info(int32_t kind, int32_t ordinal, attikos_device_info* info);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_ATTIKOS_BASE_H */
