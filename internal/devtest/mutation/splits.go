package main

const (
	layoutFile      = "events/layout.go"
	shareFile       = "internal/partition/childfilter/filter.go"
	childFile       = "internal/partition/child.go"
	splitCopyFile   = "internal/partition/splitting/copy.go"
	splitSwitchFile = "internal/partition/splitting/switch.go"
	leftoversFile   = "internal/partition/archive/leftovers.go"
	notifierFile    = "internal/notify/outbound/notifier.go"
	splitSQLFile    = "migrations/00007_cluster.sql"
)

// Checks of splits.
var (
	layouts     = check{"./events", "^(TestLayouts|TestAPartitionWithADescendantHasEnded)$", false}
	splitRooms  = check{"./internal/partition/splitting", "^(TestMessagesToRoomsDuringASplit|TestLogsFollowASplit)$", false}
	splitSizes  = check{"./internal/partition/splitting", "^TestTheSwitchCopiesWhatHasChanged$", false}
	splitShares = check{"./internal/partition/splitting", "^TestSplitSharesWhatIsBesideTheBadges$", false}
	splitLoad   = check{"./internal/partition/splitting", "^TestSplitUnderLoad$", false}
	splitHealed = check{"./internal/partition/splitting", "^TestSplitKeepsHealedUsers$", false}
	splitLeft   = check{"./internal/partition/moving", "^(TestOldRowsOfAPartitionThatWasSplit|TestListedSplits)$", false}
	filesLeft   = check{"./internal/partition/archive", "^(TestFilesLeftFromBeforeASplit|TestNothingIsLeftUnnamed|TestSplitsThatALogLacks|TestCut)$", false}
	filesLost   = check{"./internal/user/erasure", "^TestEraseDeletesNoLostEvents$", false}
	filesMoved  = check{"./internal/partition/archiving", "^(TestGather|TestArchiveAfterASplitDeletesNoLostEvents)$", false}
	splitTold   = check{"./internal/notify/outbound", "^TestASplitIsNoError$", false}
	splitStates = check{"./internal/cluster", "^TestStatesAreReadWhileTheirPartitionIsSplit$", false}
)

// splitMutants make the split of a partition lose data or store it twice.
var splitMutants = []mutant{
	{"users of a partition that was split stay in it", []edit{{layoutFile, "h.Partition(modulus); l.living.Has(p) {", "h.Partition(modulus); true {"}}, layouts},
	{"the share of an event names the users of the other partition", []edit{{shareFile, "d.UserIDs, d.MentionedUserIDs = users, mentioned", "d.MentionedUserIDs = mentioned"}}, splitShares},
	{"what cannot be told apart goes to both partitions", []edit{{shareFile, "		if f.First {\n			left.Event = was.Event\n		}\n", "		left.Event = was.Event\n"}}, splitShares},
	{"a join of others leaves no room behind", []edit{{shareFile, "	case e.Type == events.RoomJoined && left.Members == nil:", "	case false:"}}, splitRooms},
	{"an old snapshot appends to a partition that follows the one that was split", []edit{{sqlFile, "AS l UNION SELECT badged.existing_partitions() ORDER BY 1 LOOP", "AS l GROUP BY l ORDER BY 1 LOOP"}}, splitRooms},
	{"members of rooms that join or leave during a split are not counted", []edit{{splitCopyFile, "more.n <> 0", "false"}}, splitSizes},
	{"rows of a user go to both partitions", []edit{{childFile, "		return c.has(\"t.user_id\")", "		return \"true\""}}, splitHealed},
	{"the switch copies nothing of what has changed last", []edit{{splitSwitchFile, "s.round(ctx, tx, cursor, math.MaxInt32)", "s.round(ctx, tx, cursor, math.MaxInt32*0)"}}, splitLoad},
	{"both partitions count what was folded before the split", []edit{{splitSQLFile, "SET folded = (folded + $1) / 2'", "SET folded = folded + 0 * $1'"}}, splitShares},
	{"an export has a row for each copy of it", []edit{{erasureFile, "EXISTS (SELECT FROM badged.partitions AS p WHERE p.partition_id = t.partition_id)", "true"}}, splitHealed},
	{"old rows of a partition that was split cannot be deleted", []edit{{"internal/partition/moving/moving.go", "known := m.splitAt", "known := 0 * m.splitAt"}}, splitLeft},
	{"a split is an error of notifiers", []edit{{"internal/log/eventlog/held.go", "err == nil && !slices.Contains(held, partition)", "err == nil && slices.Contains(held, partition)"}}, splitTold},
	{"a split is listed as a move", []edit{{"internal/partition/moving/plan.go", `role == sourceRole && state == copying && to == "":`, "false:"}}, splitLeft},
	{"an interrupted first file from before a split stays", []edit{{"internal/partition/archive/split.go", "		a.markLeftover(parent, 0) //", "		_ = parent //"}}, filesLeft},
	{"an interrupted erasure leaves its file", []edit{{"internal/partition/archive/replace.go", "	a.expect(next.Name)\n", ""}}, filesLeft},
	{"a partition that moves leaves an interrupted file", []edit{{leftoversFile, "range []int{t.Known, len(all)}", "range []int{t.Known}"}}, filesLeft},
	{"an erasure deletes the only copy of events", []edit{{leftoversFile, "err == nil && len(missing) > 0", "err == nil && len(missing) < 0"}}, filesLost},
	{"an erasure deletes the only copy of events, in a file without an entry", []edit{{leftoversFile, "		if !there {\n", "		if !there || f.SHA256 == \"\" {\n"}}, filesLost},
	{"files of a partition that has moved are deleted without a copy", []edit{{"internal/partition/archiving/gather.go", "inLog := replay.Lacking(pool, partition)", "inLog := func(context.Context, []archive.Row) ([]archive.Row, error) { return nil, nil }"}}, filesMoved},
	{"the only copy of events is deleted once their partition was split", []edit{{"internal/partition/archiving/archiving.go", "a.archive.CheckCut(ctx, t); err != nil", "error(nil); err != nil"}}, filesMoved},
	{"an erasure is stopped by what is in the log", []edit{{"internal/partition/replay/replay.sql", "e.uuid = r.uuid AND e.created_at = r.created_at", "e.uuid = r.uuid AND e.created_at > r.created_at"}}, filesLost},
	{"a log is told of one split of two", []edit{{"internal/partition/archive/split.go", "split = append(split, through...)", "split = append(split, parent)"}}, filesLeft},
	{"a read that meets a split waits in vain", []edit{{"internal/cluster/reading.go", "	if err != nil && !r.cluster.Layout().Lives(partition) {\n", "	if false {\n"}}, splitStates},
}
