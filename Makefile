# One word per task, the same for people and for CI.

BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup demo test test-fast check fmt bench conformance soak

setup: $(READY)

$(READY): requirements/dev.txt pyproject.toml scripts/setup scripts/debian-packages
	scripts/setup
	touch $@

demo: $(READY)
	scripts/demo.sh

# Everything that CI runs. One file stays in one process: its tests may share a sandbox.
# What starts sandboxes runs twice: as whoever asks, and if that is root, as an ordinary user too.
SANDBOXED := tests/conformance tests/integration tests/security
ONLY_ROOT := --ignore tests/integration/test_delegate.py

test: check
	scripts/reach.py $(BIN)/pytest -n 2 --dist loadfile
	test "$$(id -u)" != 0 || scripts/as-user $(BIN)/pytest -n 2 --dist loadfile \
	    -p no:cacheprovider $(ONLY_ROOT) $(SANDBOXED)

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
