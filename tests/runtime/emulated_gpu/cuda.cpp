/* The part of CUDA's driver that native/stream.c calls. */
#include "groups.h"

#include <unistd.h>

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace {

enum { CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };
enum { THREAD_LOCAL = 1 };

/* Work that is kept for later. */
typedef std::vector<std::function<int()>> Graph;

/* What a stream records in place of running it; one thread's, or it is spoiled. */
struct Capture {
  Graph* graph;
  std::thread::id thread;
  bool spoiled;
};

std::mutex lock; /* of what follows */
std::map<void*, Capture> captures;
std::string failing; /* a function that fails, for tests */
bool failing_in_captures; /* that function, there alone */
long executables, launched; /* that there are; so far */

bool fails(const char* function, bool captured = true) {
  return failing == function && (captured || !failing_in_captures);
}

int queued(const char* function, void* stream, std::function<int()> work) {
  std::unique_lock<std::mutex> held(lock);
  auto found = captures.find(stream);
  if (fails(function, found != captures.end())) return LAUNCH_FAILED;
  if (found == captures.end()) {
    held.unlock();
    return work();
  }
  Capture& capture = found->second;
  capture.spoiled |= capture.thread != std::this_thread::get_id();
  capture.graph->push_back(work);
  int status = capture.spoiled ? CAPTURE_INVALIDATED : (int)SUCCESS;
  held.unlock();
  usleep(500); /* other threads come between */
  return status;
}

/* What may not be called while this thread records, or of a stream that does. */
bool is_unsafe(void* stream) {
  std::lock_guard<std::mutex> held(lock);
  for (auto& [recording, capture] : captures)
    if (stream ? recording == stream : capture.thread == std::this_thread::get_id())
      return capture.spoiled = true;
  return false;
}

}  // namespace

extern "C" {

int cuLaunchKernel(Kernel function, unsigned groups, unsigned groups_y, unsigned groups_z,
                   unsigned items, unsigned items_y, unsigned items_z, unsigned, void* stream,
                   void** parameters, void**) {
  std::vector<void*> values; /* as they are now; all are pointers */
  for (int k = 0; k < function(nullptr); k++) values.push_back(*(void**)parameters[k]);
  return queued("cuLaunchKernel", stream, [=]() mutable {
    std::vector<void*> where;
    for (void*& value : values) where.push_back(&value);
    return run_grid(function, {groups, groups_y, groups_z}, {items, items_y, items_z},
                    where.data());
  });
}

int cuGetErrorName(int status, const char** name) {
  *name = status == INVALID_VALUE         ? "CUDA_ERROR_INVALID_VALUE"
          : status == OUT_OF_MEMORY       ? "CUDA_ERROR_OUT_OF_MEMORY"
          : status == CAPTURE_UNSUPPORTED ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
          : status == CAPTURE_INVALIDATED ? "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
                                          : "CUDA_ERROR_LAUNCH_FAILED";
  return SUCCESS;
}

int cuCtxSetCurrent(void*) { return SUCCESS; }

int cuMemcpyDtoDAsync_v2(void* to, void* from, size_t bytes, void* stream) {
  return queued("cuMemcpyDtoDAsync_v2", stream, [=] { return copy(DEVICE, to, DEVICE, from, bytes); });
}

int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t bytes, void* stream) {
  if (is_unsafe(stream)) return CAPTURE_UNSUPPORTED;
  return copy(DEVICE, to, HOST, from, bytes);
}

int cuMemcpyDtoHAsync_v2(void* to, void* from, size_t bytes, void* stream) {
  if (is_unsafe(stream)) return CAPTURE_UNSUPPORTED;
  return copy(HOST, to, DEVICE, from, bytes);
}

int cuStreamSynchronize(void* stream) {
  return is_unsafe(stream) ? CAPTURE_UNSUPPORTED : (int)SUCCESS;
}

int cuMemAlloc_v2(void** block, size_t bytes) {
  return is_unsafe(nullptr) ? CAPTURE_UNSUPPORTED : allocate_apart(block, bytes);
}

int cuMemFree_v2(void* block) {
  return is_unsafe(nullptr) ? CAPTURE_UNSUPPORTED : free_apart(block);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

int cuStreamBeginCapture_v2(void* stream, int mode) {
  std::lock_guard<std::mutex> held(lock);
  if (fails("cuStreamBeginCapture_v2")) return LAUNCH_FAILED;
  if (captures.count(stream) || mode != THREAD_LOCAL) return INVALID_VALUE;
  captures[stream] = {new Graph, std::this_thread::get_id(), false};
  return SUCCESS;
}

int cuStreamEndCapture(void* stream, Graph** graph) {
  std::lock_guard<std::mutex> held(lock);
  auto found = captures.find(stream);
  *graph = nullptr;
  if (found == captures.end()) return INVALID_VALUE;
  Capture capture = found->second;
  if (capture.thread != std::this_thread::get_id()) return CAPTURE_UNSUPPORTED;
  captures.erase(found);
  if (!capture.spoiled && !fails("cuStreamEndCapture")) {
    *graph = capture.graph;
    return SUCCESS;
  }
  delete capture.graph;
  return CAPTURE_INVALIDATED;
}

int cuGraphInstantiateWithFlags(Graph** executable, Graph* graph, unsigned long long flags) {
  std::lock_guard<std::mutex> held(lock);
  if (flags || fails("cuGraphInstantiateWithFlags")) return INVALID_VALUE;
  *executable = new Graph(*graph);
  executables++;
  return SUCCESS;
}

int cuGraphLaunch(Graph* executable, void* stream) {
  if (is_unsafe(stream)) return CAPTURE_UNSUPPORTED;
  {
    std::lock_guard<std::mutex> held(lock);
    if (fails("cuGraphLaunch")) return LAUNCH_FAILED;
    launched++;
  }
  for (auto& node : *executable)
    if (int status = node()) return status;
  return SUCCESS;
}

int cuGraphExecDestroy(Graph* executable) {
  std::lock_guard<std::mutex> held(lock);
  executables--;
  delete executable;
  return SUCCESS;
}

int cuGraphDestroy(Graph* graph) {
  delete graph;
  return SUCCESS;
}

/* ---- for tests ------------------------------------------------------------------------------- */

/* From now on, this function fails, in captures alone or everywhere. */
void emulated_fail(const char* function, bool in_captures) {
  std::lock_guard<std::mutex> held(lock);
  failing = function;
  failing_in_captures = in_captures;
}

long emulated_executables() { return executables; }

long emulated_graph_launches() { return launched; }
}
