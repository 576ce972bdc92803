package main

// mutant is a way to break badged that must not go unnoticed.
type mutant struct {
	name  string
	edits []edit
	// caught is the tests of which one must fail.
	caught check
}

// edit replaces a text that a file, named from the root, has exactly once.
type edit struct{ file, old, new string }

// check is some tests of a package, named as for go test.
type check struct {
	pkg, run string
	rapid    bool // whether the package has property tests
}

const (
	foldFile    = "projector/fold.go"
	batchFile   = "projector/batch.go"
	stepFile    = "projector/partition.go"
	sweepFile   = "projector/expiry_sweep.go"
	keysFile    = "projector/dedup.go"
	boundedFile = "projector/boundedset.go"
	rangeFile   = "projector/rangeset.go"
	shadowFile  = "projector/shadow.go"
	readFile    = "events/read.go"
	decodeFile  = "events/decode_own.go"
	mailboxFile = "gateway/mailbox.go"
	clusterFile = "pubsub/redis_cluster.go"
	listenFile  = "pubsub/redis_listener.go"
)

// The checks.
var (
	pure       = check{"./projector", "^(TestFoldAgreesWithTheModel|TestOrderDoesNotMatter|TestStories)$", true}
	sets       = check{"./projector", "^(TestBoundedSet|TestBlockOfABoundedSet|TestSparseRoom|TestRangeSet|TestUnusualSets)", true}
	inTables   = check{"./projector", "^TestTablesAgreeWithTheModel$", true}
	fenced     = check{"./projector", "^(TestFence|TestTwoProjectorsOnOnePartition)$", true}
	unknown    = check{"./projector", "^(TestRepeatsThatTheOwnerDoesNotKnow|TestRepeatsWithinABatch)$", false}
	keys       = check{"./projector", "^(TestKeysAreRememberedForThreeGenerations|TestBatchCutsDoNotShowAcrossRotations)$", true}
	rotated    = check{"./projector", "^TestGenerationIsFenced$", false}
	remembered = check{"./projector", "^(TestRevisionMakesTheOwnerReadAgain|TestCacheGoesWithThePartition|TestFence|TestAnyAnswerIsLost)$", false}
	fetched    = check{"./projector", "^(TestCacheSavesLoading|TestConcurrentPublishers)$", true}
	owned      = check{"./projector", "^TestTakeOverFromOneThatIsKilled$", false}
	concurrent = check{"./projector", "^TestConcurrentPublishers$", true}
	crashes    = check{"./projector", "^TestInterruptedAnywhere$", true}
	letters    = check{"./projector", "^(TestBadEventsArePutAside|TestABatchOfBadEventsOnly)$", true}
	swept      = check{"./projector", "^(TestSweep|TestProgress|TestMended|TestDeliveredHour)", true}
	rebuilt    = check{"./projector", "^(TestRebuildAcross|TestRebuildFinds|TestRebuildKeeps|TestRebuildRevises|TestRebuildWaits)", true}
	decoded    = check{"./events", "^(TestWaysToDecodeAgree|FuzzDecode)$", true}
	told       = check{"./gateway", "^TestMailboxDeliversTheTruth$", true}
	commands   = check{"./gateway", "^TestCommands$", true}
	limits     = check{"./gateway", "^(TestConnectionsThatAreTooMany|TestCommandsThatAreTooMany|TestAddressOf)$", false}
	moved      = check{"./pubsub", "^(TestRedisClusterSlotMoves|TestRedisClusterMasterIsKilled)$", true}
	ready      = check{"./internal/obs", "^TestReady", false}
	keySets    = check{"./internal/auth", "^(TestKeysOfASet|TestUnknownKidsAskSeldom|TestLoginServiceThatIsDown)$", false}
)

var mutants = []mutant{
	{"the read position moves back", []edit{{
		foldFile,
		"	if seq <= c.readSeq {\n		return\n	}\n	c.readSeq, c.touched",
		"	c.readSeq, c.touched",
	}}, pure},
	{"the sender's own message counts", []edit{{foldFile, "if d.SenderID == u.id {", "if false {"}}, pure},
	{"a recall before its message is forgotten", []edit{{
		foldFile, "d.Seq <= c.readSeq || c.recalled.contains(d.Seq)", "d.Seq <= c.readSeq",
	}}, pure},
	{"a message at the read position counts", []edit{{
		foldFile, "d.Seq <= c.readSeq || c.recalled.contains(d.Seq)", "d.Seq < c.readSeq || c.recalled.contains(d.Seq)",
	}}, pure},
	{"a read leaves the message at its position", []edit{{
		foldFile, "c.unread.removeUpTo(seq)", "c.unread.removeUpTo(seq - 1)",
	}}, pure},
	{"the total does not follow the level", []edit{{
		foldFile,
		"		return u.change(d.ConversationID, func(c *conversation) { c.setLevel(d.Level) })",
		"		c := u.conversation(d.ConversationID)\n		if c.level == d.Level {\n			return false\n		}\n" +
			"		c.setLevel(d.Level)\n		u.version++\n		c.version = u.version\n		return true",
	}}, pure},
	{"mentions count under the level none", []edit{{foldFile, "if c.level != events.LevelNone {", "if true {"}}, pure},
	{"marked unread counts under the level none", []edit{{
		foldFile, "case c.level == events.LevelNone:\n		return 0", "case c.level == events.LevelNone && !c.marked:\n		return 0",
	}}, pure},
	{"who leaves has not read", []edit{{foldFile, "	c.read(c.lastSeq)\n	if !c.left() {", "	if !c.left() {"}}, pure},
	{"read_all ignores the category", []edit{{foldFile, `if category != "" && c.category != category {`, "if false {"}}, pure},
	{"a change leaves the version", []edit{{foldFile, "	u.version++\n	c.version = u.version", "	c.version = u.version"}}, pure},
	{"the version grows without a change", []edit{{
		foldFile, "	if !u.update(c, f) {\n		return false\n	}\n", "	u.update(c, f)\n",
	}}, pure},
	{"past the bound ranges are dropped uncounted", []edit{{
		boundedFile, "		s.block.count += oldest.hi - oldest.lo + 1\n", "",
	}}, sets},
	{"a range loses its first seq", []edit{{rangeFile, "		s.ranges[i].lo = seq\n", ""}}, sets},

	{"an event that comes again is folded again", []edit{{
		batchFile, "if _, ok := state.fresh[it.key]; !ok {", "if false {",
	}}, inTables},
	{"an event that comes twice in a batch is folded twice", []edit{{
		batchFile, "		delete(state.fresh, it.key) // a second one in this batch is a duplicate\n", "",
	}}, unknown},
	{"the keys of older generations are forgotten", []edit{{keysFile, "g >= max(1, generation-windowSpans)", "g >= generation"}}, keys},
	{"the keys of one more generation are probed", []edit{{
		keysFile, "g >= max(1, generation-windowSpans)", "g >= max(1, generation-windowSpans-1)",
	}}, keys},
	{"a key that an older generation has is taken for new", []edit{{keysFile, "tag.RowsAffected() != int64(keys)", "tag.RowsAffected() > int64(keys)"}}, unknown},
	{"keys are forgotten within a batch", []edit{{
		"projector/recentkeys.go", "	_, known := r.old[half]\n", "	_, known := r.old[half]\n	r.turn()\n",
	}}, unknown},
	{"an owner that was wrong about what is new is wrong again", []edit{{batchFile, "recent.note(it.key) || all", "recent.note(it.key)"}}, unknown},
	{"a generation of keys begins behind the batch that begins it", []edit{{
		batchFile, "b.generation, b.from.TransactionID, b.from.Offset)", "b.generation, b.to.TransactionID, b.to.Offset)",
	}}, keys},
	{"whoever folds again never forgets a key", []edit{{
		"projector/dedupmemory.go", "		m.keys[0] = map[uuid.UUID]struct{}{}\n", "",
	}}, pure},
	{"the position moves without the rows", []edit{{batchFile, "size := t.queueWrites(&writes, touched)", "size := 0"}}, inTables},
	{"read_all does not load what it reads", []edit{{batchFile, "if len(m.readAll) > 0 {", "if false {"}}, fetched},
	{"a bad event is dropped silently", []edit{{
		batchFile, "b.dead = append(b.dead, deadLetter{record: records[i], reason: err.Error()})", "",
	}}, letters},
	{"the fence lets everybody through", []edit{{
		readFile,
		"AND last_processed_transaction_id = $2::bigint::text::xid8 AND offset_acked = $3`",
		"AND $2::bigint IS NOT NULL AND $3::bigint IS NOT NULL`",
	}}, fenced},
	{"an owner ignores the fence", []edit{{batchFile, "				return errFenced\n", "				return nil\n"}}, fenced},
	{"an owner does not see that a generation of keys has begun", []edit{{
		batchFile, "case state.generation != known.generation:", "case state.generation < known.generation:",
	}}, rotated},
	{"an owner does not see that rows were changed beside it", []edit{{
		batchFile, "case state.revision != known.revision:", "case state.revision < known.revision:",
	}}, remembered},
	{"an owner that does not know where it stands remembers rows all the same", []edit{{
		stepFile, ") (err error) {\n	p.cache.clear()\n", ") (err error) {\n",
	}}, remembered},
	{"who has lost its session folds on", []edit{{
		"projector/ownership.go", "	defer h.drop() // before the connection closes\n", "",
	}}, owned},
	{"what an open transaction may precede is read", []edit{{
		readFile, "transaction_id < (SELECT pg_snapshot_xmin(pg_current_snapshot())) AS settled", "true AS settled",
	}}, concurrent},
	{"clients are told before the commit", []edit{
		{
			batchFile,
			"	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {\n		return result{}, fmt.Errorf(\"write: %w\", err)\n	}\n" +
				"	r.updates = updatesOf(touched, t.partition, state.epoch, heard)\n",
			"	r.updates = updatesOf(touched, t.partition, state.epoch, heard)\n" +
				"	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {\n		return r, fmt.Errorf(\"write: %w\", err)\n	}\n",
		},
		{stepFile, "	p.projector.enqueue(r.updates)\n", ""},
		{
			stepFile,
			"	r, err := b.commit(batchCtx, conn.Conn(), p.tables, p.cache, p.standing, p.projector.cfg.Bus.Heard)\n",
			"	r, err := b.commit(batchCtx, conn.Conn(), p.tables, p.cache, p.standing, p.projector.cfg.Bus.Heard)\n	p.projector.enqueue(r.updates)\n",
		},
	}, crashes},

	{"an event in our own form is not validated", []edit{{decodeFile, "return e, len(p) == 0", "return e, true"}}, decoded},
	{"what follows an event in our own form is passed over", []edit{{decodeFile, "r.failed || len(r.rest) > 0", "r.failed"}}, decoded},

	{"the hour of the last delivery goes back", []edit{{foldFile, "hour > c.deliveredHour", "hour != c.deliveredHour"}}, swept},
	{"a sweep goes past what is not folded", []edit{{sweepFile, "hourOf(now.Add(-max(writer.Age, lags[0].Age)))", "hourOf(now.Add(-writer.Age))"}}, swept},
	{"a sweep goes past what it could not expire", []edit{{sweepFile, "err != nil || !folds || before <= swept", "err != nil || before <= swept"}}, swept},
	{"a sweep begins where the last one ended", []edit{{sweepFile, "max(0, swept-sweepOverlap)", "swept"}}, swept},
	{"a sweep that was overtaken keeps its progress", []edit{{sweepFile, "swept_hour = $3`", "$3::integer >= 0`"}}, swept},
	{"mending leaves the sweep where it was", []edit{{"projector/mend.go", "	batch.Queue(resetExpirySQL, in.partition)\n", ""}}, swept},

	{"a rebuild swaps tables behind the owner's back", []edit{{shadowFile, ", revision = revision + 1", ""}}, rebuilt},
	{"a rebuild folds again what came twice", []edit{{shadowFile, "dead == nil && !s.keys.duplicate(it.key, records[i].Position)", "dead == nil"}}, rebuilt},
	{"a rebuild compares nobody again who was touched", []edit{{shadowFile, "s.touched[id] = struct{}{}", "_ = id"}}, rebuilt},
	{"a rebuild forgets generations that begin meanwhile", []edit{{shadowFile, "	s.keys.extend(in.generations[s.generations:])\n", ""}}, rebuilt},
	{"a rebuild takes who was mended for wrong", []edit{{shadowFile, "if _, ok := mends[id]; ok {", "if _, ok := mends[id]; ok && false {"}}, rebuilt},
	{"a rebuild takes who was mended for right afterwards", []edit{{
		shadowFile, "DELETE FROM badged.mended_users WHERE partition_id = $1", "DELETE FROM badged.mended_users WHERE partition_id <> $1",
	}}, rebuilt},

	{"a client reads what it was not given", []edit{{"gateway/commands.go", "min(f.UpToSeq, last)", "f.UpToSeq"}}, commands},
	{"an update is told though one before it was lost", []edit{{
		mailboxFile, "case u.Epoch != m.epoch || u.BaseVersion > m.held:", "case u.Epoch != m.epoch:",
	}}, told},
	{"an old update is told over a newer state", []edit{{
		mailboxFile, "case u.Epoch == m.epoch && u.Version <= m.held:", "case false:",
	}}, told},
	{"what came during the snapshot is forgotten", []edit{{
		mailboxFile, "	if m.heardEpoch == epoch && m.heard > version {\n		return false\n	}\n", "",
	}}, told},

	{"a user has as many connections as it likes", []edit{{"gateway/gateway.go", "most > 0 && g.users[userID] >= most", "most < 0"}}, limits},
	{"who leaves makes no room", []edit{{"gateway/gateway.go", "if g.users[userID]--; g.users[userID] == 0", "if g.users[userID] == 0"}}, limits},
	{"commands that come too soon are all told the same time", []edit{{"gateway/limits.go", "	a.refused++\n", ""}}, limits},
	{"anybody says where it comes from", []edit{{"gateway/address.go", "!ok || !isTrusted(address, trusted)", "!ok"}}, limits},
	{"tokens that are made up have the keys fetched", []edit{{"internal/auth/keyset.go", "time.Since(s.startedAt) < s.cfg.AskInterval", "s.startedAt.IsZero()"}}, keySets},
	{"a login service that is away has no keys", []edit{{"internal/auth/keyset.go", "if s.err = err; err == nil {", "if s.err = err; true {"}}, keySets},
	{"secrets are taken from a key set", []edit{{"internal/auth/jwk.go", "	default:\n		return tokenKey{}, errors.New(\"its type", "	case k.Kty == \"oct\":\n		key.method, key.key = jwt.SigningMethodHS256, []byte(\"0123456789abcdef0123456789abcdef\")\n	default:\n		return tokenKey{}, errors.New(\"its type"}}, keySets},

	{"a slot that moves is not noticed", []edit{{listenFile, `if reply.Kind == "sunsubscribe" {`, "if false {"}}, moved},
	{"a master that is dead is asked for ever", []edit{{
		clusterFile, "	if r.cluster != nil {\n		r.cluster.client.ReloadState", "	if false {\n		r.cluster.client.ReloadState",
	}}, moved},
	{"a frozen Redis hides Postgres from readiness", []edit{{
		"internal/obs/health.go", "running.Go(func() { errs[i] = c.Run(ctx) })", "errs[i] = c.Run(ctx)",
	}}, ready},
}
