/* The last error of each thread. */
#include "core.h"

#include <stdio.h>

enum { TEXT_BYTES = 16384 };

static _Thread_local int32_t last_code;
static _Thread_local char last_text[TEXT_BYTES];

void tiny_set_error(int32_t code, const char* text) {
  last_code = code;
  snprintf(last_text, sizeof last_text, "%s", text ? text : "");
}

const char* tiny_last_error(void) { return last_text; }

int32_t tiny_last_error_code(void) { return last_code; }

void tiny_clear_error(void) {
  last_code = TINY_OK;
  last_text[0] = 0;
}
