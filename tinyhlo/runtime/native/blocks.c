/* Blocks of a device's memory, by where they start. */
#include "blocks.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_ROOM = 64 };

/* How many blocks start at or before a place. */
static int64_t up_to(const Blocks* blocks, const void* place) {
  int64_t low = 0, high = blocks->count;
  while (low < high) {
    int64_t middle = (low + high) / 2;
    if ((uintptr_t)blocks->list[middle].start <= (uintptr_t)place) low = middle + 1;
    else high = middle;
  }
  return low;
}

Block* block_of(const Blocks* blocks, const void* place) {
  int64_t count = up_to(blocks, place);
  if (!count) return NULL;
  Block* block = &blocks->list[count - 1];
  return (const char*)place - block->start <= block->bytes ? block : NULL;
}

bool block_add(Blocks* blocks, Block block) {
  if (blocks->count == blocks->room) {
    int64_t room = blocks->room ? 2 * blocks->room : FIRST_ROOM;
    Block* list = realloc(blocks->list, (size_t)room * sizeof *list);
    if (!list) return false;
    blocks->list = list;
    blocks->room = room;
  }
  int64_t place = up_to(blocks, block.start);
  Block* at = &blocks->list[place];
  memmove(at + 1, at, (size_t)(blocks->count - place) * sizeof *at);
  *at = block;
  blocks->count++;
  return true;
}

void block_remove(Blocks* blocks, Block* block) {
  Block* end = blocks->list + blocks->count--;
  memmove(block, block + 1, (size_t)(end - (block + 1)) * sizeof *block);
}
