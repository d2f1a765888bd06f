"""From a Program to something that runs, and what it needs then. In reading order:

compile        a Program as `Compiled`: object code and what is known of each kernel
object_code    modules compiled side by side, by `jit`; `cache`: what is kept of them on the disk
processors     the Targets that code is made for
host           an `executable` of compiled code, or of the interpreter; `saved` ones on the disk
core           the C library in `native/` as Python sees it; `arrays` in its memory
library        functions that programs call: `targets` finds them, `ffi` handlers (`capsules` hold
               them), `callbacks`; `functions` of Python, as C calls them; `jax_ffi`: what is
               registered with JAX;
               `blas`: the threads of what LAPACK calls; `substitution`: triangular systems of few
               right sides; `exchange` with the processes of a `job`, or with other threads by a
               `rendezvous`
search/        schedules found by measuring; `trace`: each call with its time
devices/       devices that follow pointers, into any memory; `webgpu/` those that do not
shared_library a program as a C library; `c_compiler` finds who links it
"""
