# Two commands do everything on a machine that has Python, pip and make: `make demo` and `make test`.

PYTHON ?= python3
BIN := .venv/bin
export OMP_WAIT_POLICY ?= PASSIVE
# Many processes are started here. They begin sooner where Python keeps what it has compiled.
unexport PYTHONDONTWRITEBYTECODE
ifneq ($(wildcard ../shared/data),)
export BIBS_DATA ?= ../shared/data
endif

.PHONY: demo test test-all coverage fuzz fuzz-bytes check format docs stranger bench clean

demo: .venv/ready
	$(BIN)/python examples/demo.py

# A file's tests stay in one process, so that what they share is made once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

# All but the tests marked `slow`: no browser, no Java, no whole processes, no real data read from end to end.
test: .venv/ready
	$(PYTEST) -m "not slow"

test-all: .venv/ready
	$(PYTEST)

# All tests, with the lines of the core that they run counted.
CORE := search constraints lengths baselines methods checks
coverage: .venv/ready
	$(PYTEST) $(CORE:%=--cov=bibs.%) --cov-report=term --cov-fail-under=$(FLOOR)
FLOOR ?= 97

# Files from strangers, for longer than the tests look.
fuzz: .venv/ready
	BIBS_FUZZ=2000 OMP_NUM_THREADS=1 timeout 600 $(BIN)/python -m pytest -n 2 tests/test_strangers_files.py
	$(MAKE) fuzz-bytes FUZZ_SECONDS=300

# The same files and the template language by atheris, where there is one for this Python.
FUZZ_SECONDS ?= 30
fuzz-bytes: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[fuzz]"
	if $(BIN)/python -c "import atheris" 2>/dev/null; then \
	  OMP_NUM_THREADS=1 $(BIN)/python fuzz/fuzz.py any --seconds $(FUZZ_SECONDS); \
	else echo "fuzz-bytes: left out, there is no atheris for this Python"; fi

check: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

stranger: .venv/ready
	$(BIN)/python benchmarks/stranger.py

bench: .venv/ready
	$(BIN)/python benchmarks/run.py

.venv/ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .fuzz .coverage site
