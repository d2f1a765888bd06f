# Two commands do everything on a fresh machine: `make demo` and `make test`.
# Each makes the virtual environment .venv when it is needed; `make help` lists the rest.

SHELL := bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# The first Python found here makes .venv; `make PYTHON=/path/to/python ...` overrules it.
PYTHON ?= $(shell tools/find_python.sh 3.11 3.12 3.13 3.14)
PYTHON313 ?= $(shell tools/find_python.sh 3.13)

BUILD_INPUTS := pyproject.toml $(wildcard setup.py) \
	$(wildcard tinyhlo/*/native/*.[ch]) tinyhlo/pjrt_plugin/abi.py packaging/native.py packaging/pjrt_header.py \
	tinyhlo/runtime/c_compiler.py tinyhlo/version.py

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

venv: .venv/.installed  ## make .venv with the package and everything the targets need

.venv/.installed: $(BUILD_INPUTS)
	@if [ -z "$(PYTHON)" ]; then \
	  echo "tinyhlo needs Python 3.11 or newer: install one, or say make PYTHON=/path/to/python" >&2; \
	  exit 1; fi
	@echo "== making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test,demo,lint]'
	@touch $@

# The oldest llvmlite that the package takes: numba asks for one of its own, so users have those.
OLDEST := llvmlite<0.46

.venv313/.installed: $(BUILD_INPUTS)
	@echo "== making .venv313 with $(PYTHON313), the newest jax and $(OLDEST)"
	@$(PYTHON313) -m venv .venv313
	@.venv313/bin/python -m pip install --quiet --disable-pip-version-check -e '.[test]' '$(OLDEST)'
	@touch $@

demo: .venv/.installed  ## train a small convolutional network on tiny and on XLA:CPU
	@.venv/bin/python -m demo

# A process a core, each with up to 1.5 GB; one that dies is named, with the test that it ran.
PYTEST := -m pytest -n auto --maxprocesses 8 --dist worksteal

# The newest Python and jax first, so that the last lines are the whole suite's.
test: .venv/.opencl .venv/.webgpu test-313 test-narrow test-device  ## run every test; the plugin's also on Python 3.13 with the newest jax
	@echo "== tests"
	@.venv/bin/python $(PYTEST) --durations=5 </dev/null

test-313:  ## run the plugin's tests on Python 3.13 with the newest jax
	@if [ -z "$(PYTHON313)" ]; then \
	  echo "== skipped: plugin tests on Python 3.13 (no python3.13 on this machine)"; \
	else \
	  $(MAKE) .venv313/.installed && \
	  echo "== plugin tests on Python 3.13, jax $$(.venv313/bin/python -c 'import jax; print(jax.__version__)')" && \
	  .venv313/bin/python $(PYTEST) -p no:cacheprovider tests/pjrt_plugin </dev/null; \
	fi

# What is generated for GPUs and for aarch64 does not ask for this processor.
FOR_OTHERS := emulated factors grid grid_programs grid_transform grouped images matrices merge \
  recorded shared_memory tf32 wide

test-narrow: .venv/.installed  ## run the tests of generated code without AVX, FMA and F16C
	@if [ "$$(uname -m)" = x86_64 ]; then echo "== generated code as on x86-64-v2" && \
	  TINYHLO_CPU=x86-64-v2 .venv/bin/python $(PYTEST) tests/codegen \
	  $(FOR_OTHERS:%=--ignore=tests/codegen/test_%.py) </dev/null; fi

ON_DEVICES := fused structures scan sort half loops ranges extremes random_kernels

test-device: .venv/.opencl  ## run the tests of generated code on an OpenCL device, where there is one
	@if missing=$$(.venv/bin/python -c "from tinyhlo.runtime.devices import device; \
	    device.open_device('CL')" 2>&1); then \
	  echo "== generated code on an OpenCL device" && TINYHLO_DEVICE=CL .venv/bin/python $(PYTEST) \
	  $(ON_DEVICES:%=tests/codegen/test_%.py) </dev/null; \
	else echo "== skipped: generated code on an OpenCL device ($${missing##*Error: })"; fi

test-cuda: DEVICE := NV
test-cuda: test-emulated  ## run the tests of generated code as CUDA, on an emulated GPU (g++)

test-hip: DEVICE := AMD
test-hip: test-emulated  ## the same as HIP

test-metal: DEVICE := METAL
test-metal: test-emulated  ## the same as Metal

test-emulated: .venv/.installed
	@.venv/bin/python -m tests.runtime.emulated_gpu $(DEVICE) $(PYTEST) \
	  $(ON_DEVICES:%=tests/codegen/test_%.py) </dev/null

test-qcom: .venv/.opencl  ## the same as on Adreno, which an OpenCL device emulates
	@if missing=$$(TINYHLO_EMULATE=1 .venv/bin/python -c "from tinyhlo.runtime.devices import device; \
	    device.open_device('QCOM')" 2>&1); then \
	  echo "== generated code as on Adreno" && TINYHLO_EMULATE=1 TINYHLO_DEVICE=QCOM .venv/bin/python $(PYTEST) \
	  $(ON_DEVICES:%=tests/codegen/test_%.py) </dev/null; \
	else echo "== skipped: generated code as on Adreno ($${missing##*Error: })"; fi

test-webgpu: .venv/.webgpu  ## run the tests of generated code by WebGPU, where there is an adapter
	@if missing=$$(.venv/bin/python -c "from tinyhlo.runtime.webgpu import device; \
	    device.open_named('WEBGPU')" 2>&1); then \
	  echo "== generated code by WebGPU" && TINYHLO_DEVICE=WEBGPU .venv/bin/python $(PYTEST) \
	  $(ON_DEVICES:%=tests/codegen/test_%.py) </dev/null; \
	else echo "== skipped: generated code by WebGPU ($${missing##*Error: })"; fi

# wgpu, and Deno, which runs pages of programs: 50 MB. Debian's mesa-vulkan-drivers is an adapter.
.venv/.webgpu: .venv/.installed
	@echo "== installing wgpu and Deno"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[webgpu]' deno || \
	  echo "== there is none here: tests of WebGPU are skipped"
	@touch $@

# An OpenCL device on any x86 machine with Linux, for the tests: 275 MB
.venv/.opencl: .venv/.installed
	@echo "== installing an OpenCL runtime for processors"
	@.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cl-cpu]' || \
	  echo "== there is none here: tests on a device are skipped"
	@touch $@

emulators:  ## install what runs aarch64 code and WebGPU in the tests (Debian's packages, needs root)
	@which qemu-aarch64 aarch64-linux-gnu-gcc >/dev/null && ls /usr/share/vulkan/icd.d/*.json >/dev/null 2>&1 || \
	  { apt-get update -q && apt-get install -q -y qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
	  mesa-vulkan-drivers; } >/dev/null

lint: .venv/.installed  ## ruff (format and lint) and pyright
	@.venv/bin/ruff format --check . && .venv/bin/ruff check . && .venv/bin/pyright --pythonpath .venv/bin/python

bench: .venv/.installed  ## time the project's own benchmarks against XLA:CPU
	@.venv/bin/tinyhlo bench

# These need the suites beside the checkout (../shared) or TINYHLO_SUITES=DIR.
# DEVICE=CL: on that device, into a section of its own
conformance: .venv/.installed  ## run the whole suites and the corpus, write docs/conformance.md
	@TINYHLO_DEVICE=$(or $(DEVICE),CPU) .venv/bin/python -m tests.conformance.record

# What JAX's own tests need besides
.venv/.jax-suite: .venv/.installed
.venv313/.jax-suite: .venv313/.installed
.venv/.jax-suite .venv313/.jax-suite:
	@$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[jax-suite]'
	@touch $@

# FILES="lax_test nn_test" (default: all), X64=1 or both; JAX's tests are fetched once. SMALL=7: with
# thresholds drawn at random, so that small programs take the paths of large ones; writes no page.
jax-suite: .venv/.jax-suite  ## run JAX's own tests on tiny, write their section of docs/conformance.md
	@.venv/bin/python -m tests.jax_suite $(FILES) --x64 $(or $(X64),0) $(if $(SMALL),--small $(SMALL) --results $(CURDIR)/build/small)

jax-suite-newest: .venv313/.jax-suite  ## the same on Python 3.13 with the newest jax, in a section of its own
	@.venv313/bin/python -m tests.jax_suite $(FILES) --x64 $(or $(X64),0) --newest

artifacts: .venv/.installed  ## run what older JAX versions exported, write their section of docs/conformance.md
	@.venv/bin/python -m tests.conformance.artifacts

# Can be stopped: the next `make fuzz` goes on. COUNT=N (default 20000).
fuzz: .venv/.installed  ## load damaged files, write their section of docs/conformance.md
	@JAX_PLATFORMS=cpu .venv/bin/python -m tools.fuzz_import --count $(or $(COUNT),20000) --state build/fuzz.json --record

harnesses: .venv/.jax-suite  ## run JAX's primitive harnesses against XLA:CPU, write their section
	@.venv/bin/python -m tests.harnesses

.venv-%/.installed: $(BUILD_INPUTS) tests/%/requirements.txt
	@echo "== making .venv-$* with $(PYTHON) and the packages of tests/$*"
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check -e . \
	  -r tests/$*/requirements.txt
	@touch $@

# NAMES="fno mamba" runs these and writes no page.
programs: .venv-programs/.installed  ## run programs of PyPI packages against XLA:CPU, write their section
	@.venv-programs/bin/python -m tests.programs $(NAMES)

# NAMES="optax diffrax" (default: all), MOST=N tests of each (default 150).
ecosystem: .venv-ecosystem/.installed  ## run the tests of libraries written on JAX, write their section
	@.venv-ecosystem/bin/python -m tests.ecosystem $(NAMES) --most $(or $(MOST),150)

bench-workloads: .venv/.installed  ## time 41 workloads against XLA, write docs/benchmarks.md; DEVICE=NV: docs/benchmarks-nv.md
	@.venv/bin/python -m benchmarks.record $(if $(DEVICE),--device $(DEVICE))

bench-sweep: .venv/.installed  ## time functions of one operation against XLA:CPU, write docs/benchmarks.md
	@.venv/bin/python -m benchmarks.sweep

bench-random: .venv/.installed  ## time N=200 random operations from number K=0 on against XLA:CPU
	@.venv/bin/python -m benchmarks.sweep --random $(or $(N),200) --first $(or $(K),0)

bench-cores: .venv/.installed  ## estimate programs on CORES=8,16,64 cores from their parts, timed on one
	@.venv/bin/python -m benchmarks.cores --cores "$(or $(CORES),8,16,64)" --only "$(ONLY)" --loops $(or $(LOOPS),0)

# ONLY="repeated, " runs these; all of them take half an hour.
bench-pairs: .venv/.installed  ## time pairs of steps, each producer with each consumer, against XLA:CPU
	@.venv/bin/python -m benchmarks.sweep --pairs --rounds 1 --only "$(ONLY)"

# NAMES="winograd terms" leaves out these in turn (default: each pass), ONLY="norm" takes such programs.
bench-passes: .venv/.installed  ## time programs with each pass and without: what it earns
	@.venv/bin/python -m benchmarks.passes $(NAMES) --only "$(ONLY)"

# NAMES="gpt2_train ray_march" runs these and writes no page.
bench-models: .venv/.installed  ## time models of real size against XLA:CPU, write docs/benchmarks.md
	@.venv/bin/python -m benchmarks.models $(NAMES)

# NAMES="gpt2 tables" runs these and writes no page. Needs 6 GB of memory.
bench-unrolled: .venv/.installed  ## time programs whose loops are written in Python, write docs/benchmarks.md
	@.venv/bin/python -m benchmarks.unrolled $(NAMES)

bench-large: .venv/.installed  ## time training steps at their true size against XLA:CPU, write docs/benchmarks.md
	@.venv/bin/python -m benchmarks.large $(NAMES)

accuracy: .venv/.installed  ## measure transcendental functions against mpmath, and long sums, write docs/accuracy.md
	@.venv/bin/python -m tools.accuracy && .venv/bin/python -m tools.accuracy_of_sums

docs: .venv/.installed  ## print the forms of programs in docs/ anew
	@.venv/bin/python -m tools.print_forms docs/how-it-works.md docs/performance.md

# FIRST=N LAST=N: the numbers of the programs (default 0 to 3000).
random-programs: .venv/.installed  ## hold generated code of random programs against the interpreter
	@.venv/bin/python -m tests.codegen.test_random_kernels $(or $(FIRST),0) $(or $(LAST),3000)

# SMALL=1: with random thresholds; OPERATIONS=1: single operations with random attributes.
random-jax: .venv/.installed  ## hold random JAX programs against XLA:CPU
	@.venv/bin/python -m tests.random_programs $(or $(FIRST),0) $(or $(LAST),1000) \
		$(if $(SMALL),--small) $(if $(OPERATIONS),--operations)

random-views: .venv/.installed  ## hold random programs of views, as if they were large, against the interpreter
	@.venv/bin/python -m tests.random_views $(or $(FIRST),0) $(or $(LAST),500)

counts: .venv/.installed  ## accept the counts of kernels, bytes and operations as they are now
	@.venv/bin/python -m tests.counts --record

clean:  ## remove what the targets made
	rm -rf .venv .venv313 .venv-programs .venv-ecosystem build dist *.egg-info .pytest_cache \
	  .ruff_cache .hypothesis demo.png

.PHONY: help venv demo test test-313 test-narrow test-device test-cuda test-hip test-metal test-qcom test-emulated \
	test-webgpu emulators lint bench conformance jax-suite jax-suite-newest artifacts \
	fuzz harnesses programs ecosystem bench-workloads bench-sweep bench-random bench-cores bench-pairs bench-passes bench-models bench-unrolled bench-large accuracy docs \
	counts random-programs random-jax random-views clean
