package main

const (
	hintsFile      = "internal/shards/hints.go"
	bestEffortFile = "internal/shards/besteffort.go"
	lackFile       = "internal/shards/away.go"
	relayFile      = "internal/relay/relay.go"
	carryFile      = "internal/relay/carry.go"
	catchUpFile    = "internal/relay/waiting.go"
	dividedFile    = "internal/traffic/divided.go"
	joinsFile      = "internal/shards/joins.go"
	partsFile      = "internal/shards/parts.go"
	grantFile      = "migrations/roles.go"
	eraseAllFile   = "internal/operators/users.go"
	shardStateFile = "internal/shards/state.go"
	queryFile      = "internal/httpapi/badges.go"
	hintsEraseFile = "projector/erasure/hints.go"
)

// The checks of what goes on while a shard is away, and after it is back.
var (
	roomsWait     = check{"./internal/shards", "^TestRoomMessagesWaitForAShard$", false}
	waitUntil     = check{"./internal/shards", "^TestRoomMessagesWaitUntilTheyAreStored$", false}
	waitThere     = check{"./internal/shards", "^TestWhatWaitsOnStaysOnItsShard$", false}
	waitAgain     = check{"./internal/shards", "^TestPositionsKnowWhatWaitsAgain$", false}
	unknownShard  = check{"./internal/shards", "^TestEventsForAShardThatAProcessDoesNotKnow$", false}
	eraseUnknown  = check{"./internal/operators", "^TestWithoutAShardThatAProcessDoesNotKnow$", false}
	otherEncoding = check{"./internal/shards", "^TestShardsHaveOneEncoding$", false}
	appendedSome  = check{"./internal/shards", "^TestAppendBestEffort$", false}
	lostDatabase  = check{"./internal/relay", "^(TestLostDatabase|TestRefusalWhileADatabaseIsAway)$", false}
	waitsFirst    = check{"./internal/shards", "^TestJoinsFollowWhatWaits$", false}
	joinsFirst    = check{"./internal/shards", "^(TestMembersOfARepeatedCallCountItsMessages|TestJoinsReadUpToTheMessagesOfTheirCall|TestMembersOnALateShardCountTheMessagesOfTheCall)$", false}
	heldBack      = check{"./internal/app", "^TestMessagesToRoomsNeedEveryShardOfTheMap$", false}
	ingestedJoins = check{"./internal/ingest", "^TestMembersOfABatchThatIsReadAgainCountItsMessages$", false}
	ingestedAgain = check{"./internal/ingest", "^TestPartitionsOfASplitDoNotRepeat$", false}
	relayedJoins  = check{"./internal/relay", "^TestMessagesToARoomWaitForItsJoins$", false}
	outboxAway    = check{"./internal/relay", "^TestRelayWaitsForTheDatabaseOfTheOutbox$", false}
	noOutbox      = check{"./internal/relay", "^TestRelayEndsWithoutAnOutbox$", false}
	lackingAnswer = check{"./internal/traffic", "^TestDivided", false}
	lostShard     = check{"./internal/app", "^TestALostShardStopsItsUsersOnly$", false}
	grantedAgain  = check{"./migrations", "^TestUpGrantsWhatAKilledOneHadNot$", false}
	readsEnd      = check{"./internal/shards", "^TestReadsEndOnceTheirShardIsAway$", false}
	unreadOrder   = check{"./internal/shards", "^TestUnreadUsersAreInTheirOrder$", false}
	readsLost     = check{"./internal/shards", "^TestReadsOfALostPartition$", false}
	queriesAway   = check{"./internal/httpapi", "^TestBadgesWhileAShardIsAway$", false}
	erasedWaiting = check{"./internal/operators", "^TestEraseWhileMessagesWait$", false}
	erasedOnWay   = check{"./internal/operators", "^TestEraseWhileMessagesAreDelivered$", false}
	erasedAgain   = check{"./projector/erasure", "^TestEraseWhatWaitsAgain$", false}
)

// lostMutants let the loss of a shard stop others, or lose, double or show something.
var lostMutants = []mutant{
	{"a message to a room fails if a shard is away", []edit{{hintsFile, "if target == nil || !a.hinting {", "if true {"}}, roomsWait},
	{"a message to a room fails before it is known that a shard is away", []edit{{hintsFile, "!errors.Is(errs[i], ErrAway) && !isGone(errs[i])", "!errors.Is(errs[i], ErrAway)"}}, roomsWait},
	{"messages to users of a lost shard are accepted", []edit{{hintsFile, " || p.shard == nil || !aboutRooms(p.events) {", " || p.shard == nil {"}}, roomsWait},
	{"a position does not name what waits", []edit{{hintsFile, "		a.token.hints = joinHints(a.token.hints, []hintRef{{p.shard.Name, target.Name, id}})\n", "		_ = id\n"}}, roomsWait},
	{"what waited follows no partition that has moved", []edit{{hintsFile, "lacking != nil && moves == st.moves()", "lacking != nil"}}, roomsWait},
	{"what was delivered waits on", []edit{{hintsFile, `tx.Exec(ctx, statements.Get("delete hints"), ids)`, `tx.Exec(ctx, statements.Get("delete hints"), ids[:0])`}}, roomsWait},
	{"what a shard refuses is not delivered again", []edit{{hintsFile, "			case err != nil:\n				return err\n			}\n		}\n", "			case false:\n				return err\n			}\n		}\n"}}, waitUntil},
	{"what one of all shards refuses is not delivered again", []edit{{hintsFile, "origin: h.origin}, h.events); err != nil {", "origin: h.origin}, h.events); false {"}}, waitUntil},
	{"what waits on goes to another shard", []edit{{hintsFile, "(a.target == nil || a.target == s)", "true"}}, waitThere},
	{"an older position takes what waits again for delivered", []edit{{hintsFile, "target: from, origin: h.origin}", "target: from}"}}, waitAgain},
	{"what waits again for a lost shard holds up users of others", []edit{{"internal/shards/shards.sql", " AND (shard = $3 OR moves <> $4)", " AND ($3 <> '' OR $4 > 0)"}}, waitAgain},
	{"messages to rooms pass shards that a process does not know", []edit{{partsFile, "			if st.unknown != nil {", "			if false {"}}, unknownShard},
	{"a process that knows one shard takes it for all", []edit{{partsFile, "len(c.shards) == 1 && st.unknown == nil", "len(c.shards) == 1"}}, unknownShard},
	{"an erasure forgets shards that a process does not know", []edit{{"internal/operators/each.go", "append(errs, c.Unknown())", "append(errs, nil)"}}, eraseUnknown},
	{"databases with other encodings become shards", []edit{{"internal/shards/form.go", "sameEncoding(d.Name, encodings[i], \"shard \"+ordered[0].Name, encodings[0]); err != nil {", "error(nil); err != nil {"}}, otherEncoding},
	{"shards with other encodings are opened", []edit{{"internal/shards/merge.go", "sameEncoding(v.name, v.encoding, \"shard \"+views[first].name, all.encoding); err != nil {", "error(nil); err != nil {"}}, otherEncoding},
	{"a running server uses a shard whose encoding has changed", []edit{{"internal/shards/read.go", "return sameEncoding(v.name, v.encoding, \"others\", c.encoding)", "return nil"}}, otherEncoding},
	{"a relay stops for all if a shard is away", []edit{{bestEffortFile, "			c.lacks(p.shard, errs[i])\n", "			err = errors.Join(err, errs[i])\n"}}, appendedSome},
	{"a relay overtakes what a shard lacks", []edit{{bestEffortFile, "		if skips {\n			c.lacks(p.shard, nil)\n		}\n		return skips", "		return skips && false"}}, appendedSome},
	{"a relay forgets what a shard lacks", []edit{{carryFile, "split(free, c.waits)", "split(free, func(*row) bool { return false })"}}, lostDatabase},
	{"an answer does not say who lacks a join that cannot be looked up", []edit{{lackFile, " && !errors.Is(of, ErrAway)", ""}}, heldBack},
	{"messages do not wait for the joins before them", []edit{{joinsFile, "			ends = append(ends, i)\n", ""}}, joinsFirst},
	{"members have not read the messages that wait for their shard", []edit{{appendingFile, "err := a.replayBefore(ctx, p)", "var err error"}}, waitsFirst},
	{"messages follow joins that a shard lacks", []edit{{joinsFile, "joined[stage[i].Data.ConversationID] = true", "joined[stage[i].Data.ConversationID] = false"}}, joinsFirst},
	{"an answer leaves out messages that were held back", []edit{{lackFile, "			for p := range s.Partitions {\n				s.Partitions[p] = true\n			}\n", ""}}, joinsFirst},
	{"batches of a broker are not stored in stages", []edit{{"internal/ingest/store.go", "ends := p.stages(b, d); len(ends) > 1", "ends := p.stages(b, d); len(ends) > len(d.events)"}}, ingestedJoins},
	{"a shard gets messages to rooms again once partitions have moved", []edit{{appendingFile, "p.shard == a.here.shard || has.Equal(p.expected)", "has == nil"}}, ingestedAgain},
	{"a relay believes any server", []edit{{carryFile, "if !refused.ByBadged {", "if false {"}}, check{"./internal/relay", "^TestAnswersOfProxies$", false}},
	{"a relay carries messages behind joins that wait", []edit{{carryFile, "		c.held.add(waiting)\n", ""}}, relayedJoins},
	{"a relay carries messages to one shard behind joins that wait for another", []edit{{catchUpFile, "c.stillHeld.add(waits)", "c.stillHeld.add(waits[:0])"}}, relayedJoins},
	{"a relay gives messages that waited to late shards alone", []edit{{catchUpFile, "{held, c.behind}}", "{held[:0], c.behind}}"}}, relayedJoins},
	{"a relay never catches up", []edit{{catchUpFile, "	if !slices.Contains(back, true) {\n		return false\n	}\n	c.catching", "	if true {\n		return false\n	}\n	c.catching"}}, lostDatabase},
	{"a relay ends if the database of the outbox is away", []edit{{relayFile, "		case Away(err):", "		case false:"}}, outboxAway},
	{"a relay is healthy while the database of the outbox is away", []edit{{relayFile, " && !r.opening.Load() {", " {"}}, outboxAway},
	{"a relay waits for an outbox that was never made", []edit{{relayFile, "		case Away(err):", "		case true:"}}, noOutbox},
	{"an answer of 503 stops a relay for all", []edit{{dividedFile, "	if refused.Lacking == nil {", "	if true {"}}, lackingAnswer},
	{"a relay repeats for users that have their events", []edit{{dividedFile, "			if !without[t.PartitionOf(u)] {", "			if true {"}}, lackingAnswer},
	{"an answer of 503 does not say who lacks events", []edit{{lackFile, "			s.Partitions[eventlog.Ancestor(p, c.partitions)] = true", "			_ = eventlog.Ancestor(p, c.partitions)"}}, lostShard},
	{"a read of a shard that goes away has no end", []edit{{shardStateFile, "	defer context.AfterFunc(st.present, cancel)() ", "	_ = st.present "}}, readsEnd},
	{"a read that ends with its shard does not say so", []edit{{shardStateFile, "		return context.Cause(st.present) ", "		return err "}}, readsEnd},
	{"a read whose caller has left blames the shard", []edit{{shardStateFile, "inner.Err() != nil && ctx.Err() == nil", "inner.Err() != nil"}}, readsEnd},
	{"a shard that falls silent in a switch disagrees", []edit{{"internal/shards/read.go", "3*c.cfg.Interval+2*c.cfg.Patience", "3*c.cfg.Interval"}}, check{"./internal/shards", "^TestSilentAfterASwitch$", false}},
	{"a shard that is back is away for reads", []edit{{shardStateFile, "now.held, now.present, now.leave = was.held, nil, nil", "now.held = was.held"}}, readsEnd},
	{"users that were not read are in the order of shards", []edit{{"internal/shards/unread.go", "	slices.Sort(places)\n", ""}}, unreadOrder},
	{"a lost partition is waited for by each read", []edit{{shardStateFile, "!since.IsZero() && time.Since(since) > moveWait", "since.IsZero() && time.Since(since) < 0"}}, readsLost},
	{"a query fails as a whole while a shard is away", []edit{{queryFile, "		if err != nil && !ok {", "		if err != nil && (!ok || true) {"}}, queriesAway},
	{"a badge that could not be read is 0", []edit{{queryFile, "return !slices.Contains(complete, b.UserID) })", "return false })"}}, queriesAway},
	{"a query does not name the users that it lacks", []edit{{"internal/httpapi/problem.go", ", UserIDs: unread.UserIDs}", "}"}}, queriesAway},
	{"a fault of the server is one of a shard", []edit{{"internal/httpapi/problem.go", "ok && p.Status == http.StatusServiceUnavailable", "ok"}}, queriesAway},
	{"a repeated migrate up grants nothing", []edit{{grantFile, "for _, r := range roles {", "for _, r := range roles[:0] {"}}, grantedAgain},
	{"each migrate up grants again", []edit{{grantFile, "granted_as <> $1 AND", "granted_as <> $1 || 'x' AND"}}, grantedAgain},
	{"messages that wait name an erased user", []edit{
		{eraseAllFile, "	if c.Sharded() { // what waits", "	if false { // what waits"},
		{"projector/erasure/erase.go", "eraseHints(ctx, e.conn, e.cfg.UserID); err != nil", "(Counts{}), nil; err != nil"},
	}, erasedWaiting},
	{"messages on their way name an erased user", []edit{{eraseAllFile, "	if c.Sharded() { // what waits", "	if false { // what waits"}}, erasedOnWay},
	{"messages that wait again name an erased user", []edit{{hintsEraseFile, "again = again || locked < len(ids)", "again = again && locked < len(ids)"}}, erasedAgain},
	{"an export has nothing of what waits", []edit{{"projector/erasure/export.go", "if err := x.hints(ctx); err != nil {", "if err := error(nil); err != nil {"}}, erasedWaiting},
}
