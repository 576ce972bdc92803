package main

const (
	hintsFile      = "internal/cluster/hints.go"
	bestEffortFile = "internal/cluster/besteffort.go"
	lackFile       = "internal/cluster/faults.go"
	relayFile      = "internal/bridge/relay/relay.go"
	carryFile      = "internal/bridge/relay/carry.go"
	catchUpFile    = "internal/bridge/relay/waiting.go"
	dividedFile    = "internal/bridge/traffic/divided.go"
	joinsFile      = "internal/cluster/joins.go"
	partsFile      = "internal/cluster/parts.go"
	grantFile      = "migrations/roles.go"
	eraseAllFile   = "internal/operations/users.go"
	shardStateFile = "internal/cluster/state.go"
	queryFile      = "internal/server/httpapi/badges.go"
	hintsEraseFile = "internal/user/erasure/hints.go"
)

// Checks of what works while a shard is away, and after it is back.
var (
	roomsWait     = check{"./internal/cluster", "^TestRoomMessagesWaitForAShard$", false}
	waitUntil     = check{"./internal/cluster", "^TestRoomMessagesWaitUntilTheyAreStored$", false}
	waitThere     = check{"./internal/cluster", "^TestWhatWaitsOnStaysOnItsShard$", false}
	waitAgain     = check{"./internal/cluster", "^TestPositionsKnowWhatWaitsAgain$", false}
	unknownShard  = check{"./internal/cluster", "^TestEventsForAShardThatAProcessDoesNotKnow$", false}
	eraseUnknown  = check{"./internal/operations", "^TestWithoutAShardThatAProcessDoesNotKnow$", false}
	otherEncoding = check{"./internal/cluster", "^TestShardsHaveOneEncoding$", false}
	appendedSome  = check{"./internal/cluster", "^TestAppendBestEffort$", false}
	lostDatabase  = check{"./internal/bridge/relay", "^(TestLostDatabase|TestRefusalWhileADatabaseIsAway)$", false}
	waitsFirst    = check{"./internal/cluster", "^TestJoinsFollowWhatWaits$", false}
	joinsFirst    = check{"./internal/cluster", "^(TestMembersOfARepeatedCallCountItsMessages|TestJoinsReadUpToTheMessagesOfTheirCall|TestMembersOnALateShardCountTheMessagesOfTheCall)$", false}
	heldBack      = check{"./internal/server/app", "^TestMessagesToRoomsNeedEveryShardOfTheMap$", false}
	ingestedJoins = check{"./internal/bridge/ingest", "^TestMembersOfABatchThatIsReadAgainCountItsMessages$", false}
	ingestedAgain = check{"./internal/bridge/ingest", "^TestPartitionsOfASplitDoNotRepeat$", false}
	relayedJoins  = check{"./internal/bridge/relay", "^TestMessagesToARoomWaitForItsJoins$", false}
	outboxAway    = check{"./internal/bridge/relay", "^TestRelayWaitsForTheDatabaseOfTheOutbox$", false}
	noOutbox      = check{"./internal/bridge/relay", "^TestRelayEndsWithoutAnOutbox$", false}
	lackingAnswer = check{"./internal/bridge/traffic", "^TestDivided", false}
	lostShard     = check{"./internal/server/app", "^TestALostShardStopsItsUsersOnly$", false}
	grantedAgain  = check{"./migrations", "^TestUpGrantsWhatAKilledOneHadNot$", false}
	readsEnd      = check{"./internal/cluster", "^TestReadsEndOnceTheirShardIsAway$", false}
	unreadOrder   = check{"./internal/cluster", "^TestUnreadUsersAreInTheirOrder$", false}
	readsLost     = check{"./internal/cluster", "^TestReadsOfALostPartition$", false}
	queriesAway   = check{"./internal/server/httpapi", "^TestBadgesWhileAShardIsAway$", false}
	erasedWaiting = check{"./internal/operations", "^TestEraseWhileMessagesWait$", false}
	erasedOnWay   = check{"./internal/operations", "^TestEraseWhileMessagesAreDelivered$", false}
	erasedAgain   = check{"./internal/user/erasure", "^TestEraseWhatWaitsAgain$", false}
)

// lostMutants let an unreachable shard block other shards, or make its outage lose, repeat or
// reveal something.
var lostMutants = []mutant{
	{"a message to a room fails if a shard is away", []edit{{hintsFile, "if target == nil || !a.hinting {", "if true {"}}, roomsWait},
	{"a message to a room fails before it is known that a shard is away", []edit{{hintsFile, "!errors.Is(errs[i], ErrAway) && !isGone(errs[i])", "!errors.Is(errs[i], ErrAway)"}}, roomsWait},
	{"messages to users of a lost shard are accepted", []edit{{hintsFile, " || p.database == nil || !aboutRooms(p.events) {", " || p.database == nil {"}}, roomsWait},
	{"a position does not name what waits", []edit{{hintsFile, "		a.token.hints = joinHints(a.token.hints, []hintRef{{p.database.Name, target.Name, id}})\n", "		_ = id\n"}}, roomsWait},
	{"what waited follows no partition that has moved", []edit{{hintsFile, "recipient != nil && moves == st.moves()", "recipient != nil"}}, roomsWait},
	{"what was delivered waits on", []edit{{hintsFile, `tx.Exec(ctx, statements.Get("delete hints"), ids)`, `tx.Exec(ctx, statements.Get("delete hints"), ids[:0])`}}, roomsWait},
	{"what a shard refuses is not delivered again", []edit{{hintsFile, "			case err != nil:\n				return err\n			}\n		}\n", "			case false:\n				return err\n			}\n		}\n"}}, waitUntil},
	{"what one of all shards refuses is not delivered again", []edit{{hintsFile, "origin: h.origin}, h.events); err != nil {", "origin: h.origin}, h.events); false {"}}, waitUntil},
	{"what waits on goes to another shard", []edit{{hintsFile, "(a.target == nil || a.target == s)", "true"}}, waitThere},
	{"an older position takes what waits again for delivered", []edit{{hintsFile, "target: from, origin: h.origin}", "target: from}"}}, waitAgain},
	{"what waits again for a lost shard holds up users of others", []edit{{"internal/cluster/cluster.sql", " AND (shard = $3 OR moves <> $4)", " AND ($3 <> '' OR $4 > 0)"}}, waitAgain},
	{"messages to rooms pass shards that a process does not know", []edit{{partsFile, "			if st.unknown != nil {", "			if false {"}}, unknownShard},
	{"a process that knows one shard takes it for all", []edit{{partsFile, "len(c.databases) == 1 && st.unknown == nil", "len(c.databases) == 1"}}, unknownShard},
	{"an erasure forgets shards that a process does not know", []edit{{"internal/cluster/each.go", "		errs = append(errs, s.lost())\n	}\n	return errors.Join(append(errs, c.Unknown())...)", "		errs = append(errs, s.lost())\n	}\n	return errors.Join(errs...)"}}, eraseUnknown},
	{"databases with other encodings become shards", []edit{{"internal/cluster/form.go", "sameEncoding(d.Name, encodings[i], \"shard \"+ordered[0].Name+\" has\", encodings[0]); err != nil {", "error(nil); err != nil {"}}, otherEncoding},
	{"shards with other encodings are opened", []edit{{"internal/cluster/merge.go", "sameEncoding(v.name, v.encoding, \"shard \"+views[first].name+\" has\", all.encoding); err != nil {", "error(nil); err != nil {"}}, otherEncoding},
	{"a running server uses a shard whose encoding has changed", []edit{{"internal/cluster/read.go", "return sameEncoding(v.name, v.encoding, \"the others have\", c.encoding)", "return nil"}}, otherEncoding},
	{"a relay stops for all if a shard is away", []edit{{bestEffortFile, "			c.missed(p.database, errs[i])\n", "			err = errors.Join(err, errs[i])\n"}}, appendedSome},
	{"a relay overtakes what a shard lacks", []edit{{bestEffortFile, "		if skips {\n			c.missed(p.database, nil)\n		}\n		return skips", "		return skips && false"}}, appendedSome},
	{"a relay forgets what a shard lacks", []edit{{carryFile, "split(free, c.waits)", "split(free, func(*row) bool { return false })"}}, lostDatabase},
	{"an answer does not say who lacks a join that cannot be looked up", []edit{{lackFile, " && !errors.Is(of, ErrAway)", ""}}, heldBack},
	{"messages do not wait for the joins before them", []edit{{joinsFile, "			ends = append(ends, i)\n", ""}}, joinsFirst},
	{"members have not read the messages that wait for their shard", []edit{{appendingFile, "err := a.replayBefore(ctx, p)", "var err error"}}, waitsFirst},
	{"messages follow joins that a shard lacks", []edit{{joinsFile, "joined[stage[i].Data.ConversationID] = true", "joined[stage[i].Data.ConversationID] = false"}}, joinsFirst},
	{"an answer leaves out messages that were held back", []edit{{lackFile, "			for p := range s.Partitions {\n				s.Partitions[p] = true\n			}\n", ""}}, joinsFirst},
	{"batches of a broker are not stored in stages", []edit{{"internal/bridge/ingest/store.go", "ends := p.stages(b, d); len(ends) > 1", "ends := p.stages(b, d); len(ends) > len(d.events)"}}, ingestedJoins},
	{"a shard gets messages to rooms again once partitions have moved", []edit{{appendingFile, "p.database == a.here.database || has.Equal(p.expected)", "has == nil"}}, ingestedAgain},
	{"a relay believes any server", []edit{{carryFile, "if !refused.ByBadged {", "if false {"}}, check{"./internal/bridge/relay", "^TestAnswersOfProxies$", false}},
	{"a relay carries messages behind joins that wait", []edit{{carryFile, "		c.held.add(waiting)\n", ""}}, relayedJoins},
	{"a relay carries messages to one shard behind joins that wait for another", []edit{{catchUpFile, "c.stillHeld.add(waits)", "c.stillHeld.add(waits[:0])"}}, relayedJoins},
	{"a relay gives messages that waited to late shards alone", []edit{{catchUpFile, "{held, c.behind}}", "{held[:0], c.behind}}"}}, relayedJoins},
	{"a relay never catches up", []edit{{catchUpFile, "	if !slices.Contains(back, true) {\n		return false\n	}\n	c.catching", "	if true {\n		return false\n	}\n	c.catching"}}, lostDatabase},
	{"a relay ends if the database of the outbox is away", []edit{{relayFile, "		case Away(err):", "		case false:"}}, outboxAway},
	{"a relay is healthy while the database of the outbox is away", []edit{{relayFile, " && !r.opening.Load() {", " {"}}, outboxAway},
	{"a relay waits for an outbox that was never made", []edit{{relayFile, "		case Away(err):", "		case true:"}}, noOutbox},
	{"an answer of 503 stops a relay for all", []edit{{dividedFile, "	if refused.Lacking == nil {", "	if true {"}}, lackingAnswer},
	{"a relay repeats for users that have their events", []edit{{dividedFile, "			if !excluded[t.PartitionOf(u)] {", "			if true {"}}, lackingAnswer},
	{"an answer of 503 does not say who lacks events", []edit{{lackFile, "			s.Partitions[eventlog.Ancestor(p, c.partitions)] = true", "			_ = eventlog.Ancestor(p, c.partitions)"}}, lostShard},
	{"a read of a shard that goes away has no end", []edit{{shardStateFile, "	defer context.AfterFunc(st.present, cancel)() ", "	_ = st.present "}}, readsEnd},
	{"a read that ends with its shard does not say so", []edit{{shardStateFile, "		return context.Cause(st.present) ", "		return err "}}, readsEnd},
	{"a read whose caller has left blames the shard", []edit{{shardStateFile, "inner.Err() != nil && ctx.Err() == nil", "inner.Err() != nil"}}, readsEnd},
	{"a shard that falls silent in a switch disagrees", []edit{{"internal/cluster/read.go", "3*c.cfg.Interval+2*c.cfg.Patience", "3*c.cfg.Interval"}}, check{"./internal/cluster", "^TestSilentAfterASwitch$", false}},
	{"a shard that is back is away for reads", []edit{{shardStateFile, "now.held, now.present, now.leave = was.held, nil, nil", "now.held = was.held"}}, readsEnd},
	{"users that were not read are in the order of shards", []edit{{"internal/cluster/unread.go", "	slices.Sort(places)\n", ""}}, unreadOrder},
	{"a lost partition is waited for by each read", []edit{{shardStateFile, "!since.IsZero() && time.Since(since) > moveWait", "since.IsZero() && time.Since(since) < 0"}}, readsLost},
	{"a query fails as a whole while a shard is away", []edit{{queryFile, "		if err != nil && !ok {", "		if err != nil && (!ok || true) {"}}, queriesAway},
	{"a badge that could not be read is 0", []edit{{queryFile, "return !slices.Contains(complete, b.UserID) })", "return false })"}}, queriesAway},
	{"a query does not name the users that it lacks", []edit{{"internal/server/httpapi/problem.go", ", UserIDs: partial.UserIDs}", "}"}}, queriesAway},
	{"a fault of the server is one of a shard", []edit{{"internal/server/httpapi/problem.go", "partial != nil && p.Status == http.StatusServiceUnavailable", "partial != nil"}}, queriesAway},
	{"a repeated migrate up grants nothing", []edit{{grantFile, "for _, r := range roles {", "for _, r := range roles[:0] {"}}, grantedAgain},
	{"each migrate up grants again", []edit{{grantFile, "granted_as <> $1 AND", "granted_as <> $1 || 'x' AND"}}, grantedAgain},
	{"messages that wait name an erased user", []edit{
		{eraseAllFile, "	present, _ := c.Present()", "	present := c.Databases()[:0]"},
		{"internal/user/erasure/erase.go", "eraseHints(ctx, e.conn, e.cfg.UserID); err != nil", "(Counts{}), nil; err != nil"},
	}, erasedWaiting},
	{"messages on their way name an erased user", []edit{{eraseAllFile, "	present, _ := c.Present()", "	present := c.Databases()[:0]"}}, erasedOnWay},
	{"messages that wait again name an erased user", []edit{{hintsEraseFile, "again = again || locked < len(ids)", "again = again && locked < len(ids)"}}, erasedAgain},
	{"an export has nothing of what waits", []edit{{"internal/user/erasure/export.go", "if err := x.hints(ctx); err != nil {", "if err := error(nil); err != nil {"}}, erasedWaiting},
}
