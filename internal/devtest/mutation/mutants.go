package main

// mutant is a bug that the tests must detect.
type mutant struct {
	name  string
	edits []edit
	// caught names tests. At least one of them must fail.
	caught check
}

// edit replaces the text old in a file, whose path is relative to the root of the repository. The
// file must contain old exactly once.
type edit struct{ file, old, new string }

// check is a set of tests of one package; run is the regular expression for go test.
type check struct {
	pkg, run string
	rapid    bool // whether the package has property tests
}

const (
	tokenLimitsFile  = "internal/server/httpapi/tokenlimits.go"
	foldFile         = "internal/fold/badge/fold.go"
	numbersFile      = "internal/base/category/numbers.go"
	conversationFile = "internal/fold/badge/conversation.go"
	stateRoom        = "internal/fold/badge/state.go"
	pushRoutes       = "internal/notify/push/routes.go"
	memberFile       = "internal/fold/badge/membership.go"
	marksFile        = "internal/fold/badge/marks.go"
	resetFile        = "internal/fold/badge/reset.go"
	roomResetFile    = "internal/fold/badge/roomreset.go"
	chunkFile        = "internal/fold/badge/chunk.go"
	loadsFile        = "internal/fold/store/missing.go"
	claimsFile       = "internal/fold/badge/readahead.go"
	stateFile        = "migrations/00002_tables.sql"
	tablesFile       = "internal/fold/store/tables.go"
	storeFile        = "internal/fold/store/store.sql"
	batchFile        = "internal/fold/store/batch.go"
	stepFile         = "projector/partition.go"
	sweepFile        = "internal/user/expiry/sweep.go"
	keysFile         = "internal/fold/store/dedup.go"
	windowFile       = "internal/fold/keys/window.go"
	checkFile        = "internal/fold/keys/check.go"
	mergerFile       = "internal/fold/keys/merger.go"
	mergeFile        = "internal/fold/keys/merge.go"
	blocksFile       = "internal/fold/keys/keys.sql"
	boundedFile      = "internal/fold/badge/boundedset.go"
	rangeFile        = "internal/fold/badge/rangeset.go"
	stagingFile      = "internal/partition/rebuild/staging.go"
	readFile         = "internal/fold/logread/read.go"
	rowFile          = "internal/fold/logread/row.go"
	subFile          = "events/topics/subscriber.go"
	groupFile        = "internal/log/groupcommit/group.go"
	packFile         = "internal/log/eventbatch/eventbatch.go"
	repairFile       = "internal/partition/renumber/renumber.go"
	routesFile       = "events/rooms.go"
	decodeFile       = "events/decode.go"
	sqlFile          = "migrations/00004_publish.sql"
	mailboxFile      = "gateway/internal/view/mailbox.go"
	accountFile      = "gateway/internal/view/account.go"
	busKeysFile      = "pubsub/redis_keys.go"
	clusterFile      = "pubsub/redis_cluster.go"
	listenFile       = "pubsub/redis_listener.go"

	outboundFile = "internal/notify/outbound/outbound.sql"
)

// Checks of reading, replaying, rebuilding and archiving rooms.
var (
	membersRead   = check{"./projector/badges", "^TestReadMembers$", false}
	roomsVerified = check{"./internal/partition/replay", "Rooms", true}
	roomsRebuilt  = check{"./internal/partition/rebuild", "^TestRebuildRepairsRooms$", false}
	roomsArchived = check{"./internal/partition/archiving", "^TestArchiveRooms$", false}
	roomsRestored = check{"./internal/partition/archiving", "^TestRestore$", false}
)

// All other checks.
var (
	pure        = check{"./internal/fold/store", "^(TestFoldAgreesWithTheModel|TestOrderDoesNotMatter|TestStories|TestDeliveredHourDoesNotDependOnOrder)$", true}
	recents     = check{"./internal/fold/store", "^(TestMarksReachBackToWhatIsKnown|TestMarkedMessagesOfClosedChunks)$", false}
	resets      = check{"./internal/fold/store", "^TestResetsGoBackToClosedChunks$", false}
	chunks      = check{"./internal/fold/store", "^TestClosedChunksAreMerged$", false}
	chunkRows   = check{"./projector", "^TestRowsOfMergedChunks$", false}
	ends        = check{"./projector", "^TestRowsOfARoomThatEnds$", false}
	revisions   = check{"./internal/fold/store", "^(TestRevisionsAreBounded|TestRestoredMessagesOfTheCountedPart)$", false}
	leaps       = check{"./projector", "^TestSeqsFarAheadAreLogged$", false}
	rooms       = check{"./internal/fold/store", "Room", true}
	roomTables  = check{"./projector", "^TestRoomTablesAgreeWithAReplay$", true}
	ranked      = check{"./migrations", "^TestRank$", false}
	claimed     = check{"./internal/fold/store", "^(TestFoldAgreesWithTheModel|TestReadsAheadOfTheLog|TestClaims)", true}
	claimsKept  = check{"./internal/partition/archiving", "^TestClaimsAreKept$", false}
	sets        = check{"./internal/fold/badge", "^(TestBoundedSet|TestBlockOfABoundedSet|TestRangeSet|TestWords|TestDenseConversations|TestFirstUnread)", true}
	inTables    = check{"./projector", "^TestTablesAgreeWithTheModel$", true}
	fenced      = check{"./projector", "^(TestFence|TestTwoProjectorsOnOnePartition)$", true}
	repeats     = check{"./projector", "^(TestRepeatsAfterATakeover|TestRepeats|TestRepeatsWithinABatch)$", false}
	merged      = check{"./internal/fold/keys", ".", true}
	keys        = check{"./projector", "^(TestKeysAreRememberedForThreeGenerations|TestBatchCutsDoNotShowAcrossRotations)$", true}
	retried     = check{"./projector", "^(TestRetriesForOtherUsers|TestTablesAgreeWithTheModel)$", true}
	remembered  = check{"./projector", "^(TestRevisionMakesTheOwnerReadAgain|TestCacheOfNewUsers|TestRowsThatAreGone|TestCacheGoesWithThePartition|TestFence|TestAnyAnswerIsLost)$", false}
	fetched     = check{"./projector", "^(TestCacheSavesLoading|TestConcurrentPublishers)$", true}
	readAll     = check{"./projector", "^TestReadAllLoadsWhatItChanges$", false}
	owned       = check{"./projector", "^TestTakeOverFromAKilledOwner$", false}
	crashes     = check{"./projector", "^TestInterruptedAnywhere$", true}
	repaired    = check{"./internal/partition/renumber", "^(TestRepairLogWhereIDsCoincide|TestRepairLogOfACopyOfACopy|TestRepairLogTwice|TestRepairLog|TestRepairKeepsTheOrder)$", true}
	forged      = check{"./projector", "^TestForgedExpiryIsADeadLetter$", false}
	letters     = check{"./projector", "^(TestBadEventsArePutAside|TestABatchOfBadEventsOnly|TestBadEventsOfBatches)$", true}
	swept       = check{"./internal/user/expiry", "^(TestSweep|TestProgress|TestHealed)", true}
	rebuilt     = check{"./internal/partition/rebuild", "^(TestRebuildAcross|TestRebuildFinds|TestRebuildKeeps|TestRebuildRevises|TestRebuildWaits)", true}
	packing     = check{"./internal/log/eventbatch", ".", false}
	pages       = check{"./internal/fold/logread", ".", false}
	grouped     = check{"./internal/log/groupcommit", ".", false}
	appended    = check{"./projector", "^(TestAppend|TestCacheAfterARefusedAppend)", false}
	polled      = check{"./projector", "^TestPoll", false}
	overtaken   = check{"./projector", "^TestOpenTransactionsDelayNothing$", false}
	restored    = check{"./internal/partition/renumber", "^TestRepairLogWithPendingTransactions$", false}
	subscribed  = check{"./events/topics", "^TestSubscriber(LeavesOutPendingEvents|UnpacksRows|OutlivesItsSession)$", false}
	decoded     = check{"./events", "^(TestWaysToDecodeAgree|FuzzDecode)$", true}
	pushed      = check{"./internal/notify/outbound", "^(TestDeviceIsToldWhatChanged|TestGoneDevice)$", false}
	said        = check{"./internal/notify/outbound", "^(TestWhatTheProjectorSaysIsNotRead|TestFirstEventsBeforeTheNotifier)$", false}
	notified    = check{"./internal/notify/outbound", "^TestAlert", false}
	recorded    = check{"./internal/notify/outbound", "^TestRecordsOfCalls$", false}
	succeeded   = check{"./internal/notify/webhook", "^TestSuccessWithEarlierSettingsIsRecorded$", false}
	sent        = check{"./internal/notify/push", "^(TestReports|TestAPNsKeepsOneConnection)$", false}
	hooks       = check{"./internal/notify/webhook", "^TestSecretsRotate$", false}
	inFlight    = check{"./internal/notify/push", "^(TestSlowRoutesShareRoom|TestAFastRouteBecomesSlow|TestAUserHasPartOfWhatIsInFlight)$", false}
	redirected  = check{"./internal/notify/push", "^TestRedirectsAreNotFollowed$", false}
	news        = check{"./internal/notify/webhook", "^TestWhatIsNews$", false}
	byPosition  = check{"./internal/notify/outbound", "^(TestNothingIsStoredWhileAnEndpointIsAway|TestRefusedSubjectHoldsUpNoOther|TestWebhookCatchesUp)$", false}
	mayHaveCome = check{"./internal/notify/outbound", "MayHaveComeAreFollowed$", false}
	puts        = check{"./internal/operations", "^TestPutsDoNotUndoEachOther$", false}
	oneJoin     = check{"./projector", "^TestOneJoinDoesNotSilenceARoom$", false}
	routed      = check{"./events", "^(TestRoom|TestPublishSQLRoutesRoomsLikeGo)", true}
	inSQL       = check{"./events", "^TestPublishSQL", true}
	told        = check{"./gateway", "^TestMailboxConverges$", true}
	claims      = check{"./gateway", "^TestReadsAheadOfARoomAreRepeated$", true}
	members     = check{"./gateway", "^(TestAccountsConverge|TestAccountFollowsItsRoom|TestAccountsAreReadAgain)$", true}
	ahead       = check{"./gateway", "^(TestForged|TestRewoundTables|TestReadBeforeACommit)", false}
	epochs      = check{"./projector", "^(TestAnotherLife|TestOneOfManyBegins|TestPositionBehind|TestBatchOfFormerEpoch|TestConversationsAreCounted)", false}
	signed      = check{"./pubsub", "^TestRedisDropsUnsignedMessages$", false}
	commands    = check{"./gateway", "^TestCommands$", true}
	marks       = check{"./gateway", "^TestMark", false}
	invalid     = check{"./gateway", "^TestInvalidFramesEndNoSession$", false}
	limits      = check{"./gateway", "^(TestConnectionsOverALimit|TestCommandsOverTheRate|TestCommandsOfAUserAreCountedTogether|TestSignsOfLifeOverTheRate|TestFloodIsClosed)$", false}
	addresses   = check{"./internal/base/limit", "^TestAddressOf$", false}
	readers     = check{"./tests", "^(TestReadsOfAppsAreLimited|TestReadsOfAppsHaveARate|TestManyReadersTogetherAreLimited|TestSocketsOfAUserLeaveQueriesToOthers)$", false}
	pagesOfSets = check{"./projector/badges", "^TestReadTheSetsOfThePageAlone$", false}
	moved       = check{"./pubsub", "^(TestRedisClusterSlotMoves|TestRedisClusterMasterIsKilled)$", true}
	ready       = check{"./internal/obs", "^TestReady", false}
	pressed     = check{"./internal/bridge/backpressure", ".", false}
	repeating   = check{"./internal/obs", "^TestDifferentErrorsAreAllLogged$", false}
	triedKeys   = check{"./internal/server/httpapi", "^TestAttempts$", false}
	guarded     = check{"./internal/demo", "^TestGuard$", false}
	strangers   = check{"./internal/server/inbound", ".", false}
	freshTokens = check{"./gateway", "^TestFreshTokenThatEndsSooner$", false}
	tokenClaims = check{"./internal/server/auth", "^TestTokens$", false}
	keySets     = check{"./internal/server/auth", "^(TestKeysOfASet|TestUnknownKidsRarelyFetch|TestLoginServiceThatIsDown)$", false}
)

var mutants = []mutant{
	{"the read position moves back", []edit{{
		conversationFile,
		"\tif seq <= c.ReadPosition() {\n\t\treturn\n\t}\n\tc.ReadSeq, c.Touched",
		"\tc.ReadSeq, c.Touched",
	}}, pure},
	{"a recalled message that is marked counts again", []edit{{
		conversationFile, "c.Recalled.Contains(seq) || !c.MarkedUnread.Add(seq)", "!c.MarkedUnread.Add(seq)",
	}}, pure},
	{"a recall leaves a message that counts again", []edit{{conversationFile, "		c.MarkedUnread.Remove(seq)\n", ""}}, pure},
	{"a marked message survives its read", []edit{{
		conversationFile, "c.Marked, c.MarkedUnread, c.Touched = false, RangeSet{}, true", "c.Marked, c.Touched = false, true",
	}}, pure},
	{"the sender's own message counts", []edit{{foldFile, "if d.SenderID == u.ID {", "if false {"}}, pure},
	{"a recall before its message is forgotten", []edit{{
		conversationFile, "case c.Recalled.Contains(d.Seq):", "case false:",
	}}, pure},
	{"a message at the read position counts", []edit{{
		conversationFile, "case d.Seq <= c.ReadSeq:", "case d.Seq < c.ReadSeq:",
	}}, pure},
	{"a read leaves the message at its position", []edit{{
		conversationFile, "c.Unread.RemoveUpTo(seq)", "c.Unread.RemoveUpTo(seq - 1)",
	}}, pure},
	{"the total does not follow the level", []edit{{
		foldFile,
		"		return u.change(d.ConversationID, func(c *Conversation) Reason { return c.setLevel(d.Level, d.Until) })",
		"		c := u.Conversation(d.ConversationID)\n		if c.Level == d.Level {\n			return false, none\n		}\n" +
			"		c.setLevel(d.Level, d.Until)\n		u.Version++\n		c.Version = u.Version\n		return true, none",
	}}, pure},
	{"mentions count under the level none", []edit{{numbersFile, "return Numbers{Muted: Muted{c.Full, c.Conversations}}", "return Numbers{Mentions: c.Mentions, Muted: Muted{c.Full, c.Conversations}}"}}, pure},
	{"marked unread counts under the level none", []edit{{numbersFile, "return Numbers{Muted: Muted{c.Full, c.Conversations}}", "return Numbers{Total: c.Marked, Muted: Muted{c.Full, c.Conversations}}"}}, pure},
	{"leaving does not read", []edit{{conversationFile, "	c.readAll(c.LastSeq)\n	if seq = max", "	if seq = max"}}, pure},
	{"a message up to where the user left counts later", []edit{{foldFile, "max(u.ReadsAhead.Reach(c.ID, d.Seq), min(c.LeftSeq, d.Seq))", "u.ReadsAhead.Reach(c.ID, d.Seq)"}}, pure},
	{"leaving an unknown conversation is published", []edit{{conversationFile, "c.Left() && c.Version > 0", "c.Left()"}}, pure},
	{"an older read ends a mark", []edit{{conversationFile, "func (c *Conversation) read(seq int64) Reason {\n\tif seq >= c.ReadPosition() {", "func (c *Conversation) read(seq int64) Reason {\n\tif seq >= 0 {"}}, pure},
	{"an app reads what was not delivered", []edit{{conversationFile, "c.moveTo(min(seq, last))", "c.moveTo(seq)"}}, pure},
	{"what an app read ahead is forgotten", []edit{{foldFile, "max(u.ReadsAhead.Reach(c.ID, d.Seq), min(c.LeftSeq, d.Seq))", "min(c.LeftSeq, d.Seq)"}}, claimed},
	{"what an app read ahead is forgotten by the tables", []edit{{tablesFile, "		case u.Version == u.Stored && !u.ReadsAheadChanged:", "\t\tcase u.Version == u.Stored:"}}, claimsKept},
	{"a read ahead never expires", []edit{{claimsFile, "return c.Until < now", "return false"}}, claimed},
	{"reads ahead extend each other", []edit{{claimsFile, "	*s = append(slices.DeleteFunc(*s, c.covers), c)", "	for i := range *s {\n		(*s)[i].Until = max((*s)[i].Until, c.Until)\n	}\n	*s = append(slices.DeleteFunc(*s, c.covers), c)"}}, claimed},
	{"reads ahead cut each other short", []edit{{claimsFile, "return c.Conversation == other.Conversation && c.UpTo >= other.UpTo && c.Until", "return c.Conversation == other.Conversation && c.Until"}}, claimed},
	{"an app makes up conversations without end", []edit{{claimsFile, "surplus := len(*s) - MaxReadsAhead; surplus > 0", "surplus := len(*s) - MaxReadsAhead; surplus > MaxReadsAhead*MaxReadsAhead"}}, claimed},
	{"read_all ignores the category", []edit{{foldFile, "if path != \"\" && !category.Covers(path, state.category(c)) {", "if false {"}}, pure},
	{"a change leaves the version", []edit{{foldFile, "\tu.Version++\n\tc.Version = u.Version", "\tc.Version = u.Version"}}, pure},
	{"the version grows without a change", []edit{{
		foldFile, "	if changed, reason = u.update(c, f); changed {\n		u.raise(c)\n	}\n", "	changed, reason = u.update(c, f)\n	u.raise(c)\n",
	}}, pure},
	{"own messages in a room count", []edit{{stateRoom, "	c.Membership.Own.Add(p.seq)\n", ""}}, rooms},
	{"own messages that mention all are mentions", []edit{{stateRoom, "	if p.all {\n		c.Membership.OwnAll", "	if false {\n		c.Membership.OwnAll"}}, rooms},
	{"at direct_mentions messages that mention all count", []edit{{memberFile, "		if direct {\n			return max(0, live-own), mentions + namedAll", "		if false {\n			return max(0, live-own), mentions + namedAll"}}, rooms},
	{"a mention by name is forgotten if the message mentions all", []edit{{stateRoom, "Mark{Touched: true})\n	c.named(p.all).Add(p.seq)\n", "Mark{Touched: true})\n	c.Mentions.Add(p.seq)\n"}}, rooms},
	{"a mention by name ends when the message mentions all, too", []edit{{stateRoom, "			c.Membership.NamedAll.Add(p.seq)\n", ""}}, rooms},
	{"a recall leaves a mention by name", []edit{{stateRoom, "member.named(all).Remove(seq)", "member.Mentions.Remove(seq)"}}, rooms},
	{"a restored message does not count", []edit{{conversationFile, "if c.Recalled.Remove(d.Seq) {", "if false {"}}, pure},
	{"a restored message is not counted where seqs are only counted", []edit{{conversationFile, "			c.Unread.restore(d.Seq)\n", ""}}, revisions},
	{"an edit keeps a mention", []edit{{conversationFile, "		c.Mentions.take(d.Seq)\n", ""}}, pure},
	{"a late delivery brings a mention back", []edit{{conversationFile, "mentioned = mentioned && !c.Revisions.has(d.Seq)", "mentioned = mentioned || false"}}, pure},
	{"an old revision applies", []edit{{"internal/fold/badge/revisions.go", "	case number <= (*r)[i].Number:\n		return false\n", ""}}, pure},
	{"revisions have no bound", []edit{{"internal/fold/badge/revisions.go", "		*r = (*r)[max(0, len(*r)-maxRevisions):]\n", ""}}, revisions},
	{"a reset keeps revisions", []edit{{resetFile, "	c.Revisions = nil\n", ""}}, pure},
	{"a reset keeps the last message", []edit{{resetFile, "c.ReadSeq, c.SeenSeq, c.LastSeq, c.LeftSeq = upTo, 0, last, leftSeq", "c.ReadSeq, c.SeenSeq, c.LastSeq, c.LeftSeq = upTo, 0, max(c.LastSeq, last), leftSeq"}}, pure},
	{"a reset keeps recalls", []edit{{resetFile, "c.Unread, c.Mentions, c.MarkedUnread, c.Recalled = BoundedSet{}, BoundedSet{}, RangeSet{}, RangeSet{}", "c.Unread, c.Mentions, c.MarkedUnread = BoundedSet{}, BoundedSet{}, RangeSet{}"}}, pure},
	{"a reset keeps what apps have read ahead", []edit{{resetFile, "return c.Conversation == d.ConversationID })", "return false })"}}, pure},
	{"a reset brings a left conversation back", []edit{{resetFile, "if c.Left() && len(seqs) == 0 {", "if false {"}}, pure},
	{"a reset of a member keeps the bound of what is known", []edit{{resetFile, "			m.Sent.Remove(bound)\n			m.begin(upTo)\n", ""}}, rooms},
	{"a reset of a member keeps a mark", []edit{{resetFile, "	m.Reached, c.SeenSeq = 0, 0\n", "	c.SeenSeq = 0\n"}}, rooms},
	{"a reset of a member does not load what the member sent", []edit{{"internal/fold/store/rooms.go", "if items[i].Event.Type == events.ConversationReset {", "if items[i].Event.Type == events.ConversationReset && false {"}}, resets},
	{"joining again keeps the former position", []edit{{memberFile, "if c.Left() {", "if false {"}}, rooms},
	{"an edit in a room keeps mentions by name", []edit{{stateRoom, "			p.mentionsOnly(d.MentionedUserIDs, wasAll)\n", ""}}, rooms},
	{"a restored message of a room does not count", []edit{{stateRoom, "			c.Recalled.Remove(d.Seq)\n", ""}}, rooms},
	{"a late message of a room brings a mention back", []edit{{stateRoom, "		d.MentionedUserIDs, d.MentionsAll = nil, false\n", ""}}, rooms},
	{"an old recall in a room applies", []edit{{stateRoom, "		if !r.Revisions.accept(seq, n) {", "		if r.Revisions.accept(seq, n); false {"}}, rooms},
	{"a reset of a room is folded again", []edit{{roomResetFile, "if !r.resetBy(e) {", "if r.resetBy(e); false {"}}, rooms},
	{"a room that ends keeps its recalls", []edit{{roomResetFile, "&r.Open.Live, &r.Open.All, &r.Open.Recalled}", "&r.Open.Live, &r.Open.All}"}}, rooms},
	{"a room that ends keeps what closed chunks count", []edit{{roomResetFile, "r.Since, r.ClosedLive, r.ClosedAll = 0, 0, 0", "r.Since = 0"}}, rooms},
	{"a room that ends keeps its last message", []edit{{roomResetFile, "	r.LastSeq = last\n", ""}}, rooms},
	{"a room that ends keeps what members sent", []edit{{roomResetFile, "	for _, set := range []*BoundedSet{&c.Mentions, &m.Own, &m.OwnAll, &m.NamedAll} {\n		set.RemoveAbove(last)\n	}\n", ""}}, rooms},
	{"a room that ends keeps what is remembered of members", []edit{{roomResetFile, "	m.Sent.RangeSet, m.Named.RangeSet = m.Sent.cut(last), m.Named.cut(last)\n", ""}}, rooms},
	{"a room that ends does not load its members", []edit{{loadsFile, "		p.missing.ResetRooms = append(p.missing.ResetRooms, d.ConversationID)\n", ""}}, rooms},
	{"the chunks of a room that ends stay", []edit{{"internal/fold/store/rooms.go", "			batch.Queue(t.rooms.deleteChunks, r.ID, r.EndedAt)\n", ""}}, ends},
	{"the marks above the end of a room stay", []edit{{"internal/fold/store/rooms.go", "			batch.Queue(t.rooms.deleteMarks, r.ID, r.EndedAt)\n", ""}}, ends},
	{"a seq that is far ahead is not noticed", []edit{{resetFile, "seq/leapFactor < last", "true"}}, leaps},
	{"a mark in a room reaches before the joining", []edit{{marksFile, "max(from-1, m.known())", "from-1"}}, rooms},
	{"a mark in a room forgets what the member sent", []edit{{marksFile, "			m.Own.Add(seq)\n", ""}}, rooms},
	{"a mark in a room takes recalled messages for the member's own", []edit{{marksFile, "live, all, _ := r.Message(seq); live {", "live, all, _ := r.Message(seq); true || live {"}}, rooms},
	{"a mark in a room forgets mentions by name", []edit{{marksFile, "			c.named(all).Add(seq)\n", ""}}, rooms},
	{"a recall of a marked message does not find the member", []edit{{marksFile, "	r.AddMark(seq, u.ID, Mark{Own: own, Touched: true})\n", ""}}, rooms},
	{"an older read ends a mark in a room", []edit{{conversationFile, "readDelivered(seq, last int64) Reason {\n\tif seq >= c.ReadPosition() {", "readDelivered(seq, last int64) Reason {\n\tif seq >= c.ReadSeq {"}}, recents},
	{"a mark in a room survives its read", []edit{{conversationFile, "	c.unmarkFrom()\n", ""}}, rooms},
	{"what a member sent is forgotten once it is recalled", []edit{{stateRoom, "	if applies {\n		s.recollect(r, &d, live)\n	}\n	if live {", "	if live {\n		s.recollect(r, &d, live)"}}, recents},
	{"a mark reaches back to what was forgotten", []edit{{marksFile, "	if r.Len() > maxRecent+1 {", "	if r.Len() > maxRecent {"}}, recents},
	{"the chunks of a mark in a room are not loaded", []edit{{"internal/fold/store/rooms.go", "				if seq <= room.Since {", "				if false {"}}, recents},
	{"clients see the read position of a mark in a room", []edit{{"pubsub/membership.go", "max(m.ReadSeq, m.ReachedSeq),", "m.ReadSeq,"}}, membersRead},
	{"a mark in a room of the database loses the read position", []edit{{"projector/badges/badges.sql", "coalesce(c.reached_seq, 0)", "0"}}, membersRead},
	{"the version of a member who leaves falls", []edit{{memberFile, "	u.Carried += r.Changes - m.Joined\n", ""}}, rooms},
	{"joining reads nothing", []edit{{memberFile, "cmp.Or(d.UpToSeq, r.LastSeq)", "cmp.Or(d.UpToSeq, c.ReadSeq)"}}, rooms},
	{"recalled messages of a room count", []edit{{stateRoom, "live, all := c.Live.Remove(seq)", "live, all := c.Live.Contains(seq)"}}, rooms},
	{"a recall before its message is forgotten in a room", []edit{{stateRoom, "live := applies && !c.Recalled.Contains(d.Seq)", "live := applies"}}, rooms},
	{"the bound of a chunk belongs to the next", []edit{{chunkFile, "		if c.Bound < seq {", "		if c.Bound <= seq {"}}, rooms},
	{"chunks are merged only in the batch that closes both", []edit{{"internal/fold/store/rooms.go", "r != nil && r.MayClose(n)", "r != nil && r.MayClose(n) && false"}}, chunks},
	{"the rows of merged chunks stay", []edit{{"internal/fold/store/rooms.go", "			batch.Queue(t.rooms.deleteMerged, r.ID, r.Merged)\n", ""}}, chunkRows},
	{"closed messages are not counted", []edit{{chunkFile, "			r.ClosedLive += closed.Live.Len()\n", ""}}, rooms},
	{"a message for members is folded as an ordinary one", []edit{{"internal/fold/store/userset.go", "	members := s.Refused(&item.Event)\n", "	members := s.Refused(&item.Event)[:0:0]\n"}}, rooms},
	{"a message of the room's past is folded without its marks", []edit{{loadsFile, "r == nil || mayHave(r, d.Seq)", "r != nil && mayHave(r, d.Seq)"}}, rooms},
	{"the row of a member who leaves is not written", []edit{{memberFile, "	u.touch(c) // first, since it does nothing if c is already touched\n", ""}}, roomTables},
	{"own messages in a room are unread", []edit{{"projector/badges/badges.sql", "r.live_starts, r.live_before) - c.unread", "r.live_starts, r.live_before)"}}, membersRead},
	{"messages of closed chunks are not read", []edit{{"projector/badges/badges.sql", "THEN ({closed})[1] ELSE 0", "THEN 0 ELSE 0"}}, membersRead},
	{"SQL readers get the own messages of members as unread", []edit{{"migrations/00008_views.sql", "r.live_before) + closed.live - c.unread)", "r.live_before) + closed.live)"}}, membersRead},
	{"the row of a room is not verified", []edit{{"internal/partition/replay/compare.go", "append(all, roomRows(r, rooms), chunkRows(r, rooms))\n	}\n	all = append(all, mark", "append(all, chunkRows(r, rooms))\n	}\n	all = append(all, mark"}}, roomsVerified},
	{"a replay forgets the members of other shares", []edit{{"internal/partition/replay/rooms.go", "			r.room(id).Admit()\n", ""}}, roomsVerified},
	{"a rebuild forgets closed chunks", []edit{{"internal/partition/rebuild/bulkload.go", "		for _, c := range of.Closed {", "		for _, c := range of.Closed[:0] {"}}, roomsRebuilt},
	{"a rebuild does not compare rooms", []edit{{stagingFile, "s.rooms.judge(ctx, snapshot.DifferingRooms)", "error(nil)"}}, roomsRebuilt},
	{"a baseline forgets the marks of rooms", []edit{{"internal/partition/replay/rooms.go", "			room.AddMark(seq, strings.Clone(user), badge.Mark{Own: own})\n", ""}}, roomsArchived},
	{"a restore ends a row with its page", []edit{{"internal/partition/archiving/restore.go", "			open = page[end:]\n			return r.add(ctx, page[:end], f.Shared())\n", "			open = page[len(page):]\n			_ = end\n			return r.add(ctx, page, f.Shared())\n"}}, roomsRestored},
	{"marks outlive a read", []edit{{"internal/fold/store/rooms.go", "	if len(gone.seqs) > 0 {", "	if false {"}}, roomTables},
	{"a rank counts the messages up to the end of a range", []edit{{stateFile, "least(before[width_bucket(seq, starts)] + (seq - starts[width_bucket(seq, starts)]) + 1,\n              before[width_bucket(seq, starts) + 1])", "before[width_bucket(seq, starts) + 1]"}}, ranked},
	{"past the bound ranges are dropped uncounted", []edit{{
		boundedFile, "\t\ts.bulk.Count += oldest.Hi - oldest.Lo + 1\n", "",
	}}, sets},
	{"holes in a dense conversation fall into the bulk", []edit{{boundedFile, "len(s.Ranges) > MaxRanges && countWords(s.Ranges) > maxWords", "len(s.Ranges) > MaxRanges"}}, sets},
	{"the first unread message of the bulk was read", []edit{{boundedFile, "slices.Delete(s.known, 0, read)", "slices.Delete(s.known, 0, read*0)"}}, sets},
	{"a recalled message of the bulk is still known", []edit{{boundedFile, "s.known = slices.Delete(s.known, i, i+1)", "_ = i"}}, sets},
	{"a word loses its full neighbours", []edit{{"internal/fold/badge/words.go", "start+(w.run*wordBits-1)", "start+(wordBits-1)"}}, sets},
	{"counting goes on past the greatest seq", []edit{{rangeFile, " && seq < hi; seq++", "; seq++"}}, check{pkg: "./internal/fold/badge", run: "^TestSeqs$"}},
	{"a range loses its first seq", []edit{{rangeFile, "\t\ts.Ranges[i].Lo = seq\n", ""}}, sets},

	{"a repeated event is folded again", []edit{{batchFile, "if !fresh(item, b.check) {", "if false {"}}, inTables},
	{"an event that is twice in a batch is folded twice", []edit{{checkFile, "		recent[e] = struct{}{}\n		c.added", "		c.added"}}, repeats},
	{"a repeated event counts for no user", []edit{{keysFile, "	case len(item.Event.Data.UserIDs):\n", "	default:\n"}, {
		keysFile, "	default:\n		item.leave", "	case -1:\n		item.leave",
	}}, retried},
	{"users added by a retry are forgotten", []edit{{keysFile, "	for i := range item.Event.Data.UserIDs {\n		check.Add", "	for i := range item.Event.Data.UserIDs[repeated:] {\n		check.Add"}}, retried},
	{"a batch that is rolled back leaves its events known", []edit{{checkFile, "	for _, e := range c.added {\n		delete", "	for _, e := range c.added[:0] {\n		delete"}}, merged},
	{"only the current generation is probed", []edit{{windowFile, "return max(1, generation-ProbedGenerations+1)", "return generation"}}, keys},
	{"one more generation is probed", []edit{{windowFile, "return max(1, generation-ProbedGenerations+1)", "return max(1, generation-ProbedGenerations)"}}, keys},
	{"a filter lies", []edit{{windowFile, ".filter.Contains(prefix))", ".filter.Contains(prefix+1))"}}, merged},
	{"an erasure and a merger wait for each other", []edit{{mergeFile, "	updates.Queue(statements.Of(m.Window.partition, \"drop expired blocks\"), oldest)\n	updates.Queue(statements.Get(\"give up runs\"), m.Window.partition, oldest)\n", "	updates.Queue(statements.Get(\"give up runs\"), m.Window.partition, oldest)\n	updates.Queue(statements.Of(m.Window.partition, \"drop expired blocks\"), oldest)\n"}}, check{"./internal/fold/keys", "^TestEraseWhileRunsExpire$", false}},
	{"a damaged filter is trusted", []edit{{"internal/fold/keys/filter.go", "crc32.Checksum(b[5:], checksums):", "crc32.Checksum(b[5:], checksums) && len(b) == 6:"}}, merged},
	{"blocks are lost at a takeover", []edit{{windowFile, "			to[e] = struct{}{}\n", "			_, _ = to, e\n"}}, repeats},
	{"a window is loaded whose runs were merged meanwhile", []edit{{checkFile, "found < len(c.runs)", "found < 0"}}, merged},
	{"a run is merged twice", []edit{{mergerFile, "replaced != len(inputs) || finished != 1", "finished != 1"}}, merged},
	{"a run that was given up is finished", []edit{{mergerFile, "replaced != len(inputs) || finished != 1", "replaced != len(inputs)"}}, merged},
	{"merged blocks stay", []edit{{blocksFile, "WHERE ahead < $1))", "WHERE ahead < $1 AND false))"}}, merged},
	{"the last page of a read is read again", []edit{{mergeFile, "c.next = first + 1", "c.next = first"}}, merged},
	{"a look-up misses the first key of a page", []edit{{blocksFile, "p.run = k.run AND p.first <= k.prefix", "p.run = k.run AND p.first < k.prefix"}}, merged},
	{"a prefix is split between two segments", []edit{{mergeFile, "if n >= m.Sizes.Segment && entries[n-1].Prefix != e.Prefix {", "if n >= m.Sizes.Segment {"}}, merged},
	{"a merge is finished although pages are missing", []edit{{mergeFile, "if c.read != expected {", "if false {"}}, merged},
	{"a replay counts a retry for all users", []edit{{"internal/fold/store/dedupreplay.go", "	d.Keys[0][item.Key] += item.Users\n", "	d.Keys[0][item.Key] = item.Users\n"}}, retried},
	{"a generation of keys begins after the batch that begins it", []edit{{
		batchFile, "b.Generation, b.From.TransactionID, b.From.Offset)", "b.Generation, b.To.TransactionID, b.To.Offset)",
	}}, keys},
	{"a replay never forgets a key", []edit{{
		"internal/fold/store/dedupreplay.go", "	d.Keys[0] = map[uuid.UUID]UserSet{}\n", "",
	}}, pure},
	{"the position moves without the rows", []edit{{batchFile, "	t.QueueWrites(writes, Sorted(b.state.Users), b.state.Rooms)\n", ""}}, inTables},
	{"read_all does not load what it reads", []edit{{tablesFile, "if len(m.ReadAll) > 0 {", "if false {"}}, fetched},
	{"a bad event is dropped silently", []edit{{
		batchFile, "b.Dead = append(b.Dead, DeadLetter{Record: records[i], Reason: err.Error()})", "",
	}}, letters},
	{"a reserved event is folded from any publisher", []edit{{
		"internal/fold/store/items.go", "if !r.Own {", "if false {",
	}}, forged},
	{"renumbering goes by ids, not by the database that appended an event", []edit{{
		repairFile, "const copied = `transaction_id > '3' AND era <> ` + homeEra", "const copied = `transaction_id > '3' AND transaction_id::text::bigint <> xmin::text::bigint AND ` + homeEra + ` <> 0`",
	}}, repaired},
	{"renumbering goes by ids across copies of copies", []edit{{
		repairFile, "ORDER BY era IS DISTINCT FROM (SELECT settled_era FROM badged.settings), era,\n", "ORDER BY ",
	}}, repaired},
	{"a renumbered position is past events that the consumer has not seen", []edit{{
		repairFile, "WHERE r.era <> p.era OR r.late OR (r.transaction_id", "WHERE false AND (r.transaction_id",
	}}, repaired},
	{"the fence lets every owner through", []edit{{
		storeFile,
		"AND o.last_processed_transaction_id = $1::bigint::text::xid8 AND o.offset_acked = $2\n",
		"AND $1::bigint IS NOT NULL AND $2::bigint IS NOT NULL\n",
	}}, fenced},
	{"an owner ignores the fence", []edit{{
		storeFile, "WHEN NOT EXISTS (SELECT FROM moved) THEN", "WHEN NOT EXISTS (SELECT FROM moved) AND false THEN",
	}}, fenced},
	{"an owner does not see that others changed rows", []edit{{
		storeFile, "AND o.revision = $7", "AND o.revision >= $7",
	}}, remembered},
	{"an append does not see that others changed rows", []edit{{
		storeFile, "AND o.revision = $4", "AND o.revision >= $4",
	}}, appended},
	{"an owner with an unknown position keeps its row cache", []edit{{
		stepFile, "if p.cursor.Position != before || !p.state.Same(&state) {", "if p.cursor.Position != before && !p.state.Same(&state) && false {",
	}}, remembered},
	{"an owner that lost its session goes on folding", []edit{{
		"internal/pg/pgsession/owner.go", "	defer h.drop() // before the connection closes\n", "",
	}}, owned},
	{"a pending transaction is forgotten", []edit{{readFile, "if !p.snapshot.ended(id) || p.cut && !p.moved(id) {", "if p.cut && !p.moved(id) {"}}, pages},
	{"an open transaction that the position passes is not listed", []edit{{readFile, "id <= p.To.TransactionID", "id <= p.From.TransactionID"}}, pages},
	{"a transaction stays pending after all its events are folded", []edit{{readFile, "if !p.snapshot.ended(id) || p.cut && !p.moved(id) {", "if id > 0 {"}}, pages},
	{"a transaction whose late events are cut is forgotten", []edit{{readFile, "if !p.snapshot.ended(id) || p.cut && !p.moved(id) {", "if !p.snapshot.ended(id) {"}}, pages},
	{"late events overtake the rest of a transaction", []edit{{readFile, "if p.within || len(p.late) >= p.maxEvents {", "if len(p.late) >= p.maxEvents {"}}, pages},
	{"events with ids that are not assigned yet are folded", []edit{{readFile, "p.transaction() >= p.snapshot.xmax", "false"}}, pages},
	{"a rebuild folds events of pending transactions", []edit{{"internal/fold/logread/cursor.go", "AND NOT (%s)`", "AND (true OR %s)`"}}, pages},
	{"a replay for a user folds events of pending transactions", []edit{{
		"internal/partition/replay/replay.sql", "AND NOT transaction_id = ANY ($5::bigint[]::text[]::xid8[])", "AND $5::bigint[] IS NOT NULL",
	}}, appended},
	{"a subscriber reads events of pending transactions", []edit{{"events/topics/read.go", "AND transaction_id <> ALL ($5::bigint[]::text[]::xid8[])", "AND $5::bigint[] IS NOT NULL"}}, subscribed},
	{"every subscriber of a group delivers", []edit{{subFile, "if err != nil || !locked {", "if err != nil {"}}, subscribed},
	{"a subscriber takes a negative acknowledgement for one", []edit{{subFile, "case <-msg.Nacked():\n\t\treturn false, nil", "case <-msg.Nacked():\n\t\treturn true, nil"}}, subscribed},
	{"the last event of a row is not folded", []edit{{rowFile, "range all {", "range all[:max(1, len(all)-1)] {"}}, pages},
	{"late rows are moved by event", []edit{{readFile, "if r.Index == 0 {", "if r.Index >= 0 {"}}, pages},
	{"a compressed row is taken for JSON", []edit{{packFile, "if !bytes.HasPrefix(row, magic) {", "if len(row) > 0 {"}}, pages},
	{"rows of any size are read", []edit{{packFile, "CASE WHEN octet_length(payload) <= 8388608 THEN payload END", "payload"}}, pages},
	{"rows are decompressed to any size", []edit{{packFile, "zstd.WithDecoderMaxMemory(MaxRow)", "zstd.WithDecoderMaxMemory(4 << 30)"}}, packing},
	{"a dead letter has the index of the next event", []edit{{batchFile, "d.Record.Index, d.Record.UUID", "d.Record.Index+1, d.Record.UUID"}}, letters},
	{"a replay folds the events beside a dead letter only", []edit{{"internal/fold/store/letters.go", "&p.TransactionID, &p.Offset, &p.Index", "&p.TransactionID, &p.Offset, new(int)"}}, letters},
	{"late events are folded and not moved", []edit{{batchFile, "if len(b.late) > 0 {", "if len(b.late) < 0 {"}}, overtaken},
	{"a message goes to one partition", []edit{{"events/rows.go", "		if mentioned != nil {\n", "		if p > 0 {\n			break\n		}\n		if mentioned != nil {\n"}}, routed},
	{"a join of one is the last message of all", []edit{{memberFile, "	r.Admit()\n", "	r.Admit()\n	r.LastSeq = max(r.LastSeq, e.Data.UpToSeq)\n"}}, oneJoin},
	{"a message in SQL goes to one partition", []edit{{sqlFile, "(SELECT partition_id FROM badged.partitions) AS held (p)", "(SELECT 0) AS held (p)"}}, routed},
	{"two appends of a group touch a partition at once", []edit{{groupFile, "		g.busy.AddAll(&c.partitions)\n", ""}}, grouped},
	{"a later event of a partition is appended before one for two", []edit{{groupFile, "			taken.AddAll(&c.partitions)\n", ""}}, grouped},
	{"a group appends as much at once as there is", []edit{{groupFile, "room := g.limit - g.running", "room := g.limit"}}, grouped},
	{"a group appends beside an event about a room", []edit{{groupFile, "if len(d.UserIDs) == 0 {", "if false {"}}, grouped},
	{"appends to all partitions follow each other", []edit{{groupFile, "max(1, n/worthwhile)", "1"}}, grouped},
	{"single events that meet count as load", []edit{{groupFile, "len(evs) >= worthwhile && ", ""}}, grouped},
	{"calls that have ended still meet others", []edit{{groupFile, "		g.large--\n", ""}}, grouped},
	{"a canceled caller leaves others waiting", []edit{{groupFile, "return c != c.group.calls[0]", "return true"}}, grouped},
	{"an append forgets transactions above the last that has ended", []edit{{
		stateFile, "pg_snapshot_xmax(seen)::text::bigint, own::text::bigint - 1)", "1, 0)",
	}}, appended},
	{"an append forgets open transactions", []edit{{
		stateFile, "AS x WHERE x > former_position AND x < own", "AS x WHERE x > own AND x < own",
	}}, appended},
	{"an append forgets pending transactions", []edit{{
		stateFile, "WHERE NOT pg_visible_in_snapshot(x, seen)", "WHERE false",
	}}, appended},
	{"an append forgets every open transaction", []edit{{
		storeFile, "CASE WHEN pg_snapshot_xmin(pg_current_snapshot()) = pg_current_xact_id() THEN", "CASE WHEN pg_snapshot_xmax(pg_current_snapshot()) <= pg_current_xact_id() THEN",
	}}, appended},
	{"a user without a row is taken for one without conversations", []edit{{storeFile, "AS c WHERE c.user_id = k.user_id)", "AS c WHERE c.user_id = k.user_id AND false)"}}, remembered},
	{"reading everything overlooks marks", []edit{{storeFile, "read_seq < last_seq OR marked_unread OR", "read_seq < last_seq OR"}}, readAll},
	{"reading everything overlooks marked messages", []edit{{storeFile, " OR again_set IS NOT NULL", ""}}, readAll},
	{"rows that someone deleted are not missed", []edit{{storeFile, "CASE WHEN n <> cardinality", "CASE WHEN n > cardinality"}}, remembered},
	{"a row that someone deleted is not missed", []edit{{storeFile, "NOT EXISTS (SELECT FROM updated) THEN", "NOT EXISTS (SELECT FROM updated) AND false THEN"}}, remembered},
	{"an append folds its events before others in the log", []edit{{
		storeFile, "AND transaction_id <> pg_current_xact_id())", "AND transaction_id <> pg_current_xact_id() AND false)",
	}}, appended},
	{"publishers wait for a batch that is held up", []edit{{"projector/append.go", "time.AfterFunc(a.projector.foldLockTimeout, cancel)", "time.AfterFunc(time.Hour, cancel)"}}, appended},
	{"an append does not let the loop catch up", []edit{{"projector/append.go", "		if p.caughtUp == nil {", "		if !p.ready {\n			<-p.foldLock\n			return false\n		}\n		if p.caughtUp == nil {"}}, appended},
	{"an append overlooks late events", []edit{{storeFile, "WHERE transaction_id = ANY (o.pending))", "WHERE false)"}}, appended},
	{"a poll forgets which partitions it left out", []edit{{"projector/poller.go", "slices.Equal(partitions, p.partitions)", "slices.Equal(partitions, partitions)"}}, polled},
	{"a partition that was looked at is never polled", []edit{{"projector/poller.go", "looked.Swap(false)", "looked.Load()"}}, polled},
	{"the cache keeps users of a batch that failed", []edit{{batchFile, "\t\tc.Drop(b.state)\n", ""}}, appended},
	{"renumbering puts late events before the position", []edit{{
		repairFile, "CASE WHEN late THEN passed ELSE transaction_id END, CASE WHEN late THEN passed_offset ELSE \"offset\" END,\n        late, ", "",
	}}, restored},
	{"clients get updates before the commit", []edit{
		{
			batchFile,
			"	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {\n		return Result{}, fmt.Errorf(\"write: %w\", Outcome(err))\n	}\n" +
				"	b.Finish(&r, t, c, hasSubscribers)\n",
			"	r.Updates = ClientUpdates(Sorted(b.state.Users), b.state.Rooms, t.partition, b.origin, b.known.Epoch, hasSubscribers)\n" +
				"	if err := conn.SendBatch(ctx, &writes).Close(); err != nil {\n		return r, fmt.Errorf(\"write: %w\", Outcome(err))\n	}\n" +
				"	b.Finish(&Result{}, t, c, hasSubscribers)\n",
		},
		{stepFile, "	p.projector.notify(r.Updates)\n", ""},
		{
			stepFile,
			"\tr, err := b.Commit(batchCtx, conn.Conn(), p.tables, p.cache, p.keys, p.state, p.projector.cfg.Bus.HasSubscribers)\n",
			"\tr, err := b.Commit(batchCtx, conn.Conn(), p.tables, p.cache, p.keys, p.state, p.projector.cfg.Bus.HasSubscribers)\n\tp.projector.notify(r.Updates)\n",
		},
	}, crashes},

	{"an event that is decoded is not validated", []edit{{decodeFile, "		e.validate(&d.problems, present)\n", "		_ = present\n"}}, decoded},
	{"bytes after an event are ignored", []edit{{decodeFile, "if d.next(); d.offset < len(d.json) {", "if false {"}}, decoded},
	{"an event may have a member twice", []edit{{decodeFile, "if bytes.Equal(name, other) {", "if false {"}}, decoded},
	{"an event may miss any attribute", []edit{{decodeFile, "if ok && !given.has(i) {", "if false {"}}, decoded},
	{"an event may have invalid UTF-8", []edit{{decodeFile, "d.wide && !utf8.Valid(b)", "false"}}, decoded},
	{"a batch in SQL has no limit of bytes", []edit{{sqlFile, "size + share.sizes[i] > most_bytes", "false"}}, inSQL},
	{"a batch in SQL may have one event more", []edit{{sqlFile, "i - begins = most_events", "i - begins > most_events"}}, inSQL},
	{"a key in SQL has another variant", []edit{{"migrations/00004_publish.sql", "71, 1), 1, 16)", "71, 0), 1, 16)"}}, inSQL},
	{"the quick check in SQL takes fractions", []edit{{"migrations/00003_rules.sql", "strpos(concat(data ->> 'seq', data ->> 'up_to_seq', data ->> 'seqs', data ->> 'revision', data ->> 'from_seq'), '.') = 0", "true"}}, inSQL},
	{"the quick check in SQL takes ids of any length", []edit{{"migrations/00003_rules.sql", "pg_column_size(data -> 'user_ids') <= 128 OR", "pg_column_size(data -> 'user_ids') > 0 OR"}}, inSQL},

	{"the hour of the last delivery goes back", []edit{{conversationFile, "hour > c.DeliveredHour", "hour != c.DeliveredHour"}}, pure},
	{"a sweep passes events that are not folded", []edit{{sweepFile, "badge.HourOf(now.Add(-lags[0].Age))", "badge.HourOf(now.Add(-0 * lags[0].Age))"}}, swept},
	{"a sweep passes conversations that it could not expire", []edit{{sweepFile, "		if err != nil || !folds {\n			return expired, folds, err\n		}\n	}\n	if before", "		if err != nil {\n			return expired, folds, err\n		}\n	}\n	if before"}}, swept},
	{"a sweep begins where the last one ended", []edit{{sweepFile, "max(0, swept-sweepOverlap)", "swept"}}, swept},
	{"a sweep that was overtaken keeps its progress", []edit{{"internal/user/expiry/expiry.sql", "swept_hour = $3\n", "$3::integer >= 0\n"}}, swept},
	{"healing leaves the sweep where it was", []edit{{"internal/partition/replay/heal.go", "	batch.Queue(store.ResetExpirySQL, snapshot.Partition)\n", ""}}, swept},

	// Mutating either of the two columns would do.
	{"a rebuild swaps tables unseen by the owner", []edit{{
		"internal/partition/rebuild/rebuild.sql", "epoch = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12), revision = revision + 1", "epoch = epoch",
	}}, rebuilt},
	{"a rebuild folds repeated events again", []edit{{stagingFile, "dead == nil && s.Keys.First(&item, records[i].Position)", "dead == nil"}}, rebuilt},
	{"a rebuild does not compare touched users again", []edit{{stagingFile, "\t\t\tj.touched[id] = struct{}{}", "_ = id"}}, rebuilt},
	{"a rebuild forgets generations that begin meanwhile", []edit{{stagingFile, "	s.Keys.Extend(snapshot.Generations[s.generations:])\n", ""}}, rebuilt},
	{"a rebuild counts healed users as wrong", []edit{{"internal/partition/replay/compare.go", "			unsure = append(unsure, id)\n		}\n		return ok", "			unsure = append(unsure, id)\n		}\n		return ok && false"}}, rebuilt},
	{"a rebuild keeps the records of healed users", []edit{{
		"internal/partition/rebuild/rebuild.sql", "DELETE FROM badged.healed_users WHERE partition_id = $1", "DELETE FROM badged.healed_users WHERE partition_id <> $1",
	}}, rebuilt},

	{"an invalid field ends the session", []edit{{"gateway/commands.go", `if s.userID == "" || f.T`, `if true || f.T`}}, invalid},
	{"a text that is no id is looked up", []edit{{"gateway/commands.go", "if !canBeID(f.ConversationID) {", "if false {"}}, invalid},
	{"a mark of a left conversation is accepted", []edit{{"gateway/marks.go", "return !c.Left && ", "return "}}, commands},
	{"a mark does not wait for the tables", []edit{{"gateway/marks.go", "	if err := g.catchUp(ctx, userID); err != nil {\n		return err\n	}\n", ""}}, marks},
	{"an update is shown although one before it was lost", []edit{{
		mailboxFile, "case u.Epoch != m.held.Epoch || u.BaseVersion > m.held.Version:", "case u.Epoch != m.held.Epoch:",
	}}, told},
	{"an old update replaces a newer state", []edit{{
		mailboxFile, "case u.Epoch == m.held.Epoch && u.Version <= m.held.Version:", "case false:",
	}}, told},
	{"updates during the snapshot are forgotten", []edit{{mailboxFile, "m.announced > newest {", "m.announced > newest+m.announced {"}}, told},
	{"a state held before the read of the tables is not compared", []edit{{
		mailboxFile, "before.syncs == m.syncs && tables.denies(before.held)", "false",
	}}, ahead},
	{"a state received during the read of the tables is compared", []edit{{
		mailboxFile, "before.syncs == m.syncs && tables.denies(before.held)", "tables.denies(m.held)",
	}}, ahead},
	{"an update of a room is added to the one before", []edit{{accountFile, "		a.subtract(entry)\n", ""}}, members},
	{"a member misses an update of a room and reads nothing", []edit{{accountFile, "case base > former.Room.Changes:", "case false:"}}, members},
	{"members keep their rows over a gap of the bus", []edit{{"gateway/hub.go", "			interest.member.forget()\n", ""}}, members},
	{"closed chunks change without a read", []edit{{accountFile, " || was.ClosedChanges != now.ClosedChanges", ""}}, members},
	{"members trust a read that an update has overtaken", []edit{{"gateway/member.go", "	if !m.announced.includedIn(state, began) {\n		return false\n	}\n", ""}}, members},
	{"a room is read before the bus listens to it", []edit{{"gateway/member.go", "	if !listening {\n		return false, err\n	}\n", "	_ = listening\n"}}, members},
	{"a read ahead of a room is repeated before the room has the message", []edit{{"gateway/claims.go", "		case entry.Room.LastSeq < c.upTo:\n			continue\n", ""}}, claims},
	{"a read ahead of a room is repeated for ever", []edit{{"gateway/claims.go", "		delete(m.claims, id)\n", ""}}, claims},
	{"a forged version is waited for", []edit{{mailboxFile, "	m.announced, m.announcedEpoch, m.since = 0, \"\", 0\n", ""}}, ahead},
	{"the epoch survives a restored Postgres", []edit{
		{"projector/epoch.go", "case !p.state.SameLife:", "case false:"},
	}, epochs},
	{"a batch does not see that Postgres was started", []edit{{stepFile, "|| !p.sameIncarnation(conn)", "|| false"}}, epochs},
	{"an append does not see that Postgres was started", []edit{{"projector/append.go", "if !a.parts[i].partition.sameIncarnation(conn) {", "if a.parts[i].partition == nil {"}}, epochs},
	{"a position that went back is accepted", []edit{{"projector/epoch.go", "case p.cursor.Before(p.reached):", "case false:"}}, epochs},
	{"rows of a former epoch are written", []edit{{"migrations/00002_tables.sql", "SET revision = revision + 1", "SET revision = revision"}}, epochs},
	{"each projector begins an epoch", []edit{{"projector/epoch.go", "if reason, begun = p.outdated(); !begun {", "if reason, begun = epochRestart, true; !begun {"}}, epochs},
	{"any signature is accepted", []edit{{busKeysFile, "subtle.ConstantTimeCompare(signature[:], given) == 1", "subtle.ConstantTimeCompare(signature[:], given) >= 0"}}, signed},
	{"a signature is accepted on any channel", []edit{{busKeysFile, "append([]byte(channel), 0)", "[]byte{0}"}}, signed},

	{"a user's connections are not limited", []edit{{"gateway/gateway.go", "limit > 0 && g.users[userID] >= limit", "limit < 0"}}, limits},
	{"a client that leaves makes no room", []edit{{"gateway/gateway.go", "if g.users[userID]--; g.users[userID] == 0", "if g.users[userID] == 0"}}, limits},
	{"refused commands all get the same time to retry", []edit{{"internal/base/limit/limiters.go", "	a.refused = min(a.refused+1, MaxRefused)\n", ""}}, limits},
	{"a user reads as much at once as the process can", []edit{{tokenLimitsFile, "user, address := userAtOnce, addressAtOnce", "user, address := 0, 0"}}, readers},
	{"the reads of a user have no rate", []edit{{tokenLimitsFile, "l.users.Take(userID, now); wait > 0", "l.users.Take(userID, now); false && wait > 0"}}, readers},
	{"the reads of an address have no rate", []edit{{tokenLimitsFile, "l.addresses.Take(address, now); wait > 0", "l.addresses.Take(address, now); false && wait > 0"}}, readers},
	{"reads with tokens take all connections", []edit{{"internal/server/app/app.go", "reader.Limited(readersShare, appsPatience)", "reader"}}, readers},
	{"reads with keys take all connections", []edit{{"internal/server/app/app.go", "reader.Limited(readersShare, readersPatience)", "reader"}}, readers},
	{"requests for devices take all connections", []edit{{"internal/server/httpapi/api.go", "newTokenLimits(deviceRequests, devicesAtOnce)", "newTokenLimits(deviceRequests, 0)"}}, readers},
	{"the sockets of a user take all queries", []edit{{"gateway/gateway.go", "limit.NewAtOnce[string](1, cfg.ReadTimeout)", "limit.NewAtOnce[string](0, cfg.ReadTimeout)"}}, readers},
	{"a page reads the sets of all conversations", []edit{{"projector/badges/badges.sql", "SELECT {conversation} FROM (SELECT c.* FROM badged.conversations_pNN", "SELECT c.* FROM (SELECT {conversation} FROM badged.conversations_pNN"}}, pagesOfSets},
	{"X-Forwarded-For of any peer is trusted", []edit{{"internal/base/limit/address.go", "!ok || !isTrusted(address, trusted)", "!ok"}}, addresses},
	{"keys are tried without limit", []edit{{"internal/server/httpapi/attempts.go", "t.wrong < triesAtOnce", "true"}}, triedKeys},
	{"any name may point to the demo", []edit{{"internal/demo/guard.go", "!isOwnHost(r.Host, name)", "false"}}, guarded},
	{"unauthenticated clients hold all connections", []edit{{"internal/server/inbound/listener.go", "ShareLimits{All: limits.Unauthenticated, ", "ShareLimits{"}}, strangers},
	{"a body that no handler reads is waited for", []edit{{"internal/server/inbound/deadlines.go", "e.Header().Set(\"Connection\", \"close\")", ""}}, strangers},
	{"an answer that is not read is waited for", []edit{{"internal/server/inbound/deadlines.go", "	_ = e.control.SetWriteDeadline(began.Add(e.patience)) // as in Read\n", ""}}, strangers},
	{"a flood of pieces of frames goes on", []edit{{"internal/base/limit/metered.go", "m.level > BurstSeconds*m.perSecond", "false"}}, limits},
	{"a fresh token that expires sooner is not checked", []edit{{"gateway/commands.go", "		s.schedule(taskCheck) // the fresh one may expire sooner\n", ""}}, freshTokens},
	{"an unknown extension of a token is accepted", []edit{{"internal/server/auth/tokens.go", "			return errCritical\n", ""}}, tokenClaims},
	{"made-up tokens cause fetches of the keys", []edit{{"internal/server/auth/keyset.go", "time.Since(s.startedAt) < s.cfg.AskInterval", "s.startedAt.IsZero()"}}, keySets},
	{"a failed fetch drops the keys", []edit{{"internal/server/auth/keyset.go", "if s.err = err; err == nil {", "if s.err = err; true {"}}, keySets},
	{"secrets are taken from a key set", []edit{{"internal/server/auth/jwk.go", "	default:\n		return tokenKey{}, errors.New(\"its type", "	case k.Kty == \"oct\":\n		key.method, key.key = jwt.SigningMethodHS256, []byte(\"0123456789abcdef0123456789abcdef\")\n	default:\n		return tokenKey{}, errors.New(\"its type"}}, keySets},

	{"a moved slot is not noticed", []edit{{listenFile, `if reply.Kind == "sunsubscribe" {`, "if false {"}}, moved},
	{"a dead master is asked forever", []edit{{
		clusterFile, "	if r.cluster != nil {\n		r.cluster.client.ReloadState", "	if false {\n		r.cluster.client.ReloadState",
	}}, moved},
	{"a frozen Redis hides Postgres from readiness", []edit{{
		"internal/obs/health.go", "running.Go(func() { errs[i] = c.Run(ctx) })", "errs[i] = c.Run(ctx)",
	}}, ready},

	{"one measurement of an old event refuses publishers", []edit{{"internal/bridge/backpressure/measure.go", "over && p.suspected, over", "over, over"}}, pressed},
	{"a publisher that waits for folding keeps its slot", []edit{{"internal/bridge/backpressure/throttle.go", "		t.Leave()\n		if _, err", "		if _, err"}}, pressed},
	{"a late partition refuses publishers of all partitions", []edit{{"internal/bridge/backpressure/throttle.go", "id := layout.PartitionOf(user)", "id := layout.PartitionOf(user) * 0"}}, pressed},
	{"an error hides one with another code", []edit{{"internal/obs/repeats.go", "if n[0] == 'S' {", "if false {"}}, repeating},
	{"the notifier passes events without making devices due", []edit{{"internal/notify/outbound/mark.go", "if err := m.users(ctx, c.users); err != nil {", "if err := m.users(ctx, nil); err != nil {"}}, pushed},
	{"the notifier forgets what the projector has said", []edit{{"internal/notify/outbound/mark.go", "c := changes{users: slices.Sorted(maps.Keys(s.users)), rooms: slices.Sorted(maps.Keys(s.rooms))}", "_ = maps.Keys(s.users)\n\tc := changes{}"}}, said},
	{"the notifier overlooks what another process has folded", []edit{{"internal/notify/outbound/feed.go", "b.From != s.to || ", ""}}, said},
	{"the notifier waits for a projector that has said nothing", []edit{{"internal/notify/outbound/notifier.go", " || s.reported.to == (events.Position{})", ""}}, said},
	{"a change during a push is lost", []edit{{outboundFile, "WHEN d.changes <> s.changes THEN greatest(clock_timestamp() + s.quiet,", "WHEN false THEN greatest(clock_timestamp() + s.quiet,"}}, pushed},
	{"a device that registered again is deleted", []edit{{
		outboundFile, "AS s (user_id, device_id, generation)\nWHERE (d.user_id, d.device_id, d.generation) = (s.user_id, s.device_id, s.generation)",
		"AS s (user_id, device_id, generation)\nWHERE (d.user_id, d.device_id) = (s.user_id, s.device_id)",
	}}, pushed},
	{"a message that was read is notified", []edit{{"projector/badges/unread.go", "live = unread.has(m.Seq)", "live = true"}}, notified},
	{"a notification is pushed for each copy of the event", []edit{{outboundFile, "SET settled_at = clock_timestamp(), title = '', body = '', data = NULL", "SET settled_at = clock_timestamp(), seq = -a.seq, title = '', body = '', data = NULL"}}, notified},
	{"an alert is pushed whatever became of its message", []edit{{"internal/notify/outbound/alerts.go", "if count[i] && !olds[i] {", "if (count[i] || true) && !olds[i] {"}}, notified},
	{"a 410 from before a registration deletes the device", []edit{{"internal/notify/push/sender.go", "due.RegisteredAt.After(outcome.Since)", "false"}}, sent},
	{"slow push services have no common limit", []edit{{pushRoutes, "isSlow && rs.slow >= rs.slowLimit", "false"}}, inFlight},
	{"a user has all pushes in flight", []edit{{pushRoutes, "rs.users[user] >= userInFlight || ", ""}}, inFlight},
	{"a push that takes long is not slow", []edit{{pushRoutes, "	rs.age(now)\n", ""}}, inFlight},
	{"each push that waits dials APNs", []edit{{"internal/notify/push/singledial.go", "NewAtOnce[string](1, ", "NewAtOnce[string](1000, "}}, sent},
	{"a webhook signs another time than it sends", []edit{{"internal/notify/webhook/call.go", "signatures(w.Secrets, id, now, body)", "signatures(w.Secrets, id, now.Add(time.Second), body)"}}, hooks},
	{"redirects of APNs and FCM are followed", []edit{{"internal/notify/push/apps.go", "error { return http.ErrUseLastResponse }", "error { return nil }"}}, redirected},
	{"what an endpoint was told counts in a new epoch", []edit{{"internal/notify/webhook/tell.go", "return knowledge{b.Epoch, &b.Numbers", "return knowledge{\"\", &b.Numbers"}}, news},
	{"what a failed push may have shown is forgotten when its device registers", []edit{{outboundFile, "CASE WHEN d.attempts = 0 AND (d.due IS NULL OR d.due > clock_timestamp()) THEN d.told END,", "d.told,"}}, mayHaveCome},
	{"the position of a webhook passes what it was not told", []edit{{"internal/notify/outbound/reader.go", "return p.open == 0 && len(p.rooms) == 0", "return true"}}, byPosition},
	{"what an endpoint refuses holds up the rest", []edit{{"internal/notify/outbound/reader.go", "			return s.refused\n", "			return false\n"}}, byPosition},
	{"a put brings back a secret that was replaced meanwhile", []edit{{outboundFile, "WHERE name = $1 AND generation = $10", "WHERE name = $1 AND generation >= $10"}}, puts},
	{"a process with an older view resumes a paused webhook", []edit{{outboundFile, "SET state = CASE state WHEN 'active' THEN $3 ELSE state END", "SET state = $3"}}, recorded},
	{"an earlier success hides a later failure", []edit{{outboundFile, "greatest(last_success_at, last_failure_at)", "last_success_at"}}, recorded},
	{"a success at another URL counts for a webhook", []edit{{outboundFile, "WHERE name = $1 AND url = $2 AND step = 0", "WHERE name = $1 AND $2 <> '' AND step = 0"}}, recorded},
	{"a success that was not recorded is lost with the settings", []edit{{"internal/notify/webhook/feed.go", "f.unrecorded = was.LastError == \"\" &&", "f.unrecorded = was.LastError != \"\" &&"}}, succeeded},
	{"a call with earlier settings is forgotten", []edit{{"internal/notify/webhook/feed.go", "f.unrecorded = f.unrecorded || isNews", "isNews = false"}}, succeeded},
	{"a full database takes processes away", []edit{{"internal/obs/health.go", "c.Vital && !errors.As(err, &impaired)", "c.Vital && (!errors.As(err, &impaired) || true)"}}, ready},
}
