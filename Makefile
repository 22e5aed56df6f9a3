# SPDX-License-Identifier: MIT
#
# Short names for what people do here; the build itself is Meson's. `make help` lists them.

BUILD  ?= build
PREFIX ?= /usr/local
SEED   ?=
MESON_OPTIONS ?=

# A newer Meson that scripts/install-deps may have put there.
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export SEED

.PHONY: help build demo test test-fast bench format lint sanitize soak fuzz mutants models docs install
.PHONY: deb deb-test clean

help:
	@sed -n 's/^## //p' Makefile

## make build       library, program, examples, Python package, in build/ (build/cudalink); no tests
build:
	scripts/configure $(BUILD) $(MESON_OPTIONS)
	ninja -C $(BUILD) product

## make demo        installs what it needs, builds, shows one process sending to three others
demo:
	scripts/install-deps demo
	$(MAKE) build
	$(BUILD)/cudalink demo

## make test        installs what it needs, builds, runs every test (SEED=N repeats an order)
test: test-build
	scripts/run-tests $(BUILD)

## make test-fast   the same without the slow tests, under two minutes
test-fast: test-build
	scripts/run-tests $(BUILD) --suite fast

.PHONY: test-build
test-build:
	scripts/install-deps test
	scripts/configure $(BUILD) -Dtests=enabled -Dtools=enabled $(MESON_OPTIONS)
	ninja -C $(BUILD) all meson-test-prereq

## make test-torch  the torch tests with today's torch from PyPI: 5.4 GB for the while (VENV=folder keeps it)
.PHONY: test-torch
test-torch: test-build
	scripts/test-torch $(BUILD)

## make bench       measures, and prints target, value, floor and verdict
bench: build
	$(BUILD)/cudalink bench --check

## make bench-gpu   on a GPU: measures beside raw driver calls (results in build-gpu/results)
.PHONY: bench-gpu
bench-gpu:
	GPU_PARTS=measure scripts/gpu-run full

## make format      rewrites the sources in the project's style
format:
	scripts/sources | xargs clang-format -i

## make lint        clang-format, clang-tidy, cppcheck; changes nothing
lint:
	scripts/install-deps lint
	scripts/configure $(BUILD) -Dtests=enabled -Dtools=enabled $(MESON_OPTIONS)
	scripts/lint $(BUILD)

## make sanitize    tests of core and fake GPU under address and undefined, then thread sanitizer
sanitize:
	scripts/install-deps test
	status=0; scripts/sanitize address,undefined gpu || status=1; \
	  scripts/sanitize thread gpu || status=1; exit $$status

## make soak        100,000 random kills and other long runs
## make fuzz        feeds damaged bytes to everything that reads a peer's
## make mutants     breaks the code on purpose; the tests must notice
soak: test-build
	scripts/soak $(BUILD)

mutants: test-build
	scripts/mutants $(BUILD) --named
	scripts/mutants $(BUILD)

fuzz:
	scripts/install-deps test
	scripts/fuzz

## make models      every case of the protocol models (an hour), 10,000 recorded runs of the code
models: test-build
	scripts/check-models
	scripts/replay-traces --record $(BUILD)/tests/model/record 10000

## make docs        the manual as a site, in build/site (index.html)
docs:
	scripts/install-deps docs
	scripts/site $(BUILD)

## make install     library, headers, pkg-config and CMake files, manual, program; PREFIX=/usr/local
install:
	scripts/configure $(BUILD) --prefix=$(PREFIX) $(MESON_OPTIONS)
	ninja -C $(BUILD) product
	meson install -C $(BUILD) --no-rebuild

## make wheel       Python wheels, in build/wheel, tagged and audited; PYTHONS="python3 python3.13t", needs PyPI
.PHONY: wheel
PYTHONS ?= python3
wheel:
	scripts/install-deps wheel
	scripts/build-wheels $(BUILD)/wheel $(PYTHONS)

## make deb         Debian packages, in build/deb
deb:
	scripts/install-deps deb
	scripts/build-deb $(BUILD)/deb

## make deb-test    installs, uses and removes them in a fresh Debian; as root, takes minutes
deb-test: deb
	scripts/install-deps deb_test
	scripts/test-deb $(BUILD)/deb

## make release-test  RELEASE=jammy MIRROR=URL: demo and test-fast on a fresh one; as root, takes a quarter of an hour
.PHONY: release-test
release-test:
	scripts/test-release $(RELEASE) $(MIRROR)

clean:
	rm -rf $(BUILD) build-*
