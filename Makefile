SHELL := bash
.DEFAULT_GOAL := help

# Development tools, at the versions of their own module; go caches the builds.
TOOL := go tool -modfile=$(CURDIR)/internal/devtest/tools/go.mod

# The packages to test, and more flags for go test. It begins with those that
# take longest, and wait most, so that others run beside them.
PKGS      ?= ./tests ./projector ./...
TESTFLAGS ?=
# How long the tests of a package may take; those of ./tests take seven minutes
# on two cores that do nothing else, and go's own bound is ten.
TIMEOUT   ?= 30m
# How long each fuzz target runs.
FUZZTIME  ?= 5s
# How many histories a run folds without I/O, and through real tables.
HISTORIES       ?= 5000
TABLE_HISTORIES ?= 2000
# How many databases are dumped and restored in the night, several times each.
JOURNEYS ?= 200
# How long instances come and go in the night, and for how long no partition may
# be without an owner meanwhile: a machine that does much else needs more.
CHURN   ?= 60s
UNOWNED ?= 5s
# How long make soak takes, with how many clients and events per second.
SOAK    ?= 10m
CLIENTS ?= 5000
RATE    ?= 500
# The tests that do.
FOLDING := ^(TestHistories|TestOrderDoesNotMatter|TestBatchesCannotBeObserved|TestUpdatesCarryEverything)$$
TABLES  := ^(TestTablesAgreeWithTheModel|TestConcurrentPublishers)$$

.PHONY: help
help: ## list what make can do
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/badged
	go build -trimpath -o bin/badged ./cmd/badged

.PHONY: test
test: needs web ## run every test of the product with the race detector (PKGS=./events TESTFLAGS='-run X -count 20')
	$(TOOL) gotestsum --format pkgname-and-test-fails -- -race -timeout $(TIMEOUT) $(TESTFLAGS) $(PKGS)
ifneq ($(filter ./...,$(PKGS)),)
	go test -count=1 -run '$(FOLDING)' ./projector -rapid.checks=$(HISTORIES)
endif

.PHONY: web
web: needs ## check, test and rebuild what is written in TypeScript
	@.ci/web

.PHONY: needs
needs: ## install the programs that tests need, where missing
	@.ci/needs

.PHONY: docs
docs: ## write docs/reference anew from the code, and the help in docs/cli.md
	go test -count=1 -run '^TestReferenceIsUpToDate$$' ./internal/app -update
	go test -count=1 -run '^TestHelpInDocs$$' ./internal/cli -update

.PHONY: cover
cover: needs ## run every test of the product and write coverage.html
	$(TOOL) gotestsum --format pkgname-and-test-fails -- -coverpkg=./... -coverprofile=coverage.out -timeout $(TIMEOUT) $(TESTFLAGS) $(PKGS)
	go tool cover -html=coverage.out -o coverage.html
	go tool cover -func=coverage.out | tail -n 1

.PHONY: fuzz
fuzz: needs ## run each fuzz target for FUZZTIME
	@.ci/fuzz $(FUZZTIME)

.PHONY: mutate
mutate: needs ## break badged in listed ways; a test must fail for each (MUTANT='regular expression')
	go run ./internal/devtest/mutation -only '$(MUTANT)'

.PHONY: nightly
nightly: HISTORIES := 1000000
nightly: needs ## fold a million histories, thousands through real tables, and let instances come and go
	go test -count=1 -timeout 3h -v -run '^TestHistories$$' ./projector -rapid.checks=$(HISTORIES)
	go test -count=1 -timeout 3h -v -run '$(TABLES)' ./projector -rapid.checks=$(TABLE_HISTORIES)
	go test -count=1 -timeout 3h -v -run '^TestRepairKeepsTheOrder$$' ./projector -journeys=$(JOURNEYS)
	go test -count=1 -timeout 3h -v -run '^TestOwnershipChurn$$' ./tests -churn=$(CHURN) -unowned=$(UNOWNED)
	$(MAKE) mutate

.PHONY: soak
soak: needs ## disturb CLIENTS connections and RATE events a second for SOAK, and see that all end right
	go test -count=1 -timeout 24h -v -run '^TestSoak$$' ./tests -plain -soak=$(SOAK) -soak-clients=$(CLIENTS) -soak-rate=$(RATE)

.PHONY: bench
bench: needs ## compare with other ways to count, see docs/benchmarks.md (BENCH='-scenario sustained -rounds 3')
	go -C tests/bench build -o $(CURDIR)/bin/bench .
	bin/bench -out docs/benchmarks $(value BENCH)

.PHONY: test-bench
test-bench: needs ## run the tests of the benchmarks with the race detector
	cd tests/bench && $(TOOL) gotestsum --format pkgname-and-test-fails -- -race -timeout $(TIMEOUT) $(TESTFLAGS) ./...

.PHONY: lint
lint: ## run the linters
	$(TOOL) golangci-lint run ./...
	cd tests/bench && $(TOOL) golangci-lint run ./...

.PHONY: fmt
fmt: ## format the code
	$(TOOL) golangci-lint fmt

# 75 says that nothing could be checked, which .ci/vuln has said loudly.
.PHONY: vuln
vuln: ## look for known vulnerabilities in what is called (VULNDB=URL of a mirror)
	@.ci/vuln || test $$? -eq 75

.PHONY: clean
clean: ## remove what was built
	rm -rf bin coverage.out coverage.html
