# One word per task, the same for people and for CI.

BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test test-fast check fmt bench conformance soak steady jail

setup: $(READY)

$(READY): requirements/dev.txt pyproject.toml scripts/setup scripts/debian-packages scripts/npm-servers tests/servers/package-lock.json
	scripts/setup
	touch $@

demo: $(READY)
	scripts/demo.sh

# Everything that CI runs. One file stays in one process: its tests may share a sandbox.
# What starts sandboxes runs twice: as whoever asks, and if that is root, as an ordinary user too.
SANDBOXED := tests/conformance tests/integration tests/security tests/strikes
ONLY_ROOT := --ignore tests/integration/test_delegate.py

# Sandboxes are prepared before they are asked for; what attacks them is asked without that, too.
ATTACKS := $(addprefix tests/security/,environment filesystem isolation network processes resources)

# A test that failed beside a neighbour is asked once more, alone. What fails twice, fails.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile
AGAIN := $(BIN)/pytest --last-failed --last-failed-no-failures none

test: check
	scripts/reach.py sh -c '$(PYTEST) || $(AGAIN)'
	scripts/reach.py sh -c 'export ACTUM_TEST_POOL=off; $(PYTEST) $(ATTACKS) || $(AGAIN) $(ATTACKS)'
	test "$$(id -u)" != 0 || scripts/as-user sh -c ' \
	    $(PYTEST) -o cache_dir=$$HOME/cache $(ONLY_ROOT) $(SANDBOXED) || \
	    $(AGAIN) -o cache_dir=$$HOME/cache $(ONLY_ROOT) $(SANDBOXED)'

test-fast: $(READY)
	$(BIN)/pytest tests/unit -q

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(READY)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(READY)
	$(BIN)/python bench/run.py

conformance: $(READY)
	$(BIN)/python scripts/conformance.py

soak: $(READY)
	ACTUM_SOAK=1 $(BIN)/pytest -m soak
	test "$$(id -u)" != 0 || scripts/as-user sh -c ' \
	    ACTUM_SOAK=1 $(PYTEST) -m soak -o cache_dir=$$HOME/cache tests/strikes'

# What tools at determinism level D2 are preloaded with. The result is kept beside its source.
STEADY_FLAGS=-O2 -fPIC -shared -nostdlib -ffreestanding -fvisibility=hidden -fno-stack-protector -fno-builtin -fno-asynchronous-unwind-tables -fcf-protection=none -Wall -Wextra -s -Wl,--build-id=none,-z,norelro,-z,noseparate-code,--hash-style=gnu
steady:
	gcc $(STEADY_FLAGS) -o src/actum/engine/steady-x86_64.so src/actum/engine/steady.c
	chmod 644 src/actum/engine/steady-x86_64.so

# The init of every sandbox. The result is kept beside its sources.
JAIL_FLAGS=-std=c11 -Os -static -no-pie -fstack-protector-strong -fno-asynchronous-unwind-tables -fcf-protection=none -Wall -Wextra -Werror -s -Wl,--build-id=none,-z,noexecstack,-z,relro,-z,now
JAIL=src/actum/sandbox/jail
jail:
	$(BIN)/python scripts/jail-calls > $(JAIL)/calls.h
	musl-gcc $(JAIL_FLAGS) -o src/actum/sandbox/jail-x86_64 $(JAIL)/*.c
	chmod 644 src/actum/sandbox/jail-x86_64
