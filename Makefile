build: ; @cmake -S . -B build -G Ninja >/dev/null && cmake --build build
.PHONY: build
