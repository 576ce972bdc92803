package main

const (
	clockFile    = "internal/dbclock/dbclock.go"
	sweeperFile  = "projector/expiry/expiry.go"
	strangerFile = "internal/inbound/headers.go"
)

// The checks of clocks, and of what clients send before they are known.
var (
	clocks       = check{"./internal/dbclock", ".", false}
	otherClock   = check{"./internal/auth", "^TestTokensByAnotherClock$", false}
	earlyTokens  = check{"./gateway/push", "^TestVendorsWhoseClockIsBehind$", false}
	appendsThere = check{"./projector", "^TestAppendsFollowTheClockOfTheDatabase$", false}
	wrongWaits   = check{"./projector/outbound", "^(TestDeviceIsToldAfterAWrongClock|TestCallsAreMadeAfterAWrongClock|TestRemindersWaitUntilClocksAgree)$", true}
	inTheFuture  = check{"./internal/revocation", "^TestRevocationsInTheFuture$", false}
	wrongClocks  = check{"./tests", "^TestWrongClocks$", false}
	unknown      = check{"./tests", "^(TestHeadersOfStrangers|TestRefusedBodiesAreAnswered|TestIdleConnectionsOfOperators)$", false}
	copiesOfCall = check{"./internal/httpapi", "^TestPublishLimits$", false}
	messages     = check{"./pubsub", "^TestMessagesThatAreNone$", false}
	ownerless    = check{"./tests", "^TestArchiveWithoutAnOwner$", false}
)

// clockMutants believe a wrong clock, or strangers.
var clockMutants = []mutant{
	{"clocks never differ", []edit{{clockFile, "ahead.Abs() > MaxDifference", "false && ahead.Abs() > MaxDifference"}}, clocks},
	{"the first clock is believed", []edit{{clockFile, "told[len(told)/2]", "told[0]"}}, clocks},
	{"the clock of the machine is never asked", []edit{{clockFile, "len(told)%2 == 0 {", "len(told) == 0 {"}}, clocks},
	{"tokens follow the clock of the machine", []edit{{"internal/auth/tokens.go", "	now := t.cfg.Now()\n", "	now := time.Now()\n"}}, otherClock},
	{"a token ends by a clock that is set", []edit{{"internal/auth/tokens.go", "ExpiresAt: time.Now().Add(left)", "ExpiresAt: c.expires.Time"}}, otherClock},
	{"tokens for vendors are issued now", []edit{{"gateway/push/credentials.go", "signedEarly = 10 * time.Second", "signedEarly = 0 * time.Second"}}, earlyTokens},
	{"direct appends follow the clock of the machine", []edit{{"projector/append.go", "at: p.clock.Now()}", "at: time.Now()}"}}, appendsThere},
	{"a wait of a month stays", []edit{{outboundFile, "interval '29 hours'", "interval '29000 hours'"}}, wrongWaits},
	{"a revocation in the future stays", []edit{{"internal/revocation/revocation.sql", "CASE WHEN r.revoked_before > clock_timestamp() THEN clock_timestamp() ELSE r.revoked_before END", "r.revoked_before"}}, inTheFuture},
	{"a sweep goes on while clocks differ", []edit{{"internal/pgsession/clock.go", "return c.Now(), c.Check()", "return c.Now(), nil"}}, wrongClocks},
	{"an instance with a wrong clock keeps the sweep", []edit{{sweeperFile, "held, err = false, x.leave(ctx, conn)", "err = nil"}}, wrongClocks},
	{"events have the time of the machine", []edit{{"internal/eventlog/log.go", "{ return l.now() }", "{ return time.Now() }"}}, wrongClocks},
	{"strangers send as many lines as they like", []edit{{strangerFile, " || h.lines > strangerLines", ""}}, unknown},
	{"refusals are cut off", []edit{{"internal/inbound/drain.go", "	drain(c.Conn)\n	return err", "	return err"}}, unknown},
	{"operators keep as many idle connections as they like", []edit{{"internal/app/inbound.go", "All: internalConnections * 3 / 4, PerHolder: internalConnections / 2", ""}}, unknown},
	{"a request has as many copies as it likes", []edit{{"internal/httpapi/publish.go", "if n > maxCopies {", "if false {"}}, copiesOfCall},
	{"a message that is none ends the process", []edit{{"pubsub/redis_link.go", "if cause := recover(); cause != nil {", "if cause := any(nil); cause != nil {"}}, messages},
	{"any copy owns an archive without an owner", []edit{{"projector/internal/claims/claims.go", "has == archive.Owner{} && a.Empty():", "has == archive.Owner{}:"}}, ownerless},
}
