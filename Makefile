# The short way to everything; the build itself is CMakeLists.txt.
#
#   make                  build: tools in build/bin, libraries in build/lib
#   make demo             train a small network on four ranks, then measure an all-reduce
#   make test             build and run all tests (K=word: those whose name holds it)
#   make test SAN=thread  the same under sanitizers (or SAN=address,undefined)
#   make gpu-test         on a machine with GPUs: build their kernels, run the tests that need them
#   make test-net         on machines that only a network joins (namespaces; as root)
#   make torchcomms-test  the Torchcomms backend, beside torch and torchcomms (docs/howto/torchcomms.md)
#   make bench            beside Open MPI and MPICH, table and plot
#   make accuracy         how exact sums in low precision are: tables and plot, in docs/numerics.md too
#   make install PREFIX=/usr/local
#   make lint             the checks, a clang build, cppcheck
#   make clean
#
# What is missing on a Debian or Ubuntu is installed first, as root (packages.txt).
# GPU kernels are built when their compilers are here (docs/building.md); GPU=off: never.
PREFIX ?= /usr/local
SAN    ?=
K      ?=
CMAKE_FLAGS ?=
GPU = $(if $(SAN),off,auto)

ifeq ($(SAN),)
BUILD  ?= build
FOLDERS = unit conform fault fuzz users gpu
else ifeq ($(SAN),thread)
BUILD  ?= build-tsan
FOLDERS = unit conform
GPU_TESTS = conform_collectives|stress_million|test_team_fail|test_machines
ONE_THREAD = test_plan_check|test_reduce|test_numerics8|test_codec|test_codec_error|test_gpu_arith|test_topo_search|test_simulate|test_tool_data
else
BUILD  ?= build-asan
FOLDERS = unit conform fuzz
GPU_TESTS = test_team|test_pairs|stress_million
endif

CONFIGURE = cmake -S . -B $(BUILD) -G Ninja --log-level=NOTICE -DRCCLX_GPU=$(GPU) \
            $(if $(SAN),-DRCCLX_SANITIZE=$(SAN)) $(CMAKE_FLAGS)
# Tests use host memory unless they say otherwise; where there are GPUs, that has to be said.
HOST      = $(if $(wildcard /dev/nvidiactl /dev/kfd),RCCLX_DEVICE=host)
RUN       = RCCLX_BUILD=$(BUILD) $(BUILD)/runner $(if $(K),-k '$(K)')
empty    :=
space    := $(empty) $(empty)
PATTERN   = /tests/($(subst $(space),|,$(FOLDERS)))/$(if $(GPU_TESTS),|/tests/gpu/($(GPU_TESTS))$$)

# Under a sanitizer programs are slower (the limits grow), and the checks and
# scripts, which would find nothing new, are left out; so are, where races are
# looked for, the long tests that have one thread.
ifeq ($(SAN),)
SCRIPTS = check tests tests/python/run tests/python/torch/run tests/torchcomms/run
else
SCRIPTS =
RUN    += --scale 5 --no-aslr
export ASAN_OPTIONS  ?= detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
export UBSAN_OPTIONS ?= print_stacktrace=1
export TSAN_OPTIONS  ?= second_deadlock_stack=1:exitcode=66:allocator_may_return_null=1
endif

.PHONY: all build demo test test-net gpu-test torchcomms-test bench accuracy install lint clean
.DEFAULT_GOAL := all

all: build

build:
	@scripts/setup build
	@$(CONFIGURE) >/dev/null
	@cmake --build $(BUILD)

demo: build
	$(BUILD)/bin/examples/train_digits
	$(BUILD)/bin/rcclx perf all_reduce -n 4 -b 8 -e 1M

test:
	@scripts/setup build test
	@$(CONFIGURE) -DRCCLX_WERROR=ON >/dev/null
	@cmake --build $(BUILD) --target all tests
	@grep -E '$(PATTERN)' $(BUILD)/tests.txt | grep -vE '/($(or $(ONE_THREAD),no_such_test))$$' > $(BUILD)/selected.txt || true
	@$(HOST) $(RUN) $(SCRIPTS) @$(BUILD)/selected.txt

test-net:
	@scripts/setup build test
	@$(CONFIGURE) -DRCCLX_WERROR=ON >/dev/null
	@cmake --build $(BUILD) --target all tests
	@RCCLX_TEST_LONG=1 $(HOST) $(RUN) tests/net

gpu-test:
	@scripts/setup build test gpu
	@$(CONFIGURE) -DRCCLX_WERROR=ON >/dev/null
	@cmake --build $(BUILD) --target all tests
	@grep /tests/gpu/ $(BUILD)/tests.txt > $(BUILD)/selected.txt || true
	@$(RUN) @$(BUILD)/selected.txt

torchcomms-test: build
	@cmake --build $(BUILD) --target runner
	@$(RUN) tests/torchcomms/run

bench: build
	@scripts/setup build bench
	bench/run

accuracy: build # the plot needs Python's matplotlib
	@cmake --build $(BUILD) --target bench_codec_error
	$(BUILD)/bin/examples/train_digits -n 1 --gradients $(BUILD)/gradients.bin
	$(BUILD)/bench/codec_error $(BUILD)/gradients.bin >$(BUILD)/accuracy.csv
	python3 bench/accuracy.py $(BUILD)/accuracy.csv

install: build
	@cmake --install $(BUILD) --prefix $(abspath $(PREFIX))

# check/slow holds what needs a build of its own.
LINT ?= check check/slow
lint:
	@scripts/setup build test lint gpu
	@$(CONFIGURE) >/dev/null
	@cmake --build $(BUILD) --target all runner
	@$(RUN) $(LINT)

clean:
	rm -rf build build-*
