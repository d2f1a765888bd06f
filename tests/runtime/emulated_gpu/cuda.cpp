/* The part of CUDA's driver that native/stream.c calls. */
#include "groups.h"

extern "C" {

int cuLaunchKernel(Kernel function, unsigned groups, unsigned groups_y, unsigned groups_z,
                   unsigned items, unsigned items_y, unsigned items_z, unsigned, void*,
                   void** parameters, void**) {
  return run_grid(function, {groups, groups_y, groups_z}, {items, items_y, items_z}, parameters);
}

int cuGetErrorName(int status, const char** name) {
  *name = status == INVALID_VALUE   ? "CUDA_ERROR_INVALID_VALUE"
          : status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                    : "CUDA_ERROR_LAUNCH_FAILED";
  return SUCCESS;
}

int cuCtxSetCurrent(void*) { return SUCCESS; }

int cuMemcpyDtoDAsync_v2(void* to, void* from, size_t bytes, void*) {
  return copy(DEVICE, to, DEVICE, from, bytes);
}

int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void*) {
  return copy(DEVICE, to, HOST, from, bytes);
}

int cuMemcpyDtoHAsync_v2(void* to, void* from, size_t bytes, void*) {
  return copy(HOST, to, DEVICE, from, bytes);
}

int cuStreamSynchronize(void*) { return SUCCESS; }

int cuMemAlloc_v2(void** block, size_t bytes) { return allocate_apart(block, bytes); }

int cuMemFree_v2(void* block) { return free_apart(block); }
}
