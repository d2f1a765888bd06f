/* How a task's iterations are cut: into rounds of as many equal parts as it has threads, each round
   half of what is left. */
#ifndef TINYHLO_PARTS_H
#define TINYHLO_PARTS_H

#include <stdint.h>

enum { MOST_ROUNDS = 5 };

/* So many that the last one has an iteration for each thread, if there may be as many. */
static inline int32_t rounds_for(int64_t count, int32_t threads) {
  int32_t rounds = 1;
  while (rounds < MOST_ROUNDS && count >> (rounds - 1) > threads) rounds++;
  return rounds;
}

/* Where a thread's part of a round begins. */
static inline int64_t part_begin(int64_t count, int32_t threads, int32_t rounds, int32_t thread,
                                 int32_t round) {
  int64_t left = count >> round;
  int64_t share = round == rounds - 1 ? left : left - (left >> 1);
  return count - left + share * thread / threads;
}

#endif
