/* A PJRT client without Python: adds 1 to four floats through libtinyhlo. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_abi.h"

static const char PROGRAM[] =
    "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
    "  %one = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
    "  %y = stablehlo.add %x, %one : tensor<4xf32>\n"
    "  return %y : tensor<4xf32>\n"
    "}\n";

static const PJRT_Api* api;

static void check(void* error) {
  if (!error) return;
  PJRT_Error_Message_Args message = {.struct_size = sizeof message, .error = error};
  ((void (*)(void*))api->PJRT_Error_Message)(&message);
  fprintf(stderr, "%.*s\n", (int)message.message_size, (const char*)message.message);
  exit(1);
}

#define CALL(slot, args) check(((void* (*)(void*))api->PJRT_##slot)(args))
#define ARGS(slot) PJRT_##slot##_Args slot = {.struct_size = sizeof slot}

int main(int count, char** arguments) {
  if (count != 2) return 2;
  void* library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  api = ((const PJRT_Api* (*)(void))dlsym(library, "GetPjrtApi"))();

  ARGS(Client_Create);
  CALL(Client_Create, &Client_Create);
  PJRT_Program program = {.struct_size = sizeof program, .code = (void*)PROGRAM,
                          .code_size = strlen(PROGRAM), .format = "mlir", .format_size = 4};
  ARGS(Client_Compile);
  Client_Compile.client = Client_Create.client;
  Client_Compile.program = &program;
  CALL(Client_Compile, &Client_Compile);

  float input[4] = {1, 2, 3, 4}, output[4];
  int64_t dims[1] = {4};
  ARGS(Client_AddressableDevices);
  Client_AddressableDevices.client = Client_Create.client;
  CALL(Client_AddressableDevices, &Client_AddressableDevices);
  ARGS(Client_BufferFromHostBuffer);
  Client_BufferFromHostBuffer.client = Client_Create.client;
  Client_BufferFromHostBuffer.data = input;
  Client_BufferFromHostBuffer.type = 11;
  Client_BufferFromHostBuffer.dims = dims;
  Client_BufferFromHostBuffer.num_dims = 1;
  Client_BufferFromHostBuffer.device = *(void**)Client_AddressableDevices.addressable_devices;
  CALL(Client_BufferFromHostBuffer, &Client_BufferFromHostBuffer);

  void *inputs[1] = {Client_BufferFromHostBuffer.buffer}, *outputs[1];
  void *input_lists[1] = {inputs}, *output_lists[1] = {outputs};
  ARGS(LoadedExecutable_Execute);
  LoadedExecutable_Execute.executable = Client_Compile.executable;
  LoadedExecutable_Execute.argument_lists = input_lists;
  LoadedExecutable_Execute.num_devices = 1;
  LoadedExecutable_Execute.num_args = 1;
  LoadedExecutable_Execute.output_lists = output_lists;
  CALL(LoadedExecutable_Execute, &LoadedExecutable_Execute);

  ARGS(Buffer_ToHostBuffer);
  Buffer_ToHostBuffer.src = outputs[0];
  Buffer_ToHostBuffer.dst = output;
  Buffer_ToHostBuffer.dst_size = sizeof output;
  CALL(Buffer_ToHostBuffer, &Buffer_ToHostBuffer);
  ARGS(Event_Await);
  Event_Await.event = Buffer_ToHostBuffer.event;
  CALL(Event_Await, &Event_Await);
  for (int k = 0; k < 4; k++) printf("%g ", output[k]);
  return 0;
}
