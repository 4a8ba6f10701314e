# All targets require root on a Debian machine with Go, git and make, unless noted. Each target
# installs missing Debian packages.
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

.PHONY: all build setup demo picture drawings test unit e2e reach quiet e2e-vm e2e-kube e2e-kube-ci e2e-cni e2e-mcs e2e-gitops e2e-ui release verify-release kube-up kube-down image chaos lint generate fuzz bench clean help

all: build ## the same as build

build: ## bin/hawser and bin/hawser-agent, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/hawser ./cmd/hawser-agent

setup: ## install the Debian packages that the lab and the tests use
	@hack/setup.sh

demo: setup build ## the tour of the README on this machine: a lab comes up, is used and goes away
	@hack/demo.sh

picture: setup build ## docs/demo.svg: make demo, recorded; on an idle machine
	$(GO) run ./hack/demosvg

drawings: ## docs/drawings/*.svg from the texts beside them
	$(GO) test ./view/swimlane -run '^TestDrawings$$' -update

test: setup unit e2e ## unit and e2e

# Each package once: with -race if its code is concurrent. Both halves run even if one fails.
unit: ## unit tests, goldens, fuzz seeds; what fails runs once more, alone, and is listed
	@packages=$$($(GO) list ./... | grep -v /e2e); failed=0; \
	hack/test.sh $$(hack/packages.sh sequential $$packages) || failed=1; \
	hack/test.sh -race $$(hack/packages.sh concurrent $$packages) || failed=1; exit $$failed

# Packages run one after the other, because some measure time. The programs under test are built
# without -race.
e2e: build ## scenarios over the built binaries with real packets, as root
	@hack/test.sh -count=1 -p 1 -parallel 3 -timeout 40m ./e2e/...

e2e-vm: setup ## kernel WireGuard, ESP and VRF in QEMU; one job: VM='-run Tour'
	@hack/setup-vm.sh >/dev/null
	REQUIRE_KERNEL=1 $(GO) test -tags vm -count=1 -timeout 120m -v ./e2e/vm $(VM)

kube-up: setup ## two real Kubernetes clusters, contexts c1 and c2; flags of kubelab up: KUBE='--flat'
	$(GO) build -o bin/kubelab ./e2e/kube/lab
	bin/kubelab up $(KUBE)

kube-down: ## remove the clusters of kube-up
	$(GO) build -o bin/kubelab ./e2e/kube/lab
	bin/kubelab down

# Tests that need a real API server but no nodes.
KUBE_API := ./e2e/kube/apply ./e2e/kube/facts ./e2e/kube/lab ./e2e/kube/objects ./e2e/kube/tree
e2e-kube: build ## tests on real Kubernetes clusters and API servers; one test: KUBE='-run Tour'
	@hack/setup-kube.sh >/dev/null
	$(if $(KUBE),,REQUIRE_KERNEL=1 $(GO) test -tags kube -count=1 -p 1 -timeout 20m $(KUBE_API))
	REQUIRE_KERNEL=1 $(GO) test -tags kube -count=1 -timeout 60m -v ./e2e/kube $(KUBE)

# The tests of CI: the main features of users. Run the others when you change what they test.
CI_KUBE ?= ^Test(Benchmark|ClusterDNS|DeclaredBecomesDynamic|DiscoveredEndpoints|GatewayBySelector|Gather|Guide|MCS|Metrics|NamespaceDeleted|Page|PageInCluster|PreflightPods|Reach|Tour|Uninstall)$$
e2e-kube-ci: build ## the part of e2e-kube that CI has time for
	@hack/setup-kube.sh >/dev/null
	@REQUIRE_KERNEL=1 hack/test.sh -tags=kube -count=1 -p 1 -timeout 20m $(KUBE_API)
	@REQUIRE_KERNEL=1 FORMAT=testname hack/test.sh -tags=kube -count=1 -timeout 40m -run '$(CI_KUBE)' ./e2e/kube

# Tests with other CNIs than the lab's bridge; docs/compatibility.md has the results.
# SETTINGS=NAME=VALUE,... PROXY=iptables|network
E2E_CNI ?= ^Test(ClusterDNS|Failover|FixedAddress|HeadlessDynamic|HeadlessDynamicFlat|MCS|MCSSamePrefixes|NetworkPolicy|NodeRestart|Policy|Reach|Rebuilt|SecondSubnet|Tour)$$
e2e-cni: build ## e2e-kube on CNI=flannel|kube-ovn|cilium|calico-like|no-podcidrs (SETTINGS, PROXY)
	@hack/setup-kube.sh >/dev/null
	@hack/setup-cni.sh $(or $(CNI),$(error CNI= one of those that kubelab up --help tells)) >/dev/null
	REQUIRE_KERNEL=1 HAWSER_KUBE_CNI=$(CNI) HAWSER_KUBE_CNI_SETTINGS=$(SETTINGS) HAWSER_KUBE_PROXY=$(PROXY) \
		$(GO) test -json -tags kube -count=1 -timeout 60m ./e2e/kube $(or $(KUBE),-run '$(E2E_CNI)') | \
		$(GO) run ./e2e/kube/cni/record --network '$(CNI)' --settings '$(SETTINGS)' --proxy '$(or $(PROXY),nftables)' --commit '$(VERSION)'

e2e-mcs: build ## conformance specs of the MCS API (docs/conformance.md)
	@hack/setup-kube.sh >/dev/null
	REQUIRE_KERNEL=1 $(GO) test -tags kube -count=1 -timeout 90m -v ./e2e/kube -run '^TestMCS'

# Requires no root.
e2e-gitops: ## Flux's and Argo CD's controllers on what is published; one: GITOPS='-run Argo'
	@for of in flux argo; do hack/setup-gitops.sh $$of >/dev/null || exit 1; done
	$(GO) test -tags kube -count=1 -timeout 60m -v ./e2e/kube/gitops $(GITOPS)

# Writes screenshots of all views to bin/ui-shots. UI_SLOW=3 triples the timeouts.
e2e-ui: build ## the page of hawser ui in a browser, from files and from a lab; one: UI='-run Lab'
	@hack/setup-ui.sh >/dev/null
	cd e2e/ui && AXE=$$(../../hack/setup-ui.sh) $(GO) test -count=1 -timeout 10m -v . $(UI)

ARCHES ?= $(if $(IPSEC),$(shell $(GO) env GOARCH),amd64 arm64)
image: ## dist/hawser-agent-<version>-<arch>.tar without Docker; with strongSwan: IPSEC=1
	@VERSION=$(VERSION) IPSEC=$(IPSEC) SIGN=$(SIGN) hack/image.sh $(ARCHES)

RELEASE = $(if $(filter file,$(origin VERSION)),$(error VERSION=v0.2.0, for one, says which),$(VERSION))
release: ## dist/VERSION: programs, packages, images, charts; VERSION=v0.2.0 SIGN=cosign.key
	@hack/release.sh $(RELEASE) dist/$(RELEASE)

verify-release: ## dist/VERSION checked as who installs it would; VERSION=v0.2.0
	@hack/verify-release.sh $(RELEASE) dist/$(RELEASE)

# Compares each packet with the rules of the documentation.
SEED ?= 1
reach: setup ## 20,000 packets through the rules of 200 topologies; other ones: SEED=2
	SEED=$(SEED) TOPOLOGIES=200 PACKETS=20000 $(GO) test -count=1 -timeout 20m -v ./e2e/reach

quiet: setup build ## what planned work, changes and deaths lose; on an idle machine
	QUIET=1 $(GO) test -count=1 -timeout 40m -v ./e2e -run TestQuiet
	QUIET=1 $(GO) test -count=1 -timeout 40m -v -parallel 1 ./nodeagent/driver/drivertest -run TestConformance

# SEED repeats a run, and ROUND one round of it. FAMILY=4|6|dual. RECORD stores the observations of
# the agents of NODES.
FAULTS ?= 200
ROUND  ?= 0
SLOW   ?= 1
SHAPE  ?= mesh
FAMILY ?= 4
chaos: setup build ## FAULTS seeded faults under traffic; SEED, ROUND, SLOW, SHAPE=mesh|hub|links, FAMILY
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./e2e/chaos
	bin/chaos -seed $(SEED) -faults $(FAULTS) -round $(ROUND) -slow $(SLOW) -shape $(SHAPE) -family $(FAMILY) \
		$(if $(RECORD),-record $(RECORD)) $(if $(NODES),-nodes $(NODES))

lint: ## formatting, vet, staticcheck, import arrows, generated files
	@hack/lint.sh

generate: ## JSON Schema, reference.md, commands.md, map.svg and drawings of docs, and the goldens
	$(GO) test ./schema/internal/gen -run '^TestCurrent$$' -update
	$(GO) test ./render ./render/plan ./schema/load ./schema/allocate ./nodeagent/projection ./view/clustermap -update
	$(GO) test ./view/matrix ./view/swimlane -update
	$(GO) test ./internal/cli/root -run "^(TestMapOfTheReadme|TestCommandReference)$$" -update
	$(GO) test ./cmd/hawser-agent -run "^TestCommandReference$$" -update

# Fails if a target is slow: hack/fuzz.sh.
fuzz: ## thirty seconds for each fuzz target, and tests of random inputs ten times as long
	@hack/fuzz.sh 30s
	ROUNDS=10 $(GO) test -count=1 -timeout 60m $$(grep -rl --include=*_test.go 'randtest\.' . | xargs -n 1 dirname | sort -u)

bench: setup build ## figures of docs/benchmarks.md; BENCH=stall for one section
	@hack/bench.sh $(BENCH)

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):[^#]*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

clean: ## remove bin and dist
	rm -rf bin dist
