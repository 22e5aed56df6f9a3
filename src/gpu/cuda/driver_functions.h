/* SPDX-License-Identifier: MIT
 *
 * The list of driver entry points, X(kind, name, symbol, version, arguments):
 *
 *   kind      REQUIRED: every driver since CUDA 11.4 has it. OPTIONAL: NULL when the driver is
 *             older than `version`
 *   name      what cuGetProcAddress is asked for
 *   symbol    the exported symbol, for a plain look-up
 *   version   the version of the signature, 11070 = CUDA 11.7
 *
 * tests/unit/test_driver_abi.c compares each signature with CUDA's own typedef of that version.
 */
#ifndef CUDALINK_SRC_GPU_CUDA_DRIVER_FUNCTIONS_H
#define CUDALINK_SRC_GPU_CUDA_DRIVER_FUNCTIONS_H

/* clang-format off */
#define CUDA_DRIVER_FUNCTIONS(X) \
  /* The driver itself. */ \
  X(REQUIRED, cuInit, cuInit, 2000, (unsigned int flags)) \
  X(REQUIRED, cuDriverGetVersion, cuDriverGetVersion, 2020, (int *version)) \
  X(REQUIRED, cuGetErrorName, cuGetErrorName, 6000, (CUresult result, const char **name)) \
  X(REQUIRED, cuGetErrorString, cuGetErrorString, 6000, (CUresult result, const char **text)) \
  /* Devices. */ \
  X(REQUIRED, cuDeviceGetCount, cuDeviceGetCount, 2000, (int *count)) \
  X(REQUIRED, cuDeviceGet, cuDeviceGet, 2000, (CUdevice *device, int ordinal)) \
  X(REQUIRED, cuDeviceGetName, cuDeviceGetName, 2000, (char *name, int size, CUdevice device)) \
  X(REQUIRED, cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040, (CUuuid *uuid, CUdevice device)) \
  X(REQUIRED, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000, \
    (int *value, CUdevice_attribute attribute, CUdevice device)) \
  X(REQUIRED, cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020, (size_t *size, CUdevice device)) \
  X(REQUIRED, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010, \
    (char *text, int size, CUdevice device)) \
  X(REQUIRED, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000, \
    (int *can, CUdevice device, CUdevice peer)) \
  X(REQUIRED, cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020, \
    (CUmemoryPool *pool, CUdevice device)) \
  /* Contexts. */ \
  X(REQUIRED, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000, \
    (CUcontext *context, CUdevice device)) \
  X(REQUIRED, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000, (CUdevice device)) \
  X(REQUIRED, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000, \
    (CUdevice device, unsigned int *flags, int *active)) \
  X(REQUIRED, cuCtxCreate, cuCtxCreate_v2, 3020, \
    (CUcontext *context, unsigned int flags, CUdevice device)) \
  X(REQUIRED, cuCtxDestroy, cuCtxDestroy_v2, 4000, (CUcontext context)) \
  X(REQUIRED, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000, (CUcontext context)) \
  X(REQUIRED, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000, (CUcontext *context)) \
  X(REQUIRED, cuCtxGetCurrent, cuCtxGetCurrent, 4000, (CUcontext *context)) \
  X(REQUIRED, cuCtxSetCurrent, cuCtxSetCurrent, 4000, (CUcontext context)) \
  X(REQUIRED, cuCtxGetDevice, cuCtxGetDevice, 2000, (CUdevice *device)) \
  X(REQUIRED, cuCtxSynchronize, cuCtxSynchronize, 2000, (void)) \
  X(REQUIRED, cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, 5050, \
    (int *least, int *greatest)) \
  X(REQUIRED, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000, \
    (CUcontext peer, unsigned int flags)) \
  X(REQUIRED, cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, 4000, (CUcontext peer)) \
  X(OPTIONAL, cuCtxGetId, cuCtxGetId, 12000, (CUcontext context, unsigned long long *id)) \
  /* Streams. */ \
  X(REQUIRED, cuStreamCreate, cuStreamCreate, 2000, (CUstream *stream, unsigned int flags)) \
  X(REQUIRED, cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050, \
    (CUstream *stream, unsigned int flags, int priority)) \
  X(REQUIRED, cuStreamDestroy, cuStreamDestroy_v2, 4000, (CUstream stream)) \
  X(REQUIRED, cuStreamQuery, cuStreamQuery, 2000, (CUstream stream)) \
  X(REQUIRED, cuStreamSynchronize, cuStreamSynchronize, 2000, (CUstream stream)) \
  X(REQUIRED, cuStreamWaitEvent, cuStreamWaitEvent, 3020, \
    (CUstream stream, CUevent event, unsigned int flags)) \
  X(REQUIRED, cuStreamGetCtx, cuStreamGetCtx, 9020, (CUstream stream, CUcontext *context)) \
  X(REQUIRED, cuStreamGetFlags, cuStreamGetFlags, 5050, (CUstream stream, unsigned int *flags)) \
  X(REQUIRED, cuStreamGetPriority, cuStreamGetPriority, 5050, (CUstream stream, int *priority)) \
  X(OPTIONAL, cuStreamGetId, cuStreamGetId, 12000, (CUstream stream, unsigned long long *id)) \
  X(REQUIRED, cuStreamIsCapturing, cuStreamIsCapturing, 10000, \
    (CUstream stream, CUstreamCaptureStatus *status)) \
  X(REQUIRED, cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010, \
    (CUstream stream, CUstreamCaptureMode mode)) \
  X(REQUIRED, cuStreamEndCapture, cuStreamEndCapture, 10000, (CUstream stream, CUgraph *graph)) \
  X(REQUIRED, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010, \
    (CUstreamCaptureMode *mode)) \
  X(REQUIRED, cuLaunchHostFunc, cuLaunchHostFunc, 10000, \
    (CUstream stream, CUhostFn function, void *user)) \
  X(REQUIRED, cuStreamAddCallback, cuStreamAddCallback, 5000, \
    (CUstream stream, CUstreamCallback callback, void *user, unsigned int flags)) \
  /* Events. */ \
  X(REQUIRED, cuEventCreate, cuEventCreate, 2000, (CUevent *event, unsigned int flags)) \
  X(REQUIRED, cuEventDestroy, cuEventDestroy_v2, 4000, (CUevent event)) \
  X(REQUIRED, cuEventRecord, cuEventRecord, 2000, (CUevent event, CUstream stream)) \
  X(REQUIRED, cuEventQuery, cuEventQuery, 2000, (CUevent event)) \
  X(REQUIRED, cuEventSynchronize, cuEventSynchronize, 2000, (CUevent event)) \
  X(REQUIRED, cuEventElapsedTime, cuEventElapsedTime, 2000, \
    (float *milliseconds, CUevent start, CUevent end)) \
  /* Legacy interprocess handles. */ \
  X(REQUIRED, cuIpcGetEventHandle, cuIpcGetEventHandle, 4010, \
    (CUipcEventHandle *handle, CUevent event)) \
  X(REQUIRED, cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010, \
    (CUevent *event, CUipcEventHandle handle)) \
  X(REQUIRED, cuIpcGetMemHandle, cuIpcGetMemHandle, 4010, \
    (CUipcMemHandle *handle, CUdeviceptr pointer)) \
  X(REQUIRED, cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, 11000, \
    (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)) \
  X(REQUIRED, cuIpcCloseMemHandle, cuIpcCloseMemHandle, 4010, (CUdeviceptr pointer)) \
  /* Memory. */ \
  X(REQUIRED, cuMemAlloc, cuMemAlloc_v2, 3020, (CUdeviceptr *pointer, size_t size)) \
  X(REQUIRED, cuMemFree, cuMemFree_v2, 3020, (CUdeviceptr pointer)) \
  X(REQUIRED, cuMemAllocManaged, cuMemAllocManaged, 6000, \
    (CUdeviceptr *pointer, size_t size, unsigned int flags)) \
  X(REQUIRED, cuMemAllocAsync, cuMemAllocAsync, 11020, \
    (CUdeviceptr *pointer, size_t size, CUstream stream)) \
  X(REQUIRED, cuMemFreeAsync, cuMemFreeAsync, 11020, (CUdeviceptr pointer, CUstream stream)) \
  X(REQUIRED, cuMemHostAlloc, cuMemHostAlloc, 2020, \
    (void **pointer, size_t size, unsigned int flags)) \
  X(REQUIRED, cuMemFreeHost, cuMemFreeHost, 2000, (void *pointer)) \
  X(REQUIRED, cuMemHostRegister, cuMemHostRegister_v2, 6050, \
    (void *pointer, size_t size, unsigned int flags)) \
  X(REQUIRED, cuMemHostUnregister, cuMemHostUnregister, 4000, (void *pointer)) \
  X(REQUIRED, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020, \
    (CUdeviceptr *device, void *host, unsigned int flags)) \
  X(REQUIRED, cuMemGetInfo, cuMemGetInfo_v2, 3020, (size_t *free, size_t *total)) \
  X(REQUIRED, cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020, \
    (CUdeviceptr *base, size_t *size, CUdeviceptr pointer)) \
  X(REQUIRED, cuPointerGetAttribute, cuPointerGetAttribute, 4000, \
    (void *value, CUpointer_attribute attribute, CUdeviceptr pointer)) \
  X(REQUIRED, cuPointerGetAttributes, cuPointerGetAttributes, 7000, \
    (unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr pointer)) \
  /* Copies and fills. */ \
  X(REQUIRED, cuMemcpy, cuMemcpy, 4000, (CUdeviceptr to, CUdeviceptr from, size_t size)) \
  X(REQUIRED, cuMemcpyAsync, cuMemcpyAsync, 4000, \
    (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)) \
  X(REQUIRED, cuMemcpyHtoD, cuMemcpyHtoD_v2, 3020, \
    (CUdeviceptr to, const void *from, size_t size)) \
  X(REQUIRED, cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020, (void *to, CUdeviceptr from, size_t size)) \
  X(REQUIRED, cuMemcpyDtoD, cuMemcpyDtoD_v2, 3020, \
    (CUdeviceptr to, CUdeviceptr from, size_t size)) \
  X(REQUIRED, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020, \
    (CUdeviceptr to, const void *from, size_t size, CUstream stream)) \
  X(REQUIRED, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020, \
    (void *to, CUdeviceptr from, size_t size, CUstream stream)) \
  X(REQUIRED, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020, \
    (CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream)) \
  X(REQUIRED, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000, \
    (CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, \
     size_t size, CUstream stream)) \
  X(REQUIRED, cuMemcpy2D, cuMemcpy2D_v2, 3020, (const CUDA_MEMCPY2D *copy)) \
  X(REQUIRED, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020, \
    (const CUDA_MEMCPY2D *copy, CUstream stream)) \
  X(REQUIRED, cuMemcpy3D, cuMemcpy3D_v2, 3020, (const CUDA_MEMCPY3D *copy)) \
  X(REQUIRED, cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 3020, \
    (const CUDA_MEMCPY3D *copy, CUstream stream)) \
  X(REQUIRED, cuMemsetD8, cuMemsetD8_v2, 3020, \
    (CUdeviceptr to, unsigned char value, size_t count)) \
  X(REQUIRED, cuMemsetD8Async, cuMemsetD8Async, 3020, \
    (CUdeviceptr to, unsigned char value, size_t count, CUstream stream)) \
  X(REQUIRED, cuMemsetD16Async, cuMemsetD16Async, 3020, \
    (CUdeviceptr to, unsigned short value, size_t count, CUstream stream)) \
  X(REQUIRED, cuMemsetD32Async, cuMemsetD32Async, 3020, \
    (CUdeviceptr to, unsigned int value, size_t count, CUstream stream)) \
  X(REQUIRED, cuMemsetD2D8Async, cuMemsetD2D8Async, 3020, \
    (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, \
     CUstream stream)) \
  X(REQUIRED, cuMemsetD2D32Async, cuMemsetD2D32Async, 3020, \
    (CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, \
     CUstream stream)) \
  /* Virtual memory management. */ \
  X(REQUIRED, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020, \
    (size_t *granularity, const CUmemAllocationProp *properties, \
     CUmemAllocationGranularity_flags option)) \
  X(REQUIRED, cuMemCreate, cuMemCreate, 10020, \
    (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *properties, \
     unsigned long long flags)) \
  X(REQUIRED, cuMemRelease, cuMemRelease, 10020, (CUmemGenericAllocationHandle handle)) \
  X(REQUIRED, cuMemAddressReserve, cuMemAddressReserve, 10020, \
    (CUdeviceptr *pointer, size_t size, size_t alignment, CUdeviceptr address, \
     unsigned long long flags)) \
  X(REQUIRED, cuMemAddressFree, cuMemAddressFree, 10020, (CUdeviceptr pointer, size_t size)) \
  X(REQUIRED, cuMemMap, cuMemMap, 10020, \
    (CUdeviceptr pointer, size_t size, size_t offset, CUmemGenericAllocationHandle handle, \
     unsigned long long flags)) \
  X(REQUIRED, cuMemUnmap, cuMemUnmap, 10020, (CUdeviceptr pointer, size_t size)) \
  X(REQUIRED, cuMemSetAccess, cuMemSetAccess, 10020, \
    (CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access, size_t count)) \
  X(REQUIRED, cuMemGetAccess, cuMemGetAccess, 10020, \
    (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)) \
  X(REQUIRED, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020, \
    (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, \
     unsigned long long flags)) \
  X(REQUIRED, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020, \
    (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)) \
  X(REQUIRED, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, \
    10020, (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)) \
  X(REQUIRED, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000, \
    (CUmemGenericAllocationHandle *handle, void *address)) \
  X(OPTIONAL, cuMemGetHandleForAddressRange, cuMemGetHandleForAddressRange, 11070, \
    (void *handle, CUdeviceptr pointer, size_t size, CUmemRangeHandleType type, \
     unsigned long long flags)) \
  /* Arrays, external memory and semaphores. */ \
  X(REQUIRED, cuArray3DCreate, cuArray3DCreate_v2, 3020, \
    (CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)) \
  X(REQUIRED, cuArray3DGetDescriptor, cuArray3DGetDescriptor_v2, 3020, \
    (CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)) \
  X(REQUIRED, cuArrayDestroy, cuArrayDestroy, 2000, (CUarray array)) \
  X(REQUIRED, cuImportExternalMemory, cuImportExternalMemory, 10000, \
    (CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *descriptor)) \
  X(REQUIRED, cuExternalMemoryGetMappedBuffer, cuExternalMemoryGetMappedBuffer, 10000, \
    (CUdeviceptr *pointer, CUexternalMemory memory, \
     const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *descriptor)) \
  X(REQUIRED, cuExternalMemoryGetMappedMipmappedArray, cuExternalMemoryGetMappedMipmappedArray, \
    10000, (CUmipmappedArray *mipmap, CUexternalMemory memory, \
     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *descriptor)) \
  X(REQUIRED, cuMipmappedArrayGetLevel, cuMipmappedArrayGetLevel, 5000, \
    (CUarray *array, CUmipmappedArray mipmap, unsigned int level)) \
  X(REQUIRED, cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, 5000, (CUmipmappedArray mipmap)) \
  X(REQUIRED, cuDestroyExternalMemory, cuDestroyExternalMemory, 10000, (CUexternalMemory memory)) \
  X(REQUIRED, cuImportExternalSemaphore, cuImportExternalSemaphore, 10000, \
    (CUexternalSemaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *descriptor)) \
  X(REQUIRED, cuSignalExternalSemaphoresAsync, cuSignalExternalSemaphoresAsync, 10000, \
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, \
     unsigned int count, CUstream stream)) \
  X(REQUIRED, cuWaitExternalSemaphoresAsync, cuWaitExternalSemaphoresAsync, 10000, \
    (const CUexternalSemaphore *semaphores, const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, \
     unsigned int count, CUstream stream)) \
  X(REQUIRED, cuDestroyExternalSemaphore, cuDestroyExternalSemaphore, 10000, \
    (CUexternalSemaphore semaphore)) \
  /* Stream memory operations. Before CUDA 11.7 they needed a kernel module option. */ \
  X(OPTIONAL, cuStreamWriteValue32, cuStreamWriteValue32_v2, 11070, \
    (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
  X(OPTIONAL, cuStreamWriteValue64, cuStreamWriteValue64_v2, 11070, \
    (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
  X(OPTIONAL, cuStreamWaitValue32, cuStreamWaitValue32_v2, 11070, \
    (CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags)) \
  X(OPTIONAL, cuStreamWaitValue64, cuStreamWaitValue64_v2, 11070, \
    (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags)) \
  X(OPTIONAL, cuStreamBatchMemOp, cuStreamBatchMemOp_v2, 11070, \
    (CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags)) \
  /* Modules and kernels. */ \
  X(REQUIRED, cuModuleLoadData, cuModuleLoadData, 2000, (CUmodule *module, const void *image)) \
  X(REQUIRED, cuModuleLoadDataEx, cuModuleLoadDataEx, 2010, \
    (CUmodule *module, const void *image, unsigned int count, CUjit_option *options, \
     void **values)) \
  X(REQUIRED, cuModuleUnload, cuModuleUnload, 2000, (CUmodule module)) \
  X(REQUIRED, cuModuleGetFunction, cuModuleGetFunction, 2000, \
    (CUfunction *function, CUmodule module, const char *name)) \
  X(REQUIRED, cuLaunchKernel, cuLaunchKernel, 4000, \
    (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
     unsigned int block_x, unsigned int block_y, unsigned int block_z, \
     unsigned int shared_bytes, CUstream stream, void **params, void **extra)) \
  X(OPTIONAL, cuLaunchKernelEx, cuLaunchKernelEx, 11060, \
    (const CUlaunchConfig *config, CUfunction function, void **params, void **extra)) \
  /* Graphs. */ \
  X(REQUIRED, cuGraphCreate, cuGraphCreate, 10000, (CUgraph *graph, unsigned int flags)) \
  X(REQUIRED, cuGraphDestroy, cuGraphDestroy, 10000, (CUgraph graph)) \
  X(REQUIRED, cuGraphGetNodes, cuGraphGetNodes, 10000, \
    (CUgraph graph, CUgraphNode *nodes, size_t *count)) \
  X(REQUIRED, cuGraphNodeGetType, cuGraphNodeGetType, 10000, \
    (CUgraphNode node, CUgraphNodeType *type)) \
  X(REQUIRED, cuGraphAddEmptyNode, cuGraphAddEmptyNode, 10000, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count)) \
  X(REQUIRED, cuGraphAddMemcpyNode, cuGraphAddMemcpyNode, 10000, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     const CUDA_MEMCPY3D *params, CUcontext context)) \
  X(REQUIRED, cuGraphAddMemsetNode, cuGraphAddMemsetNode, 10000, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)) \
  X(REQUIRED, cuGraphAddKernelNode, cuGraphAddKernelNode, 10000, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     const CUDA_KERNEL_NODE_PARAMS_v1 *params)) \
  X(REQUIRED, cuGraphAddHostNode, cuGraphAddHostNode, 10000, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     const CUDA_HOST_NODE_PARAMS *params)) \
  X(REQUIRED, cuGraphAddEventRecordNode, cuGraphAddEventRecordNode, 11010, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     CUevent event)) \
  X(REQUIRED, cuGraphAddEventWaitNode, cuGraphAddEventWaitNode, 11010, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     CUevent event)) \
  X(OPTIONAL, cuGraphAddBatchMemOpNode, cuGraphAddBatchMemOpNode, 11070, \
    (CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t after_count, \
     const CUDA_BATCH_MEM_OP_NODE_PARAMS *params)) \
  X(REQUIRED, cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, 11040, \
    (CUgraphExec *exec, CUgraph graph, unsigned long long flags)) \
  X(REQUIRED, cuGraphExecDestroy, cuGraphExecDestroy, 10000, (CUgraphExec exec)) \
  X(REQUIRED, cuGraphLaunch, cuGraphLaunch, 10000, (CUgraphExec exec, CUstream stream)) \
  X(REQUIRED, cuGraphUpload, cuGraphUpload, 11010, (CUgraphExec exec, CUstream stream)) \
  X(REQUIRED, cuGraphExecUpdate, cuGraphExecUpdate, 10020, \
    (CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, \
     CUgraphExecUpdateResult *result)) \
  X(REQUIRED, cuGraphExecMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, 10020, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params, CUcontext context)) \
  X(REQUIRED, cuGraphExecMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, 10020, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *params, \
     CUcontext context)) \
  X(REQUIRED, cuGraphExecKernelNodeSetParams, cuGraphExecKernelNodeSetParams, 10010, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1 *params)) \
  X(REQUIRED, cuGraphExecEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, 11010, \
    (CUgraphExec exec, CUgraphNode node, CUevent event)) \
  X(REQUIRED, cuGraphExecEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, 11010, \
    (CUgraphExec exec, CUgraphNode node, CUevent event)) \
  X(OPTIONAL, cuGraphExecBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, 11070, \
    (CUgraphExec exec, CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS *params))
/* clang-format on */

#endif
