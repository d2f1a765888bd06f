/* Runs one compiled program: reads its arguments from standard input, writes its results to
   standard output. All numbers are int64: how many inputs, outputs, constants, aliases and bytes of
   arena; the bytes of each output; (output, input) of each alias; then size and data of each input
   and constant. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int32_t entry(void** inputs, void** outputs, void* arena, void** constants);

static void take(void* into, size_t bytes) {
  if (bytes && fread(into, 1, bytes, stdin) != bytes) exit(3);
}

static int64_t number(void) {
  int64_t value;
  take(&value, sizeof value);
  return value;
}

static void* memory(int64_t bytes) {
  void* block = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
  if (!block) exit(4);
  return block;
}

static void arrays(void** into, int64_t count) {
  for (int64_t k = 0; k < count; k++) {
    int64_t bytes = number();
    into[k] = memory(bytes);
    take(into[k], (size_t)bytes);
  }
}

int main(void) {
  int64_t inputs = number(), outputs = number(), constants = number(), aliases = number();
  void* arena = memory(number());
  void** given = memory(inputs * 8);
  void** results = memory(outputs * 8);
  void** values = memory(constants * 8);
  int64_t* sizes = memory(outputs * 8);
  int64_t* pairs = memory(aliases * 16);
  take(sizes, (size_t)outputs * 8);
  take(pairs, (size_t)aliases * 16);
  for (int64_t k = 0; k < outputs; k++) results[k] = memory(sizes[k]);
  arrays(given, inputs);
  arrays(values, constants);
  for (int64_t k = 0; k < aliases; k++) results[pairs[2 * k]] = given[pairs[2 * k + 1]];
  int32_t status = entry(given, results, arena, values);
  for (int64_t k = 0; k < outputs; k++) fwrite(results[k], 1, (size_t)sizes[k], stdout);
  return status;
}
