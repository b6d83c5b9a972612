# What a person or CI runs. Needs Python 3.11 or newer, pip, make and git; all else goes into .venv.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
# One run of everything must not hang: each test has a limit of its own (pyproject.toml), this is for the whole.
PYTEST := $(BIN)/python -m pytest
# The lake's side alone is a distribution of its own, made of the same sources.
LAKE   := packaging/lakeindex
PATHS  := airflow_provider_index spark_apps dags_examples tests benchmarks docs
FOUND  := $(wildcard $(PATHS))
# Each worker has a Spark of its own, which leaves a core idle half of the time.
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help venv quickstart demo unit test heavy turn check format docs bench bench-full tpcds model faults hostile races clusters differential walks joins postgresql celery mutants pages kills golden pairs matrix s3a hadoop connectors histories dist clean

help:  ## This list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/  make \1|\2/' | column -t -s '|' 2>/dev/null \
	  || grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST)

venv: $(STAMP)  ## Set up .venv with everything; quick when it is there

$(STAMP): setup.cfg setup.py pyproject.toml packaging/lakeindex/setup.cfg constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; $(PYTHON) is $$($(PYTHON) -V 2>&1). Nothing was set up. Name another one: make venv PYTHON=python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Setting up $(VENV) …"
	@# An install of before lakeindex was apart would, when it is replaced, take that one's files with it.
	@$(BIN)/python -m pip uninstall --quiet --yes airflow-provider-index lakeindex 2>/dev/null
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  --editable $(LAKE) --editable '.[dev]'
	@$(BIN)/python -m tests.spark.archive >$(VENV)/archive.log 2>&1 || \
	  echo "Spark will start more slowly, without an archive of its classes: see $(VENV)/archive.log"
	@touch $(STAMP)

quickstart: venv  ## Five million rows, an index, one query before and after; no Airflow: under a minute
	$(BIN)/python -m spark_apps quickstart $(QUICKSTART_ARGS)

demo: venv  ## The whole main job on real flights, on a real Airflow
	$(BIN)/python -m dags_examples.demo $(DEMO_ARGS)

test: venv  ## All tests but the heavy ones, of long ones those of this commit's turn: about 9 minutes
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not heavy and not connectors" $(TEST_ARGS)

unit: venv  ## The tests that need neither Spark nor Airflow nor a server: 90 s
	$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder --unit $(TEST_ARGS)

heavy: venv  ## The tests that take minutes: all example DAGs by a real scheduler, clusters, many at once; about 45 minutes
	$(PYTEST) -m heavy $(TEST_ARGS)

turn: venv  ## An eighth of the heavy tests, another one by each commit (TURN=0 to 7): about 6 minutes; CI gives it what it has left
	$(PYTEST) -m heavy --in-turns $(TEST_ARGS)

check: venv  ## Formatter, linter, docstrings, documents, types, import contracts
	$(BIN)/ruff format --check $(FOUND)
	$(BIN)/ruff check $(FOUND)
	$(BIN)/python -m tests.docstrings
	$(BIN)/python -m tests.documents
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: venv  ## Bring the code into its format
	$(BIN)/ruff format $(FOUND)
	$(BIN)/ruff check --fix $(FOUND)

# Without the theme's word on its own future.
docs: venv  ## The documents as a site below build/site, with a search and a reference that need no network: 10 s
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict --config-file docs/mkdocs/mkdocs.yml
	@echo "Open build/site/index.html"

bench: venv  ## Measure against other engines, in little, 20 minutes; writes benchmarks/RESULTS.md with pictures
	$(BIN)/python -m benchmarks --page benchmarks/RESULTS.md $(BENCH_ARGS)

bench-full: venv  ## The same at the sizes of the targets: hours, and some 50 GB of disk
	$(BIN)/python -m benchmarks --full --page benchmarks/RESULTS.md $(BENCH_ARGS)

tpcds: venv  ## The queries of TPC-DS with indexes and without, by packages in an environment of their own
	$(BIN)/python -m benchmarks --only tpcds

model: venv  ## The timeline's model with 10,000 histories: about 10 minutes
	HISTORIES=10000 $(PYTEST) tests/timeline/test_model.py --timeout=7200 $(TEST_ARGS)

faults: venv  ## Every call to the store, failed in every way; the power gone at every call to the disk: about 20 minutes
	FAULTS=all $(PYTEST) tests/faults --timeout=3600 $(TEST_ARGS)

golden: venv  ## Tables that others wrote, laid into a folder (FROM), read by every kind of index as Spark or their connector reads them: minutes
	$(BIN)/python -m tests.golden "$(FROM)"

hostile: venv  ## Every field of a table's log with every bad value, read by every reader (SEED, MINUTES): about 15 minutes
	HOSTILE=all $(PYTEST) tests/hostile --timeout=36000 $(TEST_ARGS)

races: venv  ## 8 processes x 200 commits on one table, on local disk and on S3: about 5 minutes
	RACES=full $(PYTEST) tests/races --timeout=3600 $(TEST_ARGS)

s3a: venv  ## Random histories of tables whose rows Spark keeps on S3 (HISTORIES, SEEDS, MINUTES); fetches 180 MB once
	HISTORIES=$${HISTORIES:-40} $(BIN)/python -m tests.s3a

hadoop: venv  ## Tables on hdfs:// and viewfs://, by Hadoop's own Java (HISTORIES, SEEDS, RACERS): about 5 minutes
	HISTORIES=$${HISTORIES:-8} $(BIN)/python -m tests.hadoop

histories: venv  ## 200 random histories of Delta, Iceberg and Hudi tables each, by the connectors of this Spark, with indexes and without (HISTORIES, FORMATS, MINUTES, SEEDS); goes on where it stopped
	$(BIN)/python -m tests.connectors

connectors: venv  ## Tables of other formats, by their own connectors of Spark; Spark fetches their jars once: about 2 minutes
	$(PYTEST) tests/connectors -m connectors $(TEST_ARGS)

clusters: venv  ## Tests of tables and indexes once more, over a Spark Connect server: about 10 minutes
	TESTS_OVER=connect $(PYTEST) tests/spark_apps/test_table.py tests/spark_apps/actions tests/spark_apps/indexes $(TEST_ARGS)

differential: venv  ## 1,000 random histories against other engines (HISTORIES, MINUTES, SEEDS, PROCESSES); an hour at most, and goes on where it stopped
	$(BIN)/python -m tests.differential

walks: venv  ## 1,000 random walks over all features, each step compared with a model (WALKS, MINUTES, SEEDS, PROCESSES); goes on where it stopped
	$(BIN)/python -m tests.differential walks

joins: venv  ## 2,000 drawn joins with keys of outer joins, against Spark alone (CASES, MINUTES, SEEDS, PROCESSES); an hour at most, and goes on where it stopped
	$(BIN)/python -m tests.joins

postgresql: venv  ## The tests on a whole Airflow, heavy ones too, whose state is in a real PostgreSQL: about 20 minutes
	DATABASE=postgresql $(PYTEST) tests/airflow $(TEST_ARGS)

celery: venv  ## The same beside Celery: a worker, a real Redis (Debian's), a real PostgreSQL; then all that may happen to a worker: about 30 minutes
	DATABASE=postgresql EXECUTOR=celery $(PYTEST) tests/airflow tests/kills/test_celery.py $(TEST_ARGS)

kills: venv  ## Every kind of end, met by every kind of work, on a real scheduler (CELLS, MINUTES); four hours at most, and goes on where it stopped
	$(BIN)/python -m tests.kills

pairs: venv  ## Each action beside each other, at their commits (SHAPES, PAIRS, TRIPLES, DEEP, MINUTES); an hour at most, and goes on where it stopped
	$(BIN)/python -m tests.pairs

mutants: venv  ## Faults planted one at a time, and which tests find each (ONLY, MINUTES); four hours at most, and goes on where it stopped
	$(BIN)/python -m tests.mutants

matrix: venv  ## The tests on each version of Spark, Airflow and Python (ONLY, SUITES, TURN=all): about an hour for each of Spark
	$(BIN)/python -m tests.matrix

dist: venv  ## Wheels and source distributions of both in dist/, to be published; PROJECT_URL=https://… says where the project stands
	@rm -rf build dist *.egg-info $(LAKE)/build $(LAKE)/*.egg-info
	@for folder in $(LAKE) .; do (cd $$folder && "$(CURDIR)/$(BIN)/python" -c "from setuptools import build_meta as build; \
	  build.build_wheel('$(CURDIR)/dist'); build.build_sdist('$(CURDIR)/dist')" >/dev/null) || exit 1; done
	@ls dist

pages: venv  ## The page in a real browser; needs Chromium and its driver: about a minute. SHOTS=folder keeps the pictures
	@command -v chromedriver >/dev/null || { echo "Chromium's driver is not on the PATH. On Debian: apt-get install chromium chromium-driver. Nothing was run." >&2; exit 1; }
	$(PYTEST) tests/pages/browser.py $(TEST_ARGS)

clean:  ## Remove caches, builds and what runs leave (.bench: data sets and other engines; .matrix: environments); .venv stays
	rm -rf build dist *.egg-info $(LAKE)/build $(LAKE)/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse \
	  metastore_db derby.log .celery .demo .differential .joins .kills .pairs .bench .matrix .s3a
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
