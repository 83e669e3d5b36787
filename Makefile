# One word per task, the same for people and for CI.

BIN := .venv/bin
READY := .venv/.ready

# The native parts. Every target below compiles them again if one of their sources is newer.
NATIVE := src/actum/sandbox/jail-x86_64 src/actum/determinism/steady-x86_64.so
# The folder as well: it is newer when a source was removed.
NATIVE_SOURCES := hatch_build.py src/actum/sandbox/jail $(wildcard src/actum/sandbox/jail/*.[ch]) src/actum/determinism/steady.c

.PHONY: setup build demo test test-fast check fmt bench conformance mutants soak

setup: $(READY) $(NATIVE)

$(READY): requirements/dev.txt pyproject.toml scripts/setup scripts/debian-packages scripts/npm-servers tests/servers/package-lock.json
	scripts/setup
	touch $@

$(NATIVE) &: $(NATIVE_SOURCES) | $(READY)
	$(BIN)/python hatch_build.py

# Needs no `make setup`: without one it installs what a user installs, into .demo.
demo: $(if $(wildcard $(READY)),setup)
	test -e $(READY) || scripts/demo-install
	scripts/demo.sh

# Everything that CI runs. One file stays in one process: its tests may share a sandbox.
# Tests that start sandboxes run as the caller and, if the caller is root, as an ordinary user too.
SANDBOXED := tests/conformance tests/integration tests/security tests/strikes
ONLY_ROOT := --ignore tests/integration/test_delegate.py
# The user makes no difference to these: records, doors, HTTP calls, the ledger of runs, evidence,
# what the host's git executes. `make test` runs them once, `make soak` as the ordinary user too.
ONCE := $(addprefix --ignore tests/integration/,fleet rest runs test_adapter_selection.py \
	test_adapter_status.py test_again_and_instead.py test_awaited_output.py test_error_records.py \
	test_filed_behind.py test_forms_of_a_program.py test_golden_outputs.py \
	test_levels_of_disclosure.py test_mcp_example.py test_python_examples.py test_python_page.py \
	test_python_values.py test_replay.py test_result_cache.py test_retention_by_age.py \
	test_run_tool.py test_runs_on_record.py test_same_run.py test_settings_change.py test_wheel.py \
	work/test_evidence_of_work.py work/test_governing_names.py work/test_rules_of_work.py \
	work/test_seed_tests.py work/test_trials.py work/test_undo_with_dependents.py) \
	$(addprefix --ignore tests/security/,evidence/test_archives.py evidence/test_canary.py \
	evidence/test_tampering.py evidence/test_two_syncs.py transactions/test_what_git_executes.py)

# Sandboxes are prepared before they are asked for; what attacks them is asked without that, too.
ATTACKS := $(addprefix tests/security/,environment filesystem isolation network processes resources)
# These choose for themselves whether sandboxes are prepared, or start none.
EITHER_WAY := $(addprefix --ignore tests/security/,filesystem/test_later_mounts.py filesystem/test_prefixes.py \
	filesystem/test_removal.py isolation/test_forked_interpreter.py isolation/test_interpreter_memory.py)

# More workers than processors: many tests wait for a deadline or for another process.
# Long files begin first (tests/conftest.py); xdist would begin those with the most tests.
PYTEST := scripts/pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=30 --durations-min=10

test: check
	scripts/reach.py $(PYTEST)
	ACTUM_TEST_POOL=off scripts/reach.py $(PYTEST) $(EITHER_WAY) $(ATTACKS)
	test "$$(id -u)" != 0 || scripts/as-user $(PYTEST) -p no:cacheprovider $(ONLY_ROOT) $(ONCE) $(SANDBOXED)

test-fast: setup
	$(PYTEST) -q tests/unit

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	scripts/words.py

fmt: setup
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: setup
	$(BIN)/python bench/run.py $(if $(AGAINST),--against $(AGAINST))

conformance: setup
	$(BIN)/python scripts/conformance.py

# Breaks the product on purpose; `make test` runs a part. ONLY="000-11 004-51" picks rows, names or tables.
mutants: setup
	$(BIN)/python scripts/mutants.py $(ONLY)

# The last line is the part of `make test` that runs as an ordinary user, with what is left out there.
soak: setup
	ACTUM_SOAK=1 $(PYTEST) -m soak
	test "$$(id -u)" != 0 || scripts/as-user env ACTUM_SOAK=1 $(PYTEST) -p no:cacheprovider -m soak tests/strikes
	test "$$(id -u)" != 0 || scripts/as-user $(PYTEST) -p no:cacheprovider $(ONLY_ROOT) $(SANDBOXED)

# Compiles the native parts again, also after a change of sandbox/seccomp.py, which calls.h repeats.
build: $(READY)
	$(BIN)/python scripts/jail-calls > src/actum/sandbox/jail/calls.h
	$(BIN)/python hatch_build.py
