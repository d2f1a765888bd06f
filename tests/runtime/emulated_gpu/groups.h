/* A GPU on a processor: a launch runs its groups one after another, in each a fiber an item, which a
   barrier leaves.

   Every second turn, the items run in falling order: what a missing barrier breaks, one of both
   orders shows. */
#pragma once
#include <mutex>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct Place { unsigned x, y, z; };
extern "C" Place threadIdx, blockIdx, blockDim, gridDim;
Place threadIdx, blockIdx, blockDim, gridDim;

/* CUDA and HIP have the same numbers for them. */
enum Status { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, LAUNCH_FAILED = 719 };

namespace {

enum { MOST_ITEMS = 1024, STACK_BYTES = 1 << 16 };
enum { WARP = 32 };
enum State { READY, WAITS, WAITS_FOR_WARP, DONE };
typedef int (*Kernel)(void** where); /* of no arguments: how many it takes */

struct Fiber {
  void** stack;
  State state;
  int line; /* of the barrier where it waits */
};

Fiber fibers[MOST_ITEMS];
Fiber* current;
void** scheduler; /* its stack while a fiber runs */
Kernel kernel;
void** arguments;
std::mutex queue;

extern "C" void emulated_switch(void*** save, void** to);
/* Keeps what the System V ABI says a function must keep. */
asm(R"(
emulated_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
)");

void leave(State state) {
  current->state = state;
  emulated_switch(&current->stack, scheduler);
}

void item() {
  kernel(arguments);
  current->line = 0; /* wherever its warp has waited */
  leave(DONE);
}

void start(Fiber& fiber, char* stack) {
  void** top = (void**)(stack + STACK_BYTES) - 2; /* as behind a call: 8 bytes off a multiple of 16 */
  *top = (void*)item;
  fiber = {top - 6, READY, 0};
}

/* Whether some items are at the same place. */
bool are_together(unsigned first, unsigned end) {
  const Fiber& one = fibers[first];
  for (unsigned k = first; k < end; k++)
    if (fibers[k].state != one.state || fibers[k].line != one.line) return false;
  return true;
}

/* Up to where a warp waits for the others of its group; whether its items came to the same places. */
bool run_warp(unsigned first, unsigned end, bool falling) {
  do {
    for (unsigned k = first; k < end; k++) {
      threadIdx = {falling ? first + end - 1 - k : k, 0, 0};
      current = &fibers[threadIdx.x];
      emulated_switch(&scheduler, current->stack);
    }
    if (!are_together(first, end)) return false;
    falling = !falling;
  } while (fibers[first].state == WAITS_FOR_WARP);
  return true;
}

/* Whether all items of a group ended, and waited at the same barriers. */
bool run_group(char* stacks, unsigned items) {
  for (unsigned k = 0; k < items; k++) start(fibers[k], stacks + k * STACK_BYTES);
  unsigned warps = (items + WARP - 1) / WARP;
  for (bool falling = blockIdx.x % 2;; falling = !falling) {
    for (unsigned k = 0; k < warps; k++) {
      unsigned first = (falling ? warps - 1 - k : k) * WARP;
      unsigned end = first + WARP < items ? first + WARP : items;
      if (!run_warp(first, end, falling)) return false;
    }
    if (!are_together(0, items)) return false;
    if (fibers[0].state == DONE) return true;
  }
}

int run_grid(Kernel function, const unsigned (&groups)[3], const unsigned (&items)[3],
             void** parameters) {
  if (!groups[0] || groups[1] != 1 || groups[2] != 1) return INVALID_VALUE;
  if (!items[0] || items[0] > MOST_ITEMS || items[1] != 1 || items[2] != 1) return INVALID_VALUE;
  std::lock_guard<std::mutex> lock(queue);
  static char* stacks = (char*)mmap(NULL, (size_t)STACK_BYTES * MOST_ITEMS, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  kernel = function;
  arguments = parameters;
  blockDim = {items[0], 1, 1};
  gridDim = {groups[0], 1, 1};
  for (unsigned group = 0; group < groups[0]; group++) {
    blockIdx = {group, 0, 0};
    if (!run_group(stacks, items[0])) return LAUNCH_FAILED;
  }
  return SUCCESS;
}

int allocate(void** block, size_t bytes) {
  *block = aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *block ? SUCCESS : OUT_OF_MEMORY;
}

/* Memory of the device's own: the processor refuses to follow such an address. words.h takes the
   mark off what kernels are given. */
const uintptr_t APART = (uintptr_t)1 << 62;

int allocate_apart(void** block, size_t bytes) {
  int status = allocate(block, bytes);
  if (!status) *block = (void*)((uintptr_t)*block | APART);
  return status;
}

/* Both sides where a copy says they are. */
enum Side { HOST = 0, DEVICE = 1 };

int copy(Side to_side, void* to, Side from_side, const void* from, size_t bytes) {
  uintptr_t target = (uintptr_t)to, source = (uintptr_t)from;
  if (!(target & APART) == to_side || !(source & APART) == from_side) return INVALID_VALUE;
  memcpy((void*)(target & ~APART), (const void*)(source & ~APART), bytes);
  return SUCCESS;
}

int free_apart(void* block) {
  free((void*)((uintptr_t)block & ~APART));
  return SUCCESS;
}

}  // namespace

extern "C" void emulated_wait(int line) {
  current->line = line;
  leave(WAITS);
}

extern "C" void emulated_wait_for_warp(int line) {
  current->line = line;
  leave(WAITS_FOR_WARP);
}
