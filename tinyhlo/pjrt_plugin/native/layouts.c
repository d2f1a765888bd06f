/* Layouts: every array is dense and row-major, so there is one layout per rank. */
#include "plugin.h"

#include <stdio.h>

typedef struct {
  size_t length;
  char text[4 * MOST_AXES];
} Layout;

static Layout layouts[MOST_AXES + 1];
static pthread_once_t made = PTHREAD_ONCE_INIT;

/* Minor to major, as XLA writes it: rank 3 is "{2,1,0}". */
static void make_layouts(void) {
  for (int rank = 0; rank <= MOST_AXES; rank++) {
    Layout* layout = &layouts[rank];
    char* end = layout->text;
    *end++ = '{';
    for (int axis = rank - 1; axis >= 0; axis--)
      end += sprintf(end, axis ? "%d," : "%d", axis);
    *end++ = '}';
    layout->length = (size_t)(end - layout->text);
  }
}

void* row_major_layout(int64_t rank) {
  pthread_once(&made, make_layouts);
  return &layouts[rank];
}

bool is_row_major(const PJRT_Buffer_MemoryLayout* layout, int64_t rank) {
  if (!layout) return true;
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout->tiled.num_tiles) return false;
  const int64_t* minor_to_major = layout->tiled.minor_to_major;
  if ((int64_t)layout->tiled.minor_to_major_size != rank) return false;
  for (int64_t axis = 0; axis < rank; axis++)
    if (minor_to_major[axis] != rank - 1 - axis) return false;
  return true;
}

static void keep(void* unused) { (void)unused; }

/* Layouts are static. */
NOTHING_TO_DO(Layouts_MemoryLayout_Destroy)

GETTER(Layouts_MemoryLayout_Serialize,
       Layout* layout = args->layout;
       SET(args, serialized_bytes, layout->text);
       SET(args, serialized_bytes_size, layout->length);
       SET(args, serialized_layout, layout);
       SET(args, serialized_layout_deleter, (void*)keep))

static Error* default_layout(size_t rank, void** layout) {
  if (rank > MOST_AXES) return error_new(TINY_INVALID_ARGUMENT, "more than %d axes", MOST_AXES);
  *layout = row_major_layout((int64_t)rank);
  return NULL;
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
       SET(args, layout, row_major_layout(((Buffer*)args->buffer)->rank)))

GETTER(Layouts_PJRT_Executable_GetOutputLayouts,
       Executable* executable = args->executable;
       SET(args, num_outputs, (size_t)executable->output_count);
       SET(args, layouts, executable->layouts + executable->input_count))

GETTER(Layouts_PJRT_Executable_GetParameterLayouts,
       Executable* executable = args->executable;
       SET(args, num_parameters, (size_t)executable->input_count);
       SET(args, layouts, executable->layouts))
