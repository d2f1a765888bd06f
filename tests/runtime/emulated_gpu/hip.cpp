/* HIP's runtime, as far as native/stream.c and devices/hip.py call it, of one pretended MI300X. A
   code object is a shared library of the host. */
#include "groups.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <unistd.h>

#include <string>

const int NO_DEVICE = 100, INVALID_IMAGE = 200, NOT_FOUND = 500;
enum { PROPERTIES_BYTES = 1472, ARCHITECTURE_AT = 1160 };

extern "C" {

int hipInit(unsigned) { return SUCCESS; }

int hipGetDeviceCount(int* count) {
  *count = 1;
  return SUCCESS;
}

int hipSetDevice(int number) { return number ? NO_DEVICE : (int)SUCCESS; }

int hipDeviceGetName(char* name, int length, int) {
  snprintf(name, length, "emulated MI300X");
  return SUCCESS;
}

int hipDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 19: *value = 4 << 20; return SUCCESS;    /* L2CacheSize */
    case 56: *value = 1024; return SUCCESS;       /* MaxThreadsPerBlock */
    case 63: *value = 304; return SUCCESS;        /* MultiprocessorCount */
    case 74: *value = 64 << 10; return SUCCESS;   /* MaxSharedMemoryPerBlock */
    case 10002: *value = 64 << 10; return SUCCESS; /* MaxSharedMemoryPerMultiprocessor */
    default: return INVALID_VALUE;
  }
}

int hipDeviceTotalMem(size_t* bytes, int) {
  *bytes = (size_t)4 << 30;
  return SUCCESS;
}

int hipGetDevicePropertiesR0600(char* properties, int) {
  memset(properties, 0, PROPERTIES_BYTES);
  strcpy(properties + ARCHITECTURE_AT, "gfx942:sramecc+:xnack-");
  return SUCCESS;
}

int hipStreamCreateWithFlags(void** stream, unsigned) {
  *stream = (void*)1;
  return SUCCESS;
}

int hipModuleLoadData(void** module, const char* image) {
  const Elf64_Ehdr* head = (const Elf64_Ehdr*)image;
  if (memcmp(image, ELFMAG, SELFMAG)) return INVALID_IMAGE;
  char path[] = "/tmp/emulated_hip_XXXXXX";
  int file = mkstemp(path);
  size_t bytes = head->e_shoff + (size_t)head->e_shnum * head->e_shentsize; /* what comes last */
  bool written = write(file, image, bytes) == (ssize_t)bytes;
  close(file);
  *module = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
  unlink(path);
  return *module ? (int)SUCCESS : INVALID_IMAGE;
}

int hipModuleUnload(void* module) { return dlclose(module) ? INVALID_VALUE : SUCCESS; }

int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string(name) + "_entry").c_str());
  return *function ? (int)SUCCESS : NOT_FOUND;
}

int hipModuleLaunchKernel(Kernel function, unsigned groups, unsigned groups_y, unsigned groups_z,
                          unsigned items, unsigned items_y, unsigned items_z, unsigned, void*,
                          void** parameters, void**) {
  return run_grid(function, {groups, groups_y, groups_z}, {items, items_y, items_z}, parameters);
}

int hipDrvGetErrorName(int status, const char** name) {
  *name = status == INVALID_VALUE   ? "hipErrorInvalidValue"
          : status == NO_DEVICE     ? "hipErrorNoDevice"
          : status == OUT_OF_MEMORY ? "hipErrorOutOfMemory"
                                    : "hipErrorLaunchFailure";
  return SUCCESS;
}

int hipMemcpyDtoDAsync(void* to, void* from, size_t bytes, void*) {
  return copy(DEVICE, to, DEVICE, from, bytes);
}

int hipMemcpyHtoDAsync(void* to, const void* from, size_t bytes, void*) {
  return copy(DEVICE, to, HOST, from, bytes);
}

int hipMemcpyDtoHAsync(void* to, void* from, size_t bytes, void*) {
  return copy(HOST, to, DEVICE, from, bytes);
}

int hipStreamSynchronize(void*) { return SUCCESS; }

int hipMalloc(void** block, size_t bytes) { return allocate_apart(block, bytes); }

int hipFree(void* block) { return free_apart(block); }
}
