package main

const (
	clockFile    = "internal/pg/dbclock/dbclock.go"
	sweeperFile  = "internal/user/expiry/expiry.go"
	strangerFile = "internal/server/inbound/headers.go"
)

// Checks of clocks, and of the limits for clients that are not authenticated yet.
var (
	clocks       = check{"./internal/pg/dbclock", ".", false}
	otherClock   = check{"./internal/server/auth", "^TestTokensByAnotherClock$", false}
	earlyTokens  = check{"./internal/notify/push", "^TestVendorsWhoseClockIsBehind$", false}
	appendsThere = check{"./projector", "^TestAppendsFollowTheClockOfTheDatabase$", false}
	wrongWaits   = check{"./internal/notify/outbound", "^(TestDeviceIsToldAfterAWrongClock|TestCallsAreMadeAfterAWrongClock|TestRemindersWaitUntilClocksAgree)$", true}
	inTheFuture  = check{"./internal/server/revocation", "^TestRevocationsInTheFuture$", false}
	wrongClocks  = check{"./tests", "^TestWrongClocks$", false}
	unknown      = check{"./tests", "^(TestHeadersOfStrangers|TestRefusedBodiesAreAnswered|TestIdleConnectionsOfOperators)$", false}
	copiesOfCall = check{"./internal/server/httpapi", "^TestPublishLimits$", false}
	messages     = check{"./pubsub", "^TestMessagesThatAreNone$", false}
	ownerless    = check{"./tests", "^TestArchiveWithoutAnOwner$", false}
)

// clockMutants trust a wrong clock, or clients that are not authenticated.
var clockMutants = []mutant{
	{"clocks never differ", []edit{{clockFile, "ahead.Abs() > MaxDifference", "false && ahead.Abs() > MaxDifference"}}, clocks},
	{"the first clock is believed", []edit{{clockFile, "told[len(told)/2]", "told[0]"}}, clocks},
	{"the clock of the machine is never asked", []edit{{clockFile, "len(told)%2 == 0 {", "len(told) == 0 {"}}, clocks},
	{"tokens follow the clock of the machine", []edit{{"internal/server/auth/tokens.go", "	now := t.cfg.Now()\n", "	now := time.Now()\n"}}, otherClock},
	{"a token ends by a clock that is set", []edit{{"internal/server/auth/tokens.go", "ExpiresAt: time.Now().Add(left)", "ExpiresAt: c.expires.Time"}}, otherClock},
	{"tokens for vendors are issued now", []edit{{"internal/notify/push/credentials.go", "signedEarly = 10 * time.Second", "signedEarly = 0 * time.Second"}}, earlyTokens},
	{"direct appends follow the clock of the machine", []edit{{"projector/append.go", "appendedAt: p.clock.Now()}", "appendedAt: time.Now()}"}}, appendsThere},
	{"a wait of a month stays", []edit{{outboundFile, "interval '29 hours'", "interval '29000 hours'"}}, wrongWaits},
	{"a revocation in the future stays", []edit{{"internal/server/revocation/revocation.sql", "CASE WHEN r.revoked_before > clock_timestamp() THEN clock_timestamp() ELSE r.revoked_before END", "r.revoked_before"}}, inTheFuture},
	{"a sweep goes on while clocks differ", []edit{{"internal/pg/pgsession/clock.go", "return c.Now(), c.Check()", "return c.Now(), nil"}}, wrongClocks},
	{"an instance with a wrong clock keeps the sweep", []edit{{sweeperFile, "held, err = false, x.unlock(ctx, conn)", "err = nil"}}, wrongClocks},
	{"events have the time of the machine", []edit{{"events/rows.go", "now: l.now()", "now: time.Now()"}}, wrongClocks},
	{"strangers send as many lines as they like", []edit{{strangerFile, " || h.lines > strangerLines", ""}}, unknown},
	{"refusals are cut off", []edit{{"internal/server/inbound/drain.go", "	drain(c.Conn)\n	return err", "	return err"}}, unknown},
	{"operators keep as many idle connections as they like", []edit{{"internal/server/app/inbound.go", "All: internalConnections * 3 / 4, PerHolder: internalConnections / 2", ""}}, unknown},
	{"a request has as many copies as it likes", []edit{{"internal/server/httpapi/publish.go", "if n > maxCopies {", "if false {"}}, copiesOfCall},
	{"a message that is none ends the process", []edit{{"pubsub/redis_link.go", "if cause := recover(); cause != nil {", "if cause := any(nil); cause != nil {"}}, messages},
	{"any copy owns an archive without an owner", []edit{{"internal/partition/claims/claims.go", "has == archive.Owner{} && a.Empty():", "has == archive.Owner{}:"}}, ownerless},
}
