/* Which block of a device's memory a pointer is in, for devices that must be told. */
#ifndef TINYHLO_BLOCKS_H
#define TINYHLO_BLOCKS_H

#include "core.h"

typedef struct {
  char* start; /* for the host */
  int64_t bytes;
  uint64_t address; /* for a device with pointers of its own */
  void* buffer;     /* the driver's name for it */
  int64_t mark;     /* what the device notes */
} Block;

/* By where they start; whoever reads or writes them sees to it that nobody else does. */
typedef struct {
  Block* list;
  int64_t count, room;
} Blocks;

/* The block of a place, its end included: an empty array may begin there. NULL: in none. */
Block* block_of(const Blocks* blocks, const void* place);
/* false: there is no room. */
bool block_add(Blocks* blocks, Block block);
void block_remove(Blocks* blocks, Block* block);

#endif
