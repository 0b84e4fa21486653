// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of CUDA's run time that can be made to fail: those that the library, its companion
// and Kokkos call in an operation. Included once for each use, with these macros defined; CMake
// reads the names, too. CALL: any; LAUNCH: those that start kernels; OWN: failing_cuda.cpp writes
// them out.
ATTIKOS_CALL(cudaGetDevice, (int* device), (device))
ATTIKOS_CALL(cudaSetDevice, (int device), (device))
ATTIKOS_CALL(cudaGetDeviceCount, (int* count), (count))
ATTIKOS_CALL(cudaDeviceGetAttribute, (int* value, cudaDeviceAttr which, int device),
             (value, which, device))
ATTIKOS_CALL(cudaFuncGetAttributes, (cudaFuncAttributes * attributes, void const* function),
             (attributes, function))
ATTIKOS_CALL(cudaFuncSetAttribute, (void const* function, cudaFuncAttribute which, int value),
             (function, which, value))
ATTIKOS_CALL(cudaMemcpyAsync,
             (void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
              cudaStream_t stream),
             (to, from, bytes, kind, stream))
ATTIKOS_CALL(cudaMemcpyToSymbol,
             (void const* symbol, void const* from, std::size_t bytes, std::size_t offset,
              cudaMemcpyKind kind),
             (symbol, from, bytes, offset, kind))
ATTIKOS_CALL(cudaMemsetAsync, (void* to, int value, std::size_t bytes, cudaStream_t stream),
             (to, value, bytes, stream))
ATTIKOS_CALL(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status),
             (stream, status))
ATTIKOS_CALL(cudaThreadExchangeStreamCaptureMode, (cudaStreamCaptureMode * mode), (mode))
ATTIKOS_CALL(cudaUserObjectCreate,
             (cudaUserObject_t * object, void* of, cudaHostFn_t destroy, unsigned count,
              unsigned flags),
             (object, of, destroy, count, flags))
ATTIKOS_CALL(cudaGraphRetainUserObject,
             (cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags),
             (graph, object, count, flags))
#if CUDART_VERSION >= 13000
ATTIKOS_CALL(cudaStreamGetCaptureInfo,
             (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
              cudaGraph_t* graph, cudaGraphNode_t const** nodes, cudaGraphEdgeData const** edges,
              std::size_t* count),
             (stream, status, id, graph, nodes, edges, count))
// What <<<…>>> is compiled to.
ATTIKOS_LAUNCH(__cudaLaunchKernel,
               (cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                std::size_t shared_bytes, cudaStream_t stream),
               (kernel, grid, block, arguments, shared_bytes, stream))
#else
ATTIKOS_CALL(cudaStreamGetCaptureInfo_v2,
             (cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
              cudaGraph_t* graph, cudaGraphNode_t const** nodes, std::size_t* count),
             (stream, status, id, graph, nodes, count))
#endif
ATTIKOS_LAUNCH(cudaLaunchKernel,
               (void const* function, dim3 grid, dim3 block, void** arguments,
                std::size_t shared_bytes, cudaStream_t stream),
               (function, grid, block, arguments, shared_bytes, stream))
ATTIKOS_LAUNCH(cudaLaunchKernelExC,
               (cudaLaunchConfig_t const* config, void const* function, void** arguments),
               (config, function, arguments))
ATTIKOS_OWN(cudaMalloc, (void** memory, std::size_t bytes), (memory, bytes))
ATTIKOS_OWN(cudaFree, (void* memory), (memory))
ATTIKOS_OWN(cudaGetDriverEntryPointByVersion,
            (char const* name, void** function, unsigned version, unsigned long long flags,
             cudaDriverEntryPointQueryResult* result),
            (name, function, version, flags, result))
ATTIKOS_OWN(cudaPeekAtLastError, (), ())
ATTIKOS_OWN(cudaGetLastError, (), ())
