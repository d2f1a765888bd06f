"""The PJRT C API as a table: which functions, in which order, with which argument structs.

In: the text below; names and layouts are facts of PJRT 0.114. Out: `STRUCTS` and `FUNCTIONS`, from
which packaging/pjrt_header.py makes the C header, and tests a mirror to compare with pypjrt's.

    >>> [field.name for field in STRUCTS["Event_IsReady_Args"].fields]
    ['struct_size', 'extension_start', 'event', 'is_ready']

Reading a row: `Event_IsReady p:event b:is_ready` is the slot PJRT_Event_IsReady, whose argument
struct PJRT_Event_IsReady_Args has, after `struct_size` and `extension_start`, a pointer and a bool.
A row with a name only is a slot that tinyhlo answers with UNIMPLEMENTED; an indented line goes on
with the row above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAJOR, MINOR = 0, 114

# letter -> C type
TYPES = {"p": "void*", "z": "size_t", "l": "int64_t", "i": "int32_t", "u": "uint32_t", "b": "bool"}

# Slots of PJRT_Api in order.
SLOTS = """
Error_Destroy p:error
Error_Message p:error p:message z:message_size
Error_GetCode p:error u:code
Plugin_Initialize
Plugin_Attributes p:attributes z:num_attributes
Event_Destroy p:event
Event_IsReady p:event b:is_ready
Event_Error p:event
Event_Await p:event
Event_OnReady p:event p:callback p:user_arg
Client_Create p:create_options z:num_options p:kv_get_callback p:kv_get_user_arg p:kv_put_callback
    p:kv_put_user_arg p:client p:kv_try_get_callback p:kv_try_get_user_arg
Client_Destroy p:client
Client_PlatformName p:client p:platform_name z:platform_name_size
Client_ProcessIndex p:client i:process_index
Client_PlatformVersion p:client p:platform_version z:platform_version_size
Client_Devices p:client p:devices z:num_devices
Client_AddressableDevices p:client p:addressable_devices z:num_addressable_devices
Client_LookupDevice p:client i:id p:device
Client_LookupAddressableDevice p:client i:local_hardware_id p:addressable_device
Client_AddressableMemories p:client p:addressable_memories z:num_addressable_memories
Client_Compile p:client p:program p:compile_options z:compile_options_size p:executable
Client_DefaultDeviceAssignment p:client i:num_replicas i:num_partitions z:default_assignment_size
    p:default_assignment
Client_BufferFromHostBuffer p:client p:data u:type p:dims z:num_dims p:byte_strides
    z:num_byte_strides u:host_buffer_semantics p:device p:memory p:device_layout
    p:done_with_host_buffer p:buffer
DeviceDescription_Id p:device_description i:id
DeviceDescription_ProcessIndex p:device_description i:process_index
DeviceDescription_Attributes p:device_description z:num_attributes p:attributes
DeviceDescription_Kind p:device_description p:device_kind z:device_kind_size
DeviceDescription_DebugString p:device_description p:debug_string z:debug_string_size
DeviceDescription_ToString p:device_description p:to_string z:to_string_size
Device_GetDescription p:device p:device_description
Device_IsAddressable p:device b:is_addressable
Device_LocalHardwareId p:device i:local_hardware_id
Device_AddressableMemories p:device p:memories z:num_memories
Device_DefaultMemory p:device p:memory
Device_MemoryStats p:device l:bytes_in_use l:peak_bytes_in_use b:peak_bytes_in_use_is_set
    l:num_allocs b:num_allocs_is_set l:largest_alloc_size b:largest_alloc_size_is_set l:bytes_limit
    b:bytes_limit_is_set l:bytes_reserved b:bytes_reserved_is_set l:peak_bytes_reserved
    b:peak_bytes_reserved_is_set l:bytes_reservable_limit b:bytes_reservable_limit_is_set
    l:largest_free_block_bytes b:largest_free_block_bytes_is_set l:pool_bytes b:pool_bytes_is_set
    l:peak_pool_bytes b:peak_pool_bytes_is_set l:peak_allocated_bytes b:peak_allocated_bytes_is_set
Memory_Id p:memory i:id
Memory_Kind p:memory p:kind z:kind_size
Memory_DebugString p:memory p:debug_string z:debug_string_size
Memory_ToString p:memory p:to_string z:to_string_size
Memory_AddressableByDevices p:memory p:devices z:num_devices
Executable_Destroy p:executable
Executable_Name p:executable p:executable_name z:executable_name_size
Executable_NumReplicas p:executable z:num_replicas
Executable_NumPartitions p:executable z:num_partitions
Executable_NumOutputs p:executable z:num_outputs
Executable_SizeOfGeneratedCodeInBytes p:executable l:size_in_bytes
Executable_GetCostAnalysis p:executable z:num_properties p:properties
Executable_OutputMemoryKinds p:executable z:num_outputs p:memory_kinds p:memory_kind_sizes
Executable_OptimizedProgram p:executable p:program
Executable_Serialize p:executable p:serialized_bytes z:serialized_bytes_size p:serialized_executable
    p:serialized_executable_deleter
LoadedExecutable_Destroy p:executable
LoadedExecutable_GetExecutable p:loaded_executable p:executable
LoadedExecutable_AddressableDevices p:executable p:addressable_devices z:num_addressable_devices
LoadedExecutable_Delete p:executable
LoadedExecutable_IsDeleted p:executable b:is_deleted
LoadedExecutable_Execute p:executable p:options p:argument_lists z:num_devices z:num_args
    p:output_lists p:device_complete_events p:execute_device
Executable_DeserializeAndLoad p:client p:serialized_executable z:serialized_executable_size
    p:loaded_executable p:overridden_serialized_compile_options
    z:overridden_serialized_compile_options_size p:load_options
LoadedExecutable_Fingerprint p:executable p:executable_fingerprint z:executable_fingerprint_size
Buffer_Destroy p:buffer
Buffer_ElementType p:buffer u:type
Buffer_Dimensions p:buffer p:dims z:num_dims
Buffer_UnpaddedDimensions p:buffer p:unpadded_dims z:num_dims
Buffer_DynamicDimensionIndices p:buffer p:dynamic_dim_indices z:num_dynamic_dims
Buffer_GetMemoryLayout p:buffer Buffer_MemoryLayout:layout
Buffer_OnDeviceSizeInBytes p:buffer z:on_device_size_in_bytes
Buffer_Device p:buffer p:device
Buffer_Memory p:buffer p:memory
Buffer_Delete p:buffer
Buffer_IsDeleted p:buffer b:is_deleted
Buffer_CopyToDevice p:buffer p:dst_device p:dst_buffer
Buffer_ToHostBuffer p:src p:host_layout p:dst z:dst_size p:event
Buffer_IsOnCpu p:buffer b:is_on_cpu
Buffer_ReadyEvent p:buffer p:event
Buffer_UnsafePointer p:buffer z:buffer_pointer
Buffer_IncreaseExternalReferenceCount p:buffer
Buffer_DecreaseExternalReferenceCount p:buffer
Buffer_OpaqueDeviceMemoryDataPointer p:buffer p:device_memory_ptr
CopyToDeviceStream_Destroy
CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes
CopyToDeviceStream_GranuleSize
CopyToDeviceStream_CurrentBytes
TopologyDescription_Create
TopologyDescription_Destroy p:topology
TopologyDescription_PlatformName p:topology p:platform_name z:platform_name_size
TopologyDescription_PlatformVersion p:topology p:platform_version z:platform_version_size
TopologyDescription_GetDeviceDescriptions p:topology p:descriptions z:num_descriptions
TopologyDescription_Serialize p:topology p:serialized_bytes z:serialized_bytes_size
    p:serialized_topology p:serialized_topology_deleter
TopologyDescription_Attributes p:topology p:attributes z:num_attributes
Compile
Executable_OutputElementTypes p:executable p:output_types z:num_output_types
Executable_OutputDimensions p:executable z:num_outputs p:dims p:dim_sizes
Buffer_CopyToMemory p:buffer p:dst_memory p:dst_buffer
Client_CreateViewOfDeviceBuffer p:client p:device_buffer_ptr p:dims z:num_dims u:element_type
    p:layout p:device p:on_delete_callback p:on_delete_callback_arg l:stream p:buffer p:memory
Executable_Fingerprint p:executable p:executable_fingerprint z:executable_fingerprint_size
Client_TopologyDescription p:client p:topology
Executable_GetCompiledMemoryStats p:executable l:generated_code_size_in_bytes
    l:argument_size_in_bytes l:output_size_in_bytes l:alias_size_in_bytes l:temp_size_in_bytes
    l:host_generated_code_size_in_bytes l:host_argument_size_in_bytes l:host_output_size_in_bytes
    l:host_alias_size_in_bytes l:host_temp_size_in_bytes l:peak_memory_in_bytes
    l:total_size_in_bytes l:total_allocation_bytes l:indefinite_allocations
    l:peak_unpadded_heap_bytes
Memory_Kind_Id p:memory i:kind_id
ExecuteContext_Create p:context
ExecuteContext_Destroy p:context
Buffer_CopyRawToHost p:buffer p:dst l:offset l:transfer_size p:event
AsyncHostToDeviceTransferManager_Destroy p:transfer_manager
AsyncHostToDeviceTransferManager_TransferData p:transfer_manager i:buffer_index p:data l:offset
    l:transfer_size b:is_last_transfer p:done_with_h2d_transfer
Client_CreateBuffersForAsyncHostToDevice p:client p:shape_specs z:num_shape_specs p:device_layouts
    z:num_device_layouts p:memory p:transfer_manager
AsyncHostToDeviceTransferManager_RetrieveBuffer p:transfer_manager i:buffer_index p:buffer_out
AsyncHostToDeviceTransferManager_Device p:transfer_manager p:device_out
AsyncHostToDeviceTransferManager_BufferCount p:transfer_manager z:buffer_count
AsyncHostToDeviceTransferManager_BufferSize p:transfer_manager i:buffer_index z:buffer_size
AsyncHostToDeviceTransferManager_SetBufferError p:transfer_manager i:buffer_index u:error_code
    p:error_message z:error_message_size
AsyncHostToDeviceTransferManager_AddMetadata p:transfer_manager p:transfer_metadata z:num_metadata
Client_DmaMap
Client_DmaUnmap
Client_CreateUninitializedBuffer p:client p:shape_dims z:shape_num_dims u:shape_element_type
    p:shape_layout p:device p:memory p:buffer
Client_UpdateGlobalProcessInfo p:client p:process_infos z:num_process_infos
TopologyDescription_Deserialize
Client_CreateAliasBuffer
Client_FulfillAliasBuffer
LoadedExecutable_GetDeviceAssignment p:executable p:serialized_bytes z:serialized_bytes_size
    p:serialized_device_assignment p:serialized_device_assignment_deleter
Client_CreateErrorBuffer
AsyncHostToDeviceTransferManager_TransferLiteral
Buffer_CopyRawToHostFuture
Device_PoisonExecution
Device_CreateAsyncTrackingEvent
AsyncTrackingEvent_Destroy
Executable_GetCompileOptions p:executable p:serialized_bytes z:serialized_bytes_size
    p:serialized_compile_options p:serialized_compile_options_deleter
Buffer_DonateWithControlDependency
Event_Create p:event
Event_Set p:event u:error_code p:error_message z:error_message_size
Device_GetAttributes p:device p:attributes z:num_attributes p:device_attributes p:attributes_deleter
Client_Load
LoadedExecutable_AddressableDeviceLogicalIds p:executable p:addressable_device_logical_ids
    z:num_addressable_device_logical_ids
Buffer_Bitcast
Error_ForEachPayload p:error p:visitor p:user_arg
TopologyDescription_Fingerprint p:topology z:fingerprint
Executable_ParameterMemoryKinds p:executable z:num_parameters p:memory_kinds p:memory_kind_sizes
Device_ClearMemoryStats p:device
TopologyDescription_MakeCanonicalShapeForMemorySpace
TopologyDescription_GetMemorySpaceKindIds
"""

# Slots of the Layouts extension in order, spelled as PJRT does.
LAYOUTS_SLOTS = """
Layouts_MemoryLayout_Destroy p:layout
Layouts_MemoryLayout_Serialize p:layout p:serialized_bytes z:serialized_bytes_size
    p:serialized_layout p:serialized_layout_deleter
Layouts_PJRT_Client_GetDefaultLayout p:client u:type p:dims z:num_dims p:layout
Layouts_PJRT_Buffer_MemoryLayout p:buffer p:layout
Layouts_PJRT_Topology_GetDefaultLayout p:topology_description u:type p:dims z:num_dims p:layout
Layouts_PJRT_Executable_GetOutputLayouts p:executable z:num_outputs p:layouts
Layouts_PJRT_Executable_GetParameterLayouts p:executable z:num_parameters p:layouts
"""

# Structs that are no function's arguments. `=` in front: no struct_size and extension_start.
# Two anonymous unions are written as the member that tinyhlo uses, padded to the union's size.
OTHER_STRUCTS = """
=Extension_Base z:struct_size u:type p:next
Api_Version i:major_version i:minor_version
=Error p:vtable
=Error_FunctionTable z:struct_size z:instance_size p:extension_start p:destroy p:message p:get_code
    p:for_each_payload
=Memory p:vtable
Memory_FunctionTable z:instance_struct_size p:get_user_data p:set_user_data
NamedValue p:name z:name_size u:type l:value z:value_size
Program p:code z:code_size p:format z:format_size
ShapeSpec p:dims z:num_dims u:element_type
Buffer_MemoryLayout_Tiled p:minor_to_major z:minor_to_major_size p:tile_dims p:tile_dim_sizes
    z:num_tiles
Buffer_MemoryLayout_Strides p:byte_strides z:num_byte_strides
Buffer_MemoryLayout Buffer_MemoryLayout_Tiled:tiled u:type
ExecuteOptions p:send_callbacks p:recv_callbacks z:num_send_ops z:num_recv_ops i:launch_id
    p:non_donatable_input_indices z:num_non_donatable_input_indices p:context p:call_location
    z:num_tasks p:task_ids p:incarnation_ids p:multi_slice_config
    b:use_major_to_minor_data_layout_for_callbacks p:hlo_output_callbacks z:num_hlo_output_callbacks
"""

# Values of enums that the C side names.
CONSTANTS = {
    "Extension_Type_Layouts": 4,
    "NamedValue_kString": 0,
    "NamedValue_kInt64": 1,
    "NamedValue_kInt64List": 2,
    "NamedValue_kFloat": 3,
    "NamedValue_kBool": 4,
    "HostBufferSemantics_kImmutableOnlyDuringCall": 0,
    "HostBufferSemantics_kImmutableUntilTransferCompletes": 1,
    "HostBufferSemantics_kImmutableZeroCopy": 2,
    "HostBufferSemantics_kMutableZeroCopy": 3,
    "Buffer_MemoryLayout_Type_Tiled": 0,
    "Buffer_MemoryLayout_Type_Strides": 1,
    "Buffer_Type_PRED": 1,
    "Buffer_Type_TOKEN": 23,
}

# Bytes of a stored element by PJRT_Buffer_Type, from 1 on, as StableHLO spells them; types below a
# byte are stored one element a byte, as JAX hands them over.
ELEMENTS = """
i1:1 i8:1 i16:2 i32:4 i64:8 ui8:1 ui16:2 ui32:4 ui64:8 f16:2 f32:4 f64:8 bf16:2 complex<f32>:8
complex<f64>:16 f8E5M2:1 f8E4M3FN:1 f8E4M3B11FNUZ:1 f8E5M2FNUZ:1 f8E4M3FNUZ:1 i4:1 ui4:1 token:0
i2:1 ui2:1 f8E4M3:1 f8E3M4:1 f8E8M0FNU:1 f4E2M1FN:1
"""
SINCE_JAX_011 = {"f6E2M3FN": (32, 1), "f6E3M2FN": (33, 1)}  # before them: integers of one bit
# spelling -> (PJRT_Buffer_Type, bytes)
ELEMENT_TYPES = {
    name: (code, int(size))
    for code, (name, size) in enumerate((word.split(":") for word in ELEMENTS.split()), 1)
} | SINCE_JAX_011


@dataclass(frozen=True, slots=True)
class Field:
    """`type` is a letter of TYPES or the name of a struct."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct by its name without the prefix PJRT_."""

    name: str
    fields: tuple[Field, ...]


HEAD = (Field("struct_size", "z"), Field("extension_start", "p"))


def _fields(words: list[str]) -> tuple[Field, ...]:
    pairs = (word.split(":") for word in words)
    return tuple(Field(name, type_) for type_, name in pairs)


def _rows(text: str) -> list[list[str]]:
    """The words of each row."""
    return [row.split() for row in text.replace("\n    ", " ").strip().split("\n")]


def _structs(text: str, ending: str) -> dict[str, Struct]:
    """The struct of each row."""
    structs: dict[str, Struct] = {}
    for word, *words in _rows(text):
        head = () if word.startswith("=") else HEAD
        name = word.removeprefix("=") + ending
        structs[name] = Struct(name, head + _fields(words))
    return structs


FUNCTIONS = tuple(row[0] for row in _rows(SLOTS))
LAYOUTS_FUNCTIONS = tuple(row[0] for row in _rows(LAYOUTS_SLOTS))
UNIMPLEMENTED = tuple(
    row[0] for row in _rows(SLOTS) if len(row) == 1 and row[0] != "Plugin_Initialize"
)


def _table(name: str, functions: Sequence[str], *head: Field) -> dict[str, Struct]:
    """A struct of pointers to functions."""
    return {name: Struct(name, (*head, *(Field(f"PJRT_{each}", "p") for each in functions)))}


STRUCTS: dict[str, Struct] = {
    **_structs(OTHER_STRUCTS, ""),
    **_structs(SLOTS, "_Args"),
    **_structs(LAYOUTS_SLOTS, "_Args"),
    **_table("Api", FUNCTIONS, *HEAD, Field("pjrt_api_version", "Api_Version")),
    **_table("Layouts_Extension", LAYOUTS_FUNCTIONS, Field("base", "Extension_Base")),
}
