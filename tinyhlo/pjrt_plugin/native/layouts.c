/* Layouts: every array is dense; its axes lie in memory in any order, row-major unless said. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic(Layout*) known; /* a list that only grows, at its head */

static bool is_permutation(const int64_t* axes, int64_t rank) {
  bool seen[MOST_AXES] = {false};
  if (rank > MOST_AXES) return false;
  for (int64_t k = 0; k < rank; k++) {
    if (axes[k] < 0 || axes[k] >= rank || seen[axes[k]]) return false;
    seen[axes[k]] = true;
  }
  return true;
}

static Layout* layout_new(const int64_t* axes, int64_t rank) {
  Layout* layout = calloc(1, sizeof *layout);
  if (!layout) return NULL;
  layout->rank = rank;
  char* end = layout->text;
  *end++ = '{';
  for (int64_t k = 0; k < rank; k++) {
    layout->minor_to_major[k] = axes[k];
    end += sprintf(end, k + 1 < rank ? "%d," : "%d", (int)axes[k]);
  }
  *end++ = '}';
  layout->length = (size_t)(end - layout->text);
  return layout;
}

const Layout* layout_in_order(const int64_t* axes, int64_t rank) {
  if (!is_permutation(axes, rank)) return NULL;
  for (Layout* made = NULL;;) {
    Layout* head = atomic_load(&known);
    for (Layout* layout = head; layout; layout = layout->next)
      if (layout->rank == rank &&
          !memcmp(layout->minor_to_major, axes, (size_t)rank * sizeof *axes)) {
        free(made);
        return layout;
      }
    if (!made && !(made = layout_new(axes, rank))) return NULL;
    made->next = head;
    if (atomic_compare_exchange_strong(&known, &head, made)) return made;
  }
}

const Layout* layout_row_major(int64_t rank) {
  int64_t axes[MOST_AXES];
  for (int64_t k = 0; k < rank; k++) axes[k] = rank - 1 - k;
  return layout_in_order(axes, rank);
}

const Layout* layout_of(const PJRT_Buffer_MemoryLayout* layout, int64_t rank) {
  if (!layout) return layout_row_major(rank);
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout->tiled.num_tiles) return NULL;
  if ((int64_t)layout->tiled.minor_to_major_size != rank) return NULL;
  return layout_in_order(layout->tiled.minor_to_major, rank);
}

void layout_strides(const Layout* layout, const int64_t* dims, int64_t item, int64_t* strides) {
  for (int64_t k = 0; k < layout->rank; k++) {
    int64_t axis = layout->minor_to_major[k];
    strides[axis] = item;
    item *= dims[axis];
  }
}

void layout_sort(const Layout* layout, const int64_t* values, int64_t* sorted) {
  for (int64_t k = 0; k < layout->rank; k++)
    sorted[k] = values[layout->minor_to_major[layout->rank - 1 - k]];
}

/* Layouts are static. */
NOTHING_TO_DO(Layouts_MemoryLayout_Destroy)

GETTER(Layouts_MemoryLayout_Serialize,
       const Layout* layout = args->layout;
       SET(args, serialized_bytes, (void*)layout->text);
       SET(args, serialized_bytes_size, layout->length);
       SET(args, serialized_layout, (void*)layout);
       SET(args, serialized_layout_deleter, (void*)keep))

static Error* default_layout(size_t rank, void** layout) {
  if (rank > MOST_AXES) return error_new(TINY_INVALID_ARGUMENT, "more than %d axes", MOST_AXES);
  *layout = (void*)layout_row_major((int64_t)rank);
  return *layout ? NULL : error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
}

Error* PJRT_Layouts_PJRT_Client_GetDefaultLayout(
    PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args* args) {
  return default_layout(args->num_dims, &args->layout);
}

Error* PJRT_Layouts_PJRT_Topology_GetDefaultLayout(
    PJRT_Layouts_PJRT_Topology_GetDefaultLayout_Args* args) {
  return default_layout(args->num_dims, &args->layout);
}

GETTER(Layouts_PJRT_Buffer_MemoryLayout,
       SET(args, layout, (void*)((Buffer*)args->buffer)->layout))

GETTER(Layouts_PJRT_Executable_GetOutputLayouts,
       Executable* executable = args->executable;
       SET(args, num_outputs, outputs_of(executable));
       SET(args, layouts, executable->layouts + executable->input_count))

GETTER(Layouts_PJRT_Executable_GetParameterLayouts,
       Executable* executable = args->executable;
       SET(args, num_parameters, inputs_of(executable));
       SET(args, layouts, executable->layouts))
