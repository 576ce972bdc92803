package main

const (
	appendingFile = "internal/cluster/appending.go"
	prepareFile   = "internal/partition/moving/prepare.go"
	switchFile    = "internal/partition/copier/switch.go"
)

// Checks of messages to rooms during moves.
var (
	spansSwitch   = check{"./internal/cluster", "^TestCallThatSpansASwitch$", false}
	lastExpects   = check{"./internal/cluster", "^TestLastAppendExpectsWhatTheOthersDid$", false}
	groupsExpects = check{"./internal/log/groupcommit", "^TestGroupsExpectWhatTheirCallsDo$", false}
	ingestSpans   = check{"./internal/bridge/ingest", "^TestABatchThatSpansASwitch$", false}
	missing       = check{"./internal/bridge/ingest", "^TestAPartitionThatNoShardHolds$", false}
	moveBegins    = check{"./internal/partition/moving", "^TestReadersOfTheTargetWhenAMoveBegins$", false}
)

// Checks of the moment at which moves and splits switch.
var (
	caughtUp   = check{"./internal/partition/copier", "^TestCatchUp$", false}
	slowCopies = check{"./internal/partition/moving", "^TestSlowCopiesLetPublishersGo$", false}
	slowCommit = check{"./internal/partition/moving", "^TestSlowTransactionsLetTheSwitchThrough$", false}
	archivedBy = check{"./tests", "^TestArchivesFollowMovesAndSplits$", false}
)

// Checks of shards that were restored to an earlier time.
var (
	putBackSource = check{"./internal/partition/moving", "^TestPutBackDuringAMove$/^a_from_released_to_catch_up$", false}
	putBackTarget = check{"./internal/partition/moving", "^TestPutBackToAnEarlierAttempt$", false}
	givenUp       = check{"./internal/cluster", "^TestAShardGivesUpNothingElse$", false}
)

// moveMutants make messages to rooms get lost or wait while a partition is moved.
var moveMutants = []mutant{
	{"a message that spans a switch is in neither shard", []edit{{routesFile, "case e != nil:", "case false:"}}, spansSwitch},
	{"an append beside the others expects nothing", []edit{{appendingFile, "last(call.here.expecting(ctx), ", "last(ctx, "}}, lastExpects},
	{"calls that share a transaction expect what one of them does", []edit{{groupFile, "expected = expected.And(one.expected)", "expected = one.expected"}}, groupsExpects},
	{"a batch that spans a switch is not in what has moved", []edit{{"internal/bridge/ingest/places.go", "p.allHave(eventlog.ExpectedBy(ctx).Partitions(), position)", "p.allHave(nil, position)"}}, ingestSpans},
	{"a batch that spans a switch is in neither shard", []edit{{appendingFile, "last(call.here.expecting(ctx), ", "last(ctx, "}}, ingestSpans},
	{"dead letters of a partition that moves wait on both shards", []edit{{"projector/projector.go", " WHERE partition_id IS NULL OR partition_id IN (SELECT partition_id FROM badged.partitions) LIMIT", " LIMIT"}}, check{"./internal/server/app", "^TestMetricsPage$", false}},
	{"ingesting from a broker takes a missing partition for one that another process reads", []edit{{"internal/bridge/ingest/ingest.sql", ") THEN 'BD100' ELSE", ") THEN 'BD005' ELSE"}}, missing},
	{"ingesting fails when a partition has just moved", []edit{{"internal/bridge/ingest/worker.go", "(refused.IsZero() || time.Since(refused) < s.cfg.switchTime)", "refused != refused"}}, ingestSpans},
	{"ingesting never fails for a partition that is missing", []edit{{"internal/bridge/ingest/worker.go", "(refused.IsZero() || time.Since(refused) < s.cfg.switchTime)", "true"}}, check{"./internal/bridge/ingest", "^TestARefusalThatLasts$", false}},
	{"folding fails when a partition has just moved", []edit{{"projector/partition.go", "case err != nil && eventlog.IsGone(ctx, p.projector.cfg.Pool, p.id):", "case err != nil && ctx.Err() != nil && eventlog.IsGone(ctx, p.projector.cfg.Pool, p.id):"}}, check{"./projector", "^TestPartitionThatHasJustMovedIsNoFailure$", false}},
	{"what fails while a partition is given up is a failure", []edit{{"internal/log/eventlog/held.go", "return ctx.Err() != nil || err", "return err"}}, check{"./internal/log/eventlog", "^TestGoneOnceItIsGivenUp$", false}},
	{"a reader disturbs the beginning of a move", []edit{
		{prepareFile, "		_, err := tx.Exec(ctx, statements.Get(\"settle the ranges\"), m.p)\n		return err\n	})\n", "		return nil\n	})\n	if err == nil {\n		_, err = to.Conn.Exec(ctx, statements.Get(\"settle the ranges\"), m.p)\n	}\n"},
	}, moveBegins},
	{"catching up never ends on a slow machine", []edit{{switchFile, "took > before/4*3", "before < 0"}}, caughtUp},
	{"catching up ends while it becomes quicker", []edit{{switchFile, "took > before/4*3", "before > 0"}}, caughtUp},
	{"transactions that take a while keep a partition from being switched", []edit{{switchFile, "(before.IsZero() || holder.Since.Before(before))", "(before.IsZero() || !holder.Since.IsZero())"}}, slowCommit},
	{"a switch waits for publishers as long as for readers of tables", []edit{{switchFile, "max(1, (patience/2).Milliseconds())", "100"}}, slowCommit},
	{"publishers wait for a last copy however long it takes", []edit{{switchFile, "!s.due.IsZero() && time.Now().After(s.due)", "false"}}, slowCopies},
	{"publishers wait for a last copy that cannot be quick", []edit{{switchFile, "s.lastRound > patience", "false"}}, slowCopies},
	{"a shard that gets a partition has archived what the other has", []edit{{"internal/partition/archiving/archiving.sql", " JOIN badged.partitions USING (partition_id)) FROM badged.log_identity", ") FROM badged.log_identity"}}, archivedBy},
	{"a move goes on although a shard was restored to an earlier round", []edit{{prepareFile, "from.round == to.round && ", ""}}, putBackSource},
	{"a move is completed although the target was restored to an earlier attempt", []edit{{"internal/partition/moving/complete.go", "s.move.id == released.id && s.move.round == released.round", "s.move.id == released.id"}}, putBackTarget},
	{"a partition that was split elsewhere has users", []edit{{layoutFile, "	l.living.RemoveAll(&ended)\n", ""}}, layouts},
	{"a shard gives a partition up for one with an older map", []edit{{"migrations/00007_cluster.sql", "revision <= (SELECT m.revision", "revision < 0 * (SELECT m.revision"}}, givenUp},
}
