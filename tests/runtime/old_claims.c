/* A part that nobody has claimed for 2^31 tasks is claimed as any other. */
#include "threads.c"

#include <unistd.h>

void tiny_allocator_before_fork(void) {}
void tiny_allocator_after_fork(bool is_child) { (void)is_child; }
int32_t tiny_core_count(void) { return 2; }
uint32_t tiny_flush_denormals(uint32_t how) { return how; }
void denormals_after_work(void) {}
TinyScratch scratch_of_caller(void) { return (TinyScratch){0}; }
void scratch_of_worker(const TinyScratch* callers, int32_t thread) { (void)callers, (void)thread; }

static void body(void* total, int64_t begin, int64_t end) {
  atomic_fetch_add((_Atomic int64_t*)total, end - begin);
}

int main(void) {
  _Atomic int64_t total = 0;
  alarm(20);
  tiny_parallel(body, (void*)&total, 1000, 2); /* claims parts of all rounds */
  int unit = 0; /* where the number lies in what is announced */
  while (number_of(UINT64_C(1) << unit) != 1) unit++;
  atomic_store(&announced, UINT64_C(0x80000002) << unit); /* as after 2^31 tasks of one round */
  tiny_parallel(body, (void*)&total, 1000, 2);
  return total == 2000 ? 0 : 1;
}
