/* The last error of each thread. */
#include "core.h"

#include <string.h>

enum { TEXT_BYTES = 16384 };

static _Thread_local int32_t last_code;
static _Thread_local char last_text[TEXT_BYTES];

size_t error_whole_characters(const char* text, size_t bytes) {
  while (bytes && (text[bytes] & 0xc0) == 0x80) bytes--;
  return bytes;
}

void tiny_set_error(int32_t code, const char* text) {
  last_code = code;
  if (!text) text = "";
  size_t length = strnlen(text, TEXT_BYTES);
  if (length == TEXT_BYTES) length = error_whole_characters(text, TEXT_BYTES - 1);
  memcpy(last_text, text, length);
  last_text[length] = 0;
}

const char* tiny_last_error(void) { return last_text; }

int32_t tiny_last_error_code(void) { return last_code; }

void tiny_clear_error(void) {
  last_code = TINY_OK;
  last_text[0] = 0;
}
