/* Errors as objects with a function table, so that reading one never needs Python. */
#include "plugin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct Error {
  const PJRT_Error_FunctionTable* vtable; /* PJRT reads this */
  int32_t code;
  size_t length;
  char text[];
};

static void table_destroy(Error* error) { error_free(error); }

static void table_message(const Error* error, const char** text, size_t* length) {
  *text = error->text;
  *length = error->length;
}

static uint32_t table_code(const Error* error) { return (uint32_t)error->code; }

static void table_payloads(const Error* error, void* visitor, void* argument) {
  (void)error, (void)visitor, (void)argument; /* our errors carry none */
}

static const PJRT_Error_FunctionTable TABLE = {
    .struct_size = PJRT_Error_FunctionTable_SIZE,
    .instance_size = PJRT_Error_SIZE,
    .destroy = (void*)table_destroy,
    .message = (void*)table_message,
    .get_code = (void*)table_code,
    .for_each_payload = (void*)table_payloads,
};

static Error out_of_memory = {.vtable = &TABLE, .code = TINY_RESOURCE_EXHAUSTED};

static Error* with_text(int32_t code, const char* text, size_t length) {
  Error* error = malloc(sizeof *error + length + 1);
  if (!error) return &out_of_memory;
  error->vtable = &TABLE;
  error->code = code;
  error->length = length;
  memcpy(error->text, text, length);
  error->text[length] = 0;
  return error;
}

Error* error_new(int32_t code, const char* format, ...) {
  va_list values;
  va_start(values, format);
  char text[4096];
  int length = vsnprintf(text, sizeof text, format, values);
  va_end(values);
  if (length < 0) length = 0;
  size_t kept = (size_t)length;
  /* the text's last byte is 0: look for the beginning of the character that lies before */
  if (kept >= sizeof text) kept = error_whole_characters(text, sizeof text - 2);
  return with_text(code, text, kept);
}

Error* error_copy(const Error* error) {
  return error ? with_text(error->code, error->text, error->length) : NULL;
}

Error* error_from_thread(const char* what) {
  int32_t code = tiny_last_error_code();
  if (code == TINY_OK) return error_new(TINY_INTERNAL, "%s failed without saying why", what);
  const char* text = tiny_last_error();
  Error* error = with_text(code, text, strlen(text));
  tiny_clear_error();
  return error;
}

void error_free(Error* error) {
  if (error != &out_of_memory) free(error);
}

Error* PJRT_Error_Destroy(PJRT_Error_Destroy_Args* args) {
  error_free(args->error);
  return NULL;
}

GETTER(Error_Message,
       Error* error = args->error;
       SET(args, message, error->text);
       SET(args, message_size, error->length))

GETTER(Error_GetCode, SET(args, code, (uint32_t)((Error*)args->error)->code))
NOTHING_TO_DO(Error_ForEachPayload)
