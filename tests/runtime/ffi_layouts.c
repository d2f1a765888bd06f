/* Compiles only when our table of the XLA FFI has the layouts of jaxlib's header. */
#include "xla/ffi/api/c_api.h"

#include "ffi_abi.h"

#define SAME(ours, field, theirs, their_field)                                          \
  _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field)
#define SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)

SIZE(FfiSpan, XLA_FFI_ByteSpan);
SIZE(FfiBuffer, XLA_FFI_Buffer);
SAME(FfiBuffer, dtype, XLA_FFI_Buffer, dtype);
SAME(FfiBuffer, data, XLA_FFI_Buffer, data);
SAME(FfiBuffer, rank, XLA_FFI_Buffer, rank);
SAME(FfiBuffer, dims, XLA_FFI_Buffer, dims);
SIZE(FfiValues, XLA_FFI_Args);
SAME(FfiValues, types, XLA_FFI_Args, types);
SAME(FfiValues, values, XLA_FFI_Args, args);
SIZE(FfiValues, XLA_FFI_Rets);
SAME(FfiValues, values, XLA_FFI_Rets, rets);
SIZE(FfiAttributes, XLA_FFI_Attrs);
SAME(FfiAttributes, types, XLA_FFI_Attrs, types);
SAME(FfiAttributes, names, XLA_FFI_Attrs, names);
SAME(FfiAttributes, values, XLA_FFI_Attrs, attrs);
SIZE(FfiFrame, XLA_FFI_CallFrame);
SIZE(FfiTypeId, XLA_FFI_TypeId);
SIZE(FfiTypeInfo, XLA_FFI_TypeInfo);
SAME(FfiTypeInfo, deleter, XLA_FFI_TypeInfo, deleter);
SAME(FfiFrame, api, XLA_FFI_CallFrame, api);
SAME(FfiFrame, context, XLA_FFI_CallFrame, ctx);
SAME(FfiFrame, stage, XLA_FFI_CallFrame, stage);
SAME(FfiFrame, arguments, XLA_FFI_CallFrame, args);
SAME(FfiFrame, results, XLA_FFI_CallFrame, rets);
SAME(FfiFrame, attributes, XLA_FFI_CallFrame, attrs);
SAME(FfiFrame, future, XLA_FFI_CallFrame, future);
_Static_assert(FFI_FRAME_SIZE == XLA_FFI_CallFrame_STRUCT_SIZE, "size of a frame");
_Static_assert(FFI_EXECUTE == XLA_FFI_ExecutionStage_EXECUTE, "stages");
SAME(FfiErrorCreate, message, XLA_FFI_Error_Create_Args, message);
SAME(FfiErrorCreate, code, XLA_FFI_Error_Create_Args, errc);
SAME(FfiErrorDestroy, error, XLA_FFI_Error_Destroy_Args, error);
SAME(FfiFutureArgs, future, XLA_FFI_Future_SetError_Args, future);
SAME(FfiFutureArgs, error, XLA_FFI_Future_SetError_Args, error);
SAME(FfiState, stage, XLA_FFI_State_Set_Args, stage);
SAME(FfiState, type, XLA_FFI_State_Set_Args, type_id);
SAME(FfiState, state, XLA_FFI_State_Get_Args, state);
SAME(FfiAllocate, alignment, XLA_FFI_DeviceMemory_Allocate_Args, alignment);
SAME(FfiAllocate, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SAME(FfiFree, data, XLA_FFI_DeviceMemory_Free_Args, data);
SAME(FfiSchedule, task, XLA_FFI_ThreadPool_Schedule_Args, task);
SAME(FfiSchedule, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SAME(FfiThreads, count, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SAME(FfiRunId, id, XLA_FFI_RunId_Get_Args, run_id);
SAME(FfiOrdinal, ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(FfiApi, version, XLA_FFI_Api, api_version);
SAME(FfiApi, internal, XLA_FFI_Api, internal_api);
SAME(FfiApi, error_create, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(FfiApi, error_destroy, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME(FfiApi, handler_register, XLA_FFI_Api, XLA_FFI_Handler_Register);
SAME(FfiApi, stream_get, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(FfiApi, type_register, XLA_FFI_Api, XLA_FFI_Type_Register);
SAME(FfiApi, state_set, XLA_FFI_Api, XLA_FFI_State_Set);
SAME(FfiApi, state_get, XLA_FFI_Api, XLA_FFI_State_Get);
SAME(FfiApi, memory_allocate, XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate);
SAME(FfiApi, memory_free, XLA_FFI_Api, XLA_FFI_DeviceMemory_Free);
SAME(FfiApi, schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
SAME(FfiApi, thread_count, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
SAME(FfiApi, future_create, XLA_FFI_Api, XLA_FFI_Future_Create);
SAME(FfiApi, future_set_available, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
SAME(FfiApi, future_set_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
SAME(FfiApi, run_id, XLA_FFI_Api, XLA_FFI_RunId_Get);
SAME(FfiApi, device_ordinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
_Static_assert(sizeof(FfiApi) >= sizeof(XLA_FFI_Api), "an older header has fewer slots");
