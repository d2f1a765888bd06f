"""What of JAX's own tests is left out, and why.

The worker counts tiny as a CPU (`plugin/jax_suite_plugin.py`). What JAX skips there, or for want
of more than eight devices or of other packages, is not listed here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skip:
    """`test`: a regular expression found in the names of tests of one file."""

    file: str
    test: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Whole files."""

    files: tuple[str, ...]
    reason: str


SKIPS = (
    Skip(
        "async_collectives_test",
        "test_async_(all_gather|all_to_all|ppermute|psum|psum_scatter)$",
        "reads XLA's own ops in the text of a compiled program",
    ),
    Skip(
        "overlap_test",
        "test_async_(all_gather|all_to_all|ppermute|psum|psum_scatter)$",
        "reads XLA's own ops in the text of a compiled program",
    ),
    Skip(
        "pallas/tpu_sparsecore_pallas_test",
        "sparsecore_availability_check$",
        "expects that a kernel which nobody asks to interpret is refused; here it is compiled",
    ),
    Skip(
        "logging_test",
        "test_subprocess_stderr_(debug|info)_logging",
        "fails on XLA:CPU too",
    ),
    Skip(
        "x64_context_test",
        "test_near_singular_inverse",
        "expects denormal numbers to be flushed to zero, as XLA:CPU does; they live here",
    ),
    Skip(
        "ode_test",
        "test_grad_closure_with_vmap",
        "expects a difference quotient over 1e-5 in float32; the gradient found is exact",
    ),
    Skip(
        "export_test",
        "test_explicit_sharding_dot_general_(fsdp|half_tp)$",
        "reads the text that XLA's partitioner writes: collectives between devices",
    ),
    Skip(
        "export_test",
        "test_unreduced_einsum_basic$",
        "reads what each device has of a sum that is not reduced yet; here the first has it all",
    ),
    Skip(
        "export_test",
        "test_error_wrong_platform_cpu$",
        "expects the refusal of what was exported for the CPU; it runs here as it is",
    ),
    Skip(
        "ffi_test",
        "BatchPartitioningTest",
        "lowers a primitive of its own, for cpu and graphics processors alone",
    ),
    Skip(
        "layout_test",
        "test_(auto_layout|concrete_layout_in_shardings|default_layout|in_layouts_out_layouts)$",
        "expects the layout that XLA chooses for a turned array where the choice is the compiler's",
    ),
    Skip(
        "layout_test",
        "test_layout_propagation_host$",
        "reads a layout in the text of a program, where jaxlib leaves out those in host memory",
    ),
    Skip(
        "layout_test",
        "test_layout_donation_mismatching_in_and_out_fails",
        "asks for an array in tiles; arrays are dense here",
    ),
    Skip(
        "linalg_sharding_test",
        "test_non_batch_axis_sharding",
        "reads the text that XLA's partitioner writes: collectives between devices",
    ),
    Skip(
        "array_test",
        "test_random_bits_is_pure_map",
        "reads the text that XLA's partitioner writes: parts in place of whole arrays",
    ),
    Skip(
        "multi_device_test",
        "test_lax_full_like_efficient",
        "fills the memory of each device: devices here share one",
    ),
    Skip(
        "shard_map_test",
        "test_unreduced_replicated_bitcast",
        "has different values where it says that all devices have the same; the first one's count",
    ),
    Skip(
        "pjit_test",
        "test_(bincount|identity_jit_out_unreduced|reduce_sum_scalar_unreduced|segment_sum|"
        "reduced_reshard_unreduced_bwd|unreduced_einsum_basic)$",
        "reads what each device has of a sum that is not reduced yet; here the first has it all",
    ),
    Skip(
        "pjit_test",
        "test_reduce_max_(min_unreduced_basic|unreduced_partial_reduction)",
        "reads what each device has of a maximum that is not taken yet; here all have it whole",
    ),
    Skip(
        "pjit_test",
        "test_(dot_general_(fsdp|half_tp)|reduce_(max|sum)_(all|first|first2|second)|"
        "(minibatch_scan|scan_over_layers_minibatch)_unreduced_(custom_vjp|grad))$",
        "reads the text that XLA's partitioner writes: collectives between devices",
    ),
    Skip("device_test", "", "asks what a CPU device is called"),
    Skip(
        "multiprocess/array_test",
        "CrossHostTransferTest",
        "expects of devices called cpu that arrays do not move to another process's",
    ),
    Skip(
        "array_interoperability_test",
        "testJaxArrayRoundTrip",
        "takes a device that is not called cpu for a GPU",
    ),
    Skip(
        "lax_control_flow_test",
        "test_platform_dependent_with_(non_existent_custom_call|primitive_with_lowering_error)",
        "has what is lowered for the platform named cpu only",
    ),
    Skip("eigh_test", r"testEigh\d", "asks for Jacobi and QDWH, which JAX refuses on a CPU"),
    Skip("lax_test", "testSuccessOnComplexPlane_sinc_complex(64|128)", "fails on XLA:CPU too"),
    Skip(
        "core_test",
        "test_reference_cycles(_jit)?$",
        "demands that compiling leaves no reference cycles; ctypes and llvmlite do",
    ),
    Skip(
        "api_test",
        "compile_with_compiler_options_invalid$",
        "demands that XLA's own options are checked; here they have no effect",
    ),
    Skip(
        "api_test",
        "test_inline_optimized_hlo",
        "reads in the text of a compiled program what XLA has inlined; here it is as JAX wrote it",
    ),
    Skip(
        "pmap_test",
        "compile_with_compiler_options_invalid$",
        "demands that XLA's own options are checked; here they have no effect",
    ),
    Skip(
        "aot_test",
        "topology",
        "programs are compiled for the machine at hand: there are no topologies without devices",
    ),
    Skip(
        "transfer_guard_test",
        "test_disallow_(explicit_)?(all|device_to_host)$",
        "results lie in host memory: reading them is no transfer, as on XLA:CPU",
    ),
    Skip(
        "export_test",
        "multi_platform_(and_poly|nested)|ordered_effects_multi_platform_and_poly|mlir_lower_fun_with",
        "looks up the numbers to expect by the name of the platform",
    ),
    Skip(
        "shape_poly_test",
        "jnp_(insert_insert|nonzero_size)_(constant|poly)$",
        "expects the refusal that other platforms need; tiny compiles the program, and right",
    ),
    Skip(
        "shape_poly_test",
        "vmap_(eig|lu|qr_multi_array|svd)_.*bfloat16",
        "LAPACK has no bfloat16; JAX leaves these out by the platform's name, cpu",
    ),
)

PALLAS_FOR_OTHERS = tuple(
    f"pallas/{name}_test"
    for name in (
        "mgpu_attention",
        "mgpu_collective_matmul",
        "mgpu_examples",
        "mgpu_matmul",
        "mgpu_ragged_dot",
        "mgpu_torch",
        "mosaic_gpu",
        "tpu_all_gather",
        "tpu_pallas_distributed",
        "tpu_sparsecore_pallas_distributed",
        "tpu_splash_attention_kernel_sharded",
        "triton_gpu_info",
    )
)
LEFT_OUT = (
    LeftOut(
        (
            "cudnn_fusion_test",
            "fused_attention_stablehlo_test",
            "fused_test",
            "gpu_memory_flags_test",
            "magma_linalg_test",
            "mock_gpu_test",
            "mock_gpu_topology_test",
            "mosaic_test",
            "multiprocess_gpu_test",
            "pgle_test",
            "ragged_collective_test",
            "scaled_matmul_stablehlo_test",
            "multiprocess/pgle_test",
            "multiprocess/tpu_device_test",
            *PALLAS_FOR_OTHERS,
        ),
        "for GPUs and TPUs",
    ),
    LeftOut(
        ("export_harnesses_multi_platform_test",),
        "runs on the devices named cpu, gpu and tpu only; `make harnesses` runs the same programs",
    ),
    LeftOut(
        ("xla_transform_test",),
        "rewrites XLA's own programs",
    ),
    LeftOut(
        ("compilation_cache_test",),
        "JAX's own cache serves cpu, gpu, tpu and neuron only; its tests break on others",
    ),
    LeftOut(
        (
            "absl_cpp_logging_test",
            "array_api_test",
            "colocated_python_test",
            "distributed_initialize_test",
            "distributed_test",
            "documentation_coverage_test",
            "hardware_utils_test",
            "heap_profiler_test",
            "lazy_loader_test",
            "local_wheel_smoke_test",
            "package_structure_test",
            "profiler_session_test",
            "profiler_test",
            "pytorch_interoperability_test",
            "typing_test",
            "version_test",
        ),
        "about JAX's packaging, its services, other packages or several hosts",
    ),
)
