SHELL := bash
.DEFAULT_GOAL := help

# Development tools, at the versions that their own module pins. Go caches the
# builds.
TOOL := go tool -modfile=$(CURDIR)/internal/devtest/tools/go.mod

# once NAME,VALUE is the value of a variable that is computed when it is first used.
once = $(eval $1 := $2)$($1)

# The packages to test, and more flags for go test. The slowest packages come
# first: they mostly wait, and the others run meanwhile.
PKGS      ?= ./tests ./projector ./internal/server/app ./pubsub ./...
TESTFLAGS ?=
# Of these, the suites on the built program, and the others. make test leaves out SERVERS,
# whose tests need a server that takes minutes to build, or make servers again and again,
# unless they are named.
PROGRAM   := $(filter ./tests ./...,$(PKGS))
SERVERS    = $(if $(filter ./...,$(PKGS)),$(if $(filter long,$(LEAVE)),|internal/(partition/bucket|pg/embedpg|devtest/pgtest)))
PACKAGE    = $(call once,PACKAGE,$(shell go list $(PKGS) | grep -vE '/badged/(tests$(SERVERS))$$'))
# RACE=1 tests packages with the race detector, as make nightly does.
RACE      ?=
# The suites on the built program that make races runs.
RACES     ?= .
# named TEST is a regular expression of the tests in .ci/long whose folder passes a test of awk.
named      = "$$(awk '/^[^\#]/ && $$1 $1 { gsub("[^/]+", "^&$$", $$2); print $$2 }' .ci/long | paste -sd '|')"
# What make test leaves out: long, web, or shards, a selection on three shards. CI leaves
# out all three: web is a step of its own, and make nightly runs all tests on three shards.
LEAVE     ?= $(if $(TESTFLAGS),,long shards)
SKIP       = $(if $(filter long,$(LEAVE)),-skip $(call named,== "tests"))
# Time limit for the tests of a package. On a busy machine ./tests takes longer
# than go's default of ten minutes.
TIMEOUT   ?= 60m
# How many parallel tests of a package run at once, and how many packages, beside those of
# the program: most tests wait. With a package more at once, two processors were not faster.
PARALLEL  ?= 4
PACKAGES  ?= $(shell getconf _NPROCESSORS_ONLN)
# Duration of each fuzz target, 1m in make nightly. Tests run what fuzzing has found.
FUZZTIME  ?= 5s
# Histories that each property test draws in make properties: 300 in make nightly.
# In make test each draws 5, with LEAVE= 10: a fifth of RAPID_CHECKS with -short.
PROPERTIES ?= 100
# Histories to fold without I/O in make test.
HISTORIES ?= 1000
# Which checks make nightly runs, by a regular expression of their names.
NIGHTLY ?= .
# How often make test-brokers kills processes, leaders and Postgres, 20 in make nightly.
KILLS   ?= 3
# How often each test of make test-failover takes the primary away.
FAILOVERS ?= 20
# How long make test-chaos disturbs everything, and what it draws from; 0 draws that too.
CHAOS ?= 2m
SEED  ?= 0
# Duration of make soak, its clients and its events per second.
SOAK    ?= 10m
CLIENTS ?= 5000
RATE    ?= 500
# The tests that fold histories without I/O.
FOLDING := ^(TestHistories|TestOrderDoesNotMatter|TestBatchesCannotBeObserved|TestUpdatesCarryEverything|TestRoomsAgreeWithTheModel|TestRoomsEqualDeliveries|TestRoomBatchesCannotBeObserved|TestOrderInRoomsDoesNotMatter|TestUpdatesOfRoomsCarryEverything)$$
# The black-box tests that LEAVE= also runs on three shards. make nightly runs all.
SHARDED := ^(TestFromPublishToBadge|TestReadAheadOfARoom|TestRebuildOfAUser|TestWebhooksFollowBadges)$$
# The property tests that take more than a second, and the suite of watermill.
SLOW    := ^(TestTablesAgreeWithTheModel|TestRoomTablesAgreeWithAReplay|TestConcurrentPublishers|TestConcurrentPublishersOfRooms|TestReplayAgrees.*|TestExplainThePast|TestHistorySketch|TestRebuildFindsNothing.*|TestSweepsAreComplete.*|TestSparseRoom.*|TestDenseConversations.*|TestFirstUnreadExists|TestMailboxConverges|TestAccountsConverge|TestPublishSQL.*|TestWatermillConformance)$$

# Programs with the race detector would wait a second before they exit.
export GORACE := atexit_sleep_ms=0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/badged
	go build -trimpath -o bin/badged ./cmd/badged

# web/dist is embedded, so it is built first. The program is tested beside the packages.
# With more at once, a machine of two processors that also compiles keeps tests waiting
# for longer than they do.
.PHONY: test
test: needs ## run the tests of the product (PKGS=./events TESTFLAGS='-run X -count 20') but the long ones (LEAVE=)
	@$(if $(filter web,$(LEAVE)),,.ci/web build)
	@$(MAKE) --no-print-directory -j2 test-program test-packages test-folding test-shards test-web

# How events are stored, folded and read.
CORE := ./events ./internal/base/... ./internal/pg/... ./internal/log/... ./internal/fold/... ./internal/partition/replay ./projector/...
.PHONY: core
core: ## test the core alone, which needs nothing but Go and Postgres
	$(GOTEST) -skip '$(SLOW)' $(TESTFLAGS) $(filter-out %/embedpg,$(shell go list $(CORE)))

# Linked without tables for debuggers, which takes half the time; make lint vets.
QUICK  := -vet=off -ldflags=-w
# What is left out of packages.
SHALLOW = $(if $(filter long,$(LEAVE)),-skip $(call named,!= "tests"))
# The tool is built once, with cgo or without.
GOTEST  = RAPID_CHECKS=$(if $(filter long,$(LEAVE)),25,50) $$($(TOOL) -n gotestsum) --format pkgname-and-test-fails -- $(QUICK) -short -parallel $(PARALLEL) -timeout $(TIMEOUT)

# Tests of packages, and what compiles them, yield to those of the program, which talk to
# each other.
YIELD := nice -n 5 env

.PHONY: test-program test-packages test-shards test-folding test-web
# Not from the cache: Go does not see that the program which the tests build has changed.
test-program:
ifneq ($(PROGRAM),)
	$(GOTEST) -count=1 $(SKIP) $(TESTFLAGS) ./tests
endif

test-packages:
	$(if $(PACKAGE),$(if $(RACE),CGO_ENABLED=1) $(YIELD) $(GOTEST) $(if $(RACE),-race) -p $(PACKAGES) $(SHALLOW) $(TESTFLAGS) $(PACKAGE))

test-shards:
ifneq ($(and $(filter ./...,$(PKGS)),$(if $(filter shards,$(LEAVE)),,all)),)
	go test $(QUICK) -count=1 -short -timeout $(TIMEOUT) -run '$(SHARDED)' ./tests -shards=3
endif

test-folding:
ifneq ($(filter ./...,$(PKGS)),)
	go test $(QUICK) -count=1 -run '$(FOLDING)' ./internal/fold/store -rapid.checks=$(HISTORIES)
endif

test-web:
	@$(if $(filter web,$(LEAVE)),,said=$$(.ci/web check 2>&1) || { echo "$$said"; exit 1; })

.PHONY: races
races: needs ## run the suites in tests on a program that was built with the race detector (RACES='Room|Read')
	CGO_ENABLED=1 $(GOTEST) -race -run '$(RACES)' ./tests -races

.PHONY: properties
properties: needs ## run the slow property tests with PROPERTIES histories, and at full length what -short shortens, without the race detector
	RAPID_CHECKS=$(PROPERTIES) go test $(QUICK) -count=1 -timeout $(TIMEOUT) -run '$(SLOW)' ./events/... ./gateway ./projector/... ./internal/fold/... ./internal/partition/... ./internal/user/... ./internal/notify/...

.PHONY: web
web: needs ## check, test and rebuild the TypeScript part
	@.ci/web

.PHONY: needs
needs: ## install missing programs that tests need
	@.ci/needs

.PHONY: docs
docs: ## regenerate docs/reference and the help in docs/cli.md
	go test -count=1 -run '^TestRulesInSQLAreUpToDate$$' ./events -update
	go test -count=1 -run '^TestReferenceIsUpToDate$$' ./internal/server/app -update
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
mutate: needs ## apply each mutant; a test must catch it (MUTANT='regular expression')
	go run ./internal/devtest/mutation -only '$(MUTANT)'

.PHONY: nightly
nightly: needs ## run the long checks of .ci/nightly (NIGHTLY='moves|splits')
	@.ci/nightly '$(NIGHTLY)'

.PHONY: test-chaos
test-chaos: needs ## disturb everything at once on three shards for CHAOS (SEED=1); every badge must end right
	go test -tags chaos -count=1 -timeout 24h -v -run '^TestChaos$$' ./tests -chaos=$(CHAOS) -chaos-seed=$(SEED)

.PHONY: soak
soak: needs ## break connections of CLIENTS at RATE events a second for SOAK; all must end right
	go test -count=1 -timeout 24h -v -run '^TestSoak$$' ./tests -soak=$(SOAK) -soak-clients=$(CLIENTS) -soak-rate=$(RATE)

.PHONY: bench
bench: needs ## compare with other ways to count: docs/benchmarks.md (BENCH='-scenario sustained -rounds 3')
	go -C tests/bench build -o $(CURDIR)/bin/bench .
	bin/bench -out docs/benchmarks $(value BENCH)

.PHONY: test-bench
test-bench: needs ## run the tests of the benchmarks with the race detector
	cd tests/bench && CGO_ENABLED=1 $$($(TOOL) -n gotestsum) --format pkgname-and-test-fails -- -race -timeout $(TIMEOUT) $(TESTFLAGS) ./...

.PHONY: test-brokers
test-brokers: needs ## run the tests of ingesting from embedded brokers (KILLS=3)
	go -C tests/brokers test $(QUICK) -count=1 -timeout $(TIMEOUT) . -kills=$(KILLS)

.PHONY: test-failover
test-failover: ## take the primary of a Patroni cluster away under load (FAILOVERS=20), with synchronous and asynchronous replication
	@.ci/needs failover
	go test -tags failover -count=1 -timeout 2h -v -run '^TestPatroni' ./tests -failovers=$(FAILOVERS)

.PHONY: lint
lint: ## run the linters, and check the format and go.mod files
	@.ci/lint

.PHONY: fmt
fmt: ## format the code
	$(TOOL) golangci-lint fmt

# Fails also if something could not be checked.
.PHONY: vuln
vuln: ## look for known vulnerabilities in called code and npm packages (VULNDB=URL or file:// of a mirror)
	@.ci/vuln

.PHONY: clean
clean: ## remove build results
	rm -rf bin coverage.out coverage.html
