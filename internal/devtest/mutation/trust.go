package main

const (
	keyFile       = "internal/server/keyring/key.go"
	ringFile      = "internal/server/keyring/ring.go"
	quotaFile     = "internal/server/keyring/quotas.go"
	usageFile     = "internal/server/keyring/limits.go"
	accessFile    = "internal/server/httpapi/access.go"
	revokedFile   = "internal/server/revocation/revocation.go"
	revokedReads  = "internal/server/revocation/read.go"
	chainFile     = "internal/operations/auditchain.go"
	redactFile    = "internal/operations/auditredact.go"
	rewriteFile   = "internal/user/erasure/rewrite.go"
	erasureFile   = "internal/user/erasure/erasure.sql"
	partitionFile = "internal/user/erasure/partition.go"
)

// Checks of security: keys, revocations, erasure and the audit trail.
var (
	everyKey     = check{"./internal/server/httpapi", "^(TestEveryRouteWithEveryKey|TestEveryEventWithEveryKey|TestRoomsOfAKey|TestEventsBeyondTheScopeOfTheKey|TestPublishingMoreThanTheKeyMay)$", false}
	everySecret  = check{"./tests", "^TestEveryRouteWithEverySecret$", false}
	watched      = check{"./internal/server/keyring", "^(TestWatching|TestExpiry|TestMistakesOfFiles)$", false}
	shared       = check{"./internal/server/keyring", "^(TestQuotaOf|TestQuotaThat|TestChangedQuota|TestUnknownQuota|TestRateAndQuota)", false}
	overShards   = check{"./internal/server/app", "^(TestAQuotaCountsOnceOverShards|TestRevocationsOverShards|TestTheTrailWhileAShardIsAway)$", false}
	disconnected = check{"./gateway", "^(TestDisconnect|TestRevokedWhileConnecting)$", false}
	revocations  = check{"./internal/server/revocation", ".", false}
	notReadYet   = check{"./internal/server/app", "^TestRevocationsThatAreNotReadYet$", false}
	movedTokens  = check{"./internal/partition/moving", "^TestTokensRevokedBehindTheMoveStayRevoked$", false}
	tokensAreOld = check{"./internal/server/auth", "^(TestRevokedTokens|TestTokensThatLiveTooLong)$", false}
	chained      = check{"./internal/operations", "^(TestTamperingIsFound|TestConcurrentActionsExtendOneChain|TestPruneAudit|TestRedactAudit|TestForgedRedactions|TestRedactNamesOfFields|TestAudited|TestUnrecordedActionsDoNotRun)$", false}
	signedIn     = check{"./internal/operations", "^(TestFailedSignIns|TestKeyLoads|TestReads)", false}
	leaked       = check{"./tests", "^TestALeakedKey$", false}
	guessed      = check{"./internal/server/httpapi", "^TestAPublisherMayNotGuessKeysOfAdmins$", false}
	forgotten    = check{"./internal/user/erasure", "^TestEraseMakesTheOwnerForget$", true}
	meanwhile    = check{"./internal/user/erasure", "^TestEraseWhatIsFoldedMeanwhile$", true}
	stayRevoked  = check{"./internal/user/erasure", "^TestErasedUsersStayRevoked$", true}
	erasedShares = check{"./internal/user/erasure", "^TestEraseFromSharedFiles$", true}
	lostFiles    = check{"./tests", "^TestLostFileIsGivenUp$", false}
	copies       = check{"./tests", "^TestCopiesDoNotWriteIntoTheArchive$", false}
	lostErasures = check{"./tests", "^TestArchiveOfADatabaseRestoredToBeforeAnErasure$", false}
	forgedFiles  = check{"./internal/partition/archiving", "^TestArchiveIsChecked$", false}
	sharedFiles  = check{"./internal/partition/archive", "^TestSharedFiles$", false}
	erasing      = check{"./internal/user/erasure", "^(TestErase|TestEraseWhileEventsCome|TestEraseFromAnArchive|TestEraseIsRefused|TestEraseNeedsTheOwner)$", true}
	inCategories = check{"./internal/server/auth", "^TestTokensOfCategories$", false}
	categoryView = check{"./gateway", "Categories|NotYetFolded|FreshTokenDuring", true}
	categoryAPI  = check{"./internal/server/httpapi", "^TestTokenOfCategories$", false}
	committed    = check{"./internal/server/app", "^TestCommandsOfRevokedTokens$", false}
	endedRights  = check{"./tests", "^(TestKeysThatEndWhileABodyIsHeldBack|TestTokensThatEndWhileAReadWaits)$", false}
	roomy        = check{"./internal/server/inbound", "^(TestRoomForBodies|TestSharesOfConnections)$", false}
)

// trustMutants allow a client or an operator to do, see or hide what is not allowed.
var trustMutants = []mutant{
	{"the database does not ask whether a token is revoked", []edit{{"internal/log/eventlog/rights.go", "	if len(rights) == 0 {\n		return nil", "	if true {\n		return nil"}}, committed},
	{"a request goes on after its key was removed", []edit{{ringFile, "	case current == nil:", "	case false:"}, {ringFile, "	case current.hasExpired():", "	case false:"}, {ringFile, "current != k && !current.equals(k):", "false:"}}, endedRights},
	{"a wait outlasts the token", []edit{{accessFile, "a.cfg.Tokens.Check(g.user); err != nil", "a.cfg.Tokens.Check(g.user); false && err != nil"}}, endedRights},
	{"a key holds back as many bytes as it likes", []edit{{"internal/base/limit/budget.go", "	case b.byKey[key]+n > b.share:", "	case false:"}}, roomy},
	{"a user keeps as many idle connections as it likes", []edit{{"internal/server/inbound/shares.go", "{s.byHolder[holder], s.limits.PerHolder}", "{s.byHolder[holder], 0}"}}, roomy},
	{"a key publishes for any source", []edit{{keyFile, "if !k.sources.match(e.Source) {", "if false {"}}, everyKey},
	{"a key publishes any type", []edit{{keyFile, "if !k.types.match(string(e.Type)) {", "if false {"}}, everyKey},
	{"a key publishes for any user", []edit{{keyFile, "		if !k.users.match(id) {\n			refuse(", "		if false {\n			refuse("}}, everyKey},
	{"a user of a key is the beginning of others", []edit{{keyFile, "isPrefix && strings.HasPrefix(text, prefix)", "strings.HasPrefix(text, prefix) || isPrefix && false"}}, everyKey},
	{"a key for some users posts to rooms", []edit{{keyFile, "case k.rooms == nil && k.users != nil:", "case false:"}}, everyKey},
	{"a key posts to any room", []edit{{keyFile, "case !k.rooms.match(room):", "case false:"}}, everyKey},
	{"only the first event must be in the scope of the key", []edit{{keyFile, "		if len(fields) == 0 {\n			continue", "		if len(fields) == 0 || i > 0 {\n			continue"}}, everyKey},
	{"every publisher reads", []edit{{keyFile, "	if !k.reads {", "	if false {"}}, everyKey},
	{"a key reads the badge of any user", []edit{{keyFile, "		if !k.users.match(id) {\n			return", "		if false {\n			return"}}, everyKey},
	{"every publisher disconnects", []edit{{keyFile, "	case !k.disconnects:", "	case false:"}}, everyKey},
	{"a key disconnects any user", []edit{{keyFile, "	case !k.users.match(userID):", "	case false:"}}, everyKey},
	{"an expired key is valid", []edit{{ringFile, "	case k.hasExpired():", "	case false:"}}, watched},
	{"any kind of key opens any route", []edit{{accessFile, "denied := key.CheckKind(s.act, s.kinds...); denied != nil", "denied := key.CheckKind(s.act, s.kinds...); false && denied != nil"}}, everyKey},
	{"any kind of key opens any route of the program", []edit{{accessFile, "denied := key.CheckKind(s.act, s.kinds...); denied != nil", "denied := key.CheckKind(s.act, s.kinds...); false && denied != nil"}}, everySecret},
	{"a publisher guesses keys of admins", []edit{{accessFile, "return valid && (!forAdmins || key.Kind == keyring.Admin)", "return valid"}}, guessed},
	{"a token opens what is another user's", []edit{{accessFile, "if id.UserID != user {", "if false {"}}, everySecret},
	{"a token of some categories registers devices", []edit{{accessFile, "		if caller.user.Categories != nil {\n			return answer{}, &problem", "		if false {\n			return answer{}, &problem"}}, everySecret},
	{"a broken file takes keys away", []edit{{ringFile, "errors.Join(mistakes...))\n		return", "errors.Join(mistakes...))\n		r.use(nil)\n		return"}}, watched},
	{"a file counts while it is written", []edit{{"internal/base/wait/files.go", "isDue && f.last.equals(before)", "isDue"}}, watched},
	{"two keys of a file have one name", []edit{{ringFile, "if names[k.Name] {", "if false {"}}, watched},
	{"events do not name their key", []edit{{"internal/server/httpapi/publish.go", "evs[i].PublishedBy = caller.key.Name", "_ = evs[i].PublishedBy"}}, leaked},

	{"each process has the whole quota", []edit{{quotaFile, "		case left >= limit:", "		case true:"}}, shared},
	{"two processes take the same part of a quota", []edit{{"internal/server/keyring/quotas.sql", " FOR UPDATE", ""}}, shared},
	{"a process that stops gives back what it has used", []edit{{quotaFile, "dayOf(u.day), u.part - u.published}", "dayOf(u.day), u.part}"}}, shared},
	{"a lowered quota does not count", []edit{{quotaFile, "		left = u.drop()\n", ""}}, shared},
	{"a quota is for ever", []edit{{quotaFile, "day != u.day {", "u.day == 0 {\n		_ = day"}}, shared},
	{"events that were not stored use up the quota", []edit{{usageFile, "	u.published = max(0, u.published-int64(n))\n", ""}}, everyKey},
	{"each process counts quotas on another shard", []edit{{"internal/server/app/app.go", "keyring.SharedQuotas{Pool: a.byName()[0].serving}", "keyring.SharedQuotas{Pool: a.databases[0].serving}"}}, overShards},

	{"an explanation compares only the user's own row", []edit{{"internal/partition/replay/explain.go", "return c.compare(ctx, s.replay)", "return c.compareRows(ctx, s.replay, c.userRows(s.replay, c.options.Users))"}}, check{"./internal/partition/replay", "^TestExplanationThatDisagrees$", true}},
	{"a token without iat is never revoked", []edit{{"internal/server/revocation/table.go", "before != never && issuedAt", "before != never && !issuedAt.IsZero() && issuedAt"}}, revocations},
	{"a token without iat outlives what revokes it", []edit{{"internal/server/auth/tokens.go", "if c.issued.IsZero() {", "if false {"}}, tokensAreOld},
	{"a token from the future outlives a revocation", []edit{{"internal/server/auth/tokens.go", "ahead > clockLeeway {", "false && ahead > clockLeeway {"}}, tokensAreOld},
	{"an earlier revocation takes back a later one", []edit{{"internal/server/revocation/revocation.sql", "ELSE r.revoked_before END, excluded.revoked_before)", "ELSE coalesce(excluded.revoked_before, r.revoked_before) END, excluded.revoked_before)"}}, revocations},
	{"what a restored database revokes is not read", []edit{{revokedReads, "p.database != l.database || p.last < l.last {", "p.database != l.database {"}}, revocations},
	{"what another primary revokes is not read", []edit{{revokedReads, "p.database != l.database || p.last < l.last {", "p.last < l.last {"}}, revocations},
	{"tokens are admitted before all revoked ones are read", []edit{{"internal/server/app/app.go", "Unread: a.unread, ", ""}}, notReadYet},
	{"a process that cannot read what is revoked admits tokens", []edit{{revokedFile, "age > staleAfter {", "false {"}}, revocations},
	{"a page that fails is left out", []edit{{revokedReads, "older)\n	if err != nil {", "older)\n	if err != nil {\n		l.older -= pageRows"}}, revocations},
	{"a revocation is answered that is not in force", []edit{{revokedFile, "return time.Time{}, &PartialReadError{err}", "return holds, nil"}}, revocations},
	{"a row leaves before its tokens expire", []edit{{"internal/server/revocation/forget.go", "expired := l.cfg.MaxLifetime + keepEnds", "expired := keepEnds"}}, revocations},
	{"tokens of an erased user work again", []edit{{"internal/server/revocation/table.go", "max(t.get(keyOf(digest)), t.get(erasedKeyOf(digest)))", "t.get(keyOf(digest))"}}, revocations},
	{"a revocation misses who is connecting", []edit{{"gateway/session.go", "if s.gateway.revoked(s.identity) {", "if false {"}}, disconnected},
	{"a revoked connection is told to come back", []edit{{"gateway/drain.go", "if g.revoked(id) {", "if false && g.revoked(id) {"}}, disconnected},
	{"a shard that comes back forgets what is revoked", []edit{{"internal/server/app/revocations.go", "	return d.revoked.Check()", "	if _ = d; true {\n		return nil\n	}\n	return d.revoked.Check()"}}, overShards},
	{"a move loses what was revoked behind it", []edit{{"internal/partition/moving/switch.go", "func(target pgx.Tx) error { return m.lastRevocations(ctx, target) }); err != nil {\n		return err\n	}\n	_, err", "func(pgx.Tx) error { return nil }); err != nil {\n		return err\n	}\n	_, err"}}, movedTokens},
	{"a token with a late iat lives for ever", []edit{{"internal/server/auth/tokens.go", "valid > limit {", "false && valid > limit {"}}, tokensAreOld},

	{"a removed record is not missed", []edit{{chainFile, "case r.number > w.number+1:", "case false:"}}, chained},
	{"the last record is not missed", []edit{{chainFile, "case w.number < w.records:", "case false:"}}, chained},
	{"a changed record is not noticed", []edit{{chainFile, "case !bytes.Equal(r.hash, r.link(w.hash)):", "case false:"}}, chained},
	{"a kept head is not compared", []edit{{chainFile, "case r.number == w.kept.Count && hex", "case false && hex"}}, chained},
	{"a trail is cut without a record", []edit{{chainFile, "case w.start.Count > 0 && !w.announced:", "case false:"}}, chained},
	{"a trail with a fault is pruned", []edit{{chainFile, "	case v.Fault != nil:\n		return AuditHead{}, v.Fault\n", "	case false && v.Fault != nil:\n		return AuditHead{}, v.Fault\n"}}, chained},
	{"a redacted record may say anything", []edit{{chainFile, "case r.former != nil && hex", "case false && hex"}}, chained},
	{"a redaction is not recorded", []edit{{redactFile, "		return Audited(ctx, tx, operator, auditRedactAction, struct{}{}, func(context.Context) (any, error) { return redaction{done}, nil })", "		_ = operator\n		return nil"}}, chained},
	{"a redaction hides another operator", []edit{{"migrations/00005_operations.sql", "bigint::text, (a).who, (a).via, (a).action]", "bigint::text, (a).via, (a).action]"}, {chainFile, "&at, r.who, r.via", "&at, r.via"}}, chained},
	{"an id is the name of a field of a redaction", []edit{{"internal/operations/operations.sql", "action NOT IN ('audit.redact', 'audit.prune')", "true"}}, chained},
	{"records fork the chain", []edit{{"migrations/00005_operations.sql", "SET records = c.records + 1, head = badged.audit_link(c.head,", "SET records = c.records + 1, head = badged.audit_link(decode(repeat('00', 32), 'hex'),"}}, chained},
	{"what cannot be recorded is done", []edit{{"internal/operations/audit.go", "	if err != nil {\n		return err\n	}\n	result, did := do(ctx)\n", "	result, did := do(ctx)\n	if err != nil {\n		return err\n	}\n"}}, chained},
	{"bad tokens of users take the place of wrong keys", []edit{{"internal/operations/signins.go", "		return users >= maxTokenAddresses", "		return len(s.failed) >= maxSignInAddresses"}}, signedIn},
	{"wrong keys are lost while the database is away", []edit{{"internal/operations/signins.go", "			s.add(key, f.Times, f.Since)\n", "			_, _ = key, f\n"}}, signedIn},

	{"the erased user stays as a sender", []edit{{rewriteFile, "	if d.SenderID == userID {\n		d.SenderID = \"\"\n", "	if d.SenderID == userID {\n"}}, erasing},
	{"the erased user stays mentioned", []edit{{rewriteFile, "d.UserIDs, d.MentionedUserIDs = without(d.UserIDs), without(d.MentionedUserIDs)", "d.UserIDs = without(d.UserIDs)"}}, erasing},
	{"erasing forgets that a member was there", []edit{{rewriteFile, "			w.keepMemberships(r, &e, &left)\n", ""}}, erasing},
	{"erasing leaves other partitions", []edit{{"internal/user/erasure/erase.go", "if err := e.others(ctx, p); err != nil {", "if err := e.others(ctx, e.result.Partition); err != nil {"}}, erasing},
	{"erasing leaves devices", []edit{{erasureFile, "    DELETE FROM badged.devices WHERE user_id = $1 RETURNING 1", "    SELECT 1 FROM badged.devices WHERE user_id = $1"}}, erasing},
	{"erasing leaves the archive", []edit{{"internal/user/erasure/archive.go", "w.counts.Erased > before.Erased || w.counts.Changed > before.Changed\n", "w.counts.Erased > before.Erased\n"}}, erasing},
	{"erasing leaves what another partition shares", []edit{{"internal/user/erasure/archive.go", "if f.Shared() && !named {", "if false {"}}, erasedShares},
	{"a file is deleted while another partition shares it", []edit{{"internal/partition/archive/replace.go", "func(f File) bool { return f.Name == name }", "func(f File) bool { return f.Name == name && !f.Shared() }"}}, sharedFiles},
	{"a partition that was split has the events of both", []edit{{"internal/partition/archive/split.go", "for _, s := range steps {", "for _, s := range steps[:0] {"}}, sharedFiles},
	{"the second split is forgotten in archives", []edit{{"internal/partition/archive/split.go", "at != *f.From; {", "at != *f.From && len(steps) == 0; {"}}, sharedFiles},
	{"an event of two generations is not archived", []edit{{"migrations/00005_operations.sql", "PRIMARY KEY (key, generation)", "PRIMARY KEY (key)"}}, check{"./internal/partition/archiving", "^TestArchiveAnEventOfTwoGenerations$", false}},
	{"a copy of the database writes to the archive", []edit{{"internal/partition/claims/claims.go", "case !k.claims:", "case false:"}}, copies},
	{"a dump of the database writes to the archive", []edit{{"internal/partition/claims/claims.go", "case has.Era != k.owner.Era:", "case false:"}, {"internal/partition/claims/claims.go", "case has.Database != k.owner.Database:", "case false:"}}, copies},
	{"an erasure is not noted in the archive", []edit{{"internal/user/erasure/archive.go", "	return a.Erasing(ctx, e.noted[0])\n", "	return nil\n"}}, lostErasures},
	{"any file that says so came from the one before", []edit{{"internal/partition/replay/archived.go", "	return query.One[bool](ctx, q, \"check the proof of archive file \"+f.Name, statements.Get(\"does a proof hold\"), f.Proof, f.Successor())\n", "	return true, nil\n"}}, forgedFiles},
	{"an intact file is given up", []edit{{"internal/partition/archiving/giveup.go", "if l.Matches && f.GivenUp == nil {", "if false {"}}, lostFiles},
	{"a partition is replayed without files that were given up", []edit{{"internal/partition/replay/baseline.go", "		return nil // only the baseline includes the events of files that were given up\n", ""}}, lostFiles},
	{"an erasure begins while a file is missing", []edit{{"internal/user/erasure/archive.go", "if err := a.CheckPresent(ctx, f); err != nil {", "if err := error(nil); err != nil {"}}, lostFiles},
	{"erasing leaves the old files of the archive", []edit{{"internal/user/erasure/archive.go", "	return e.cfg.Archive.RemoveStale(ctx)\n", "	return nil\n"}}, erasing},
	{"erasing leaves the trail", []edit{{redactFile, "text, changed = &without, changed || without != *failed", "text = &without"}, {redactFile, "rest, changed, err := erasure.JSONWithout(content, userID)", "rest, _, err := erasure.JSONWithout(content, userID)\n		changed := false"}}, chained},
	{"erasing leaves the calls of webhooks", []edit{{erasureFile, "DELETE FROM badged.webhook_queue AS q USING", "DELETE FROM badged.webhook_queue AS q USING (SELECT WHERE false) AS never,"}}, erasing},
	{"the owner keeps the rows of an erased user", []edit{{erasureFile, "UPDATE badged.partitions SET revision = revision + 1 WHERE", "UPDATE badged.partitions SET revision = revision + 1 WHERE false AND"}}, forgotten},
	{"events of an erased user are repeats", []edit{{partitionFile, "return keys.Erase(ctx, tx, partition, entries)", "_ = keys.Erase\n	return nil"}}, forgotten},
	{"erasing leaves what is folded meanwhile", []edit{{partitionFile, "		err := p.add(records)\n", "		var err error\n"}}, meanwhile},
	{"erasing takes back what is revoked", []edit{{erasureFile, "greatest(coalesce($2::timestamptz, clock_timestamp() + interval '5 seconds'), v.revoked_before), sha256", "coalesce($2::timestamptz, clock_timestamp() + interval '5 seconds'), sha256"}}, stayRevoked},
	{"erasing again takes back what is revoked", []edit{{erasureFile, "greatest(r.revoked_before, excluded.revoked_before)", "excluded.revoked_before"}}, stayRevoked},
	{"erasing revokes nothing", []edit{{erasureFile, "coalesce($2::timestamptz, clock_timestamp() + interval '5 seconds')", "coalesce($2::timestamptz, '-infinity')"}}, stayRevoked},
	{"connections of erased users stay", []edit{{revokedReads, "ended = append(ended, l.connected(into.secret, erased)...)", "_ = l.connected"}}, stayRevoked},
	{"no process hears of what an erased user keeps revoked", []edit{{erasureFile, "SET seq = excluded.seq, ", "SET "}}, stayRevoked},
	{"a server erases", []edit{{"internal/pg/pgsession/rights.go", "	if !owns {", "	if false {"}}, erasing},

	{"a claim of categories is ignored", []edit{{"internal/server/auth/claims.go", "		c.categories, err = categoriesOf(claim, value)", "		_, err = categoriesOf(claim, value)"}}, inCategories},
	{"a misspelt claim of categories restricts nothing", []edit{{"internal/server/auth/claims.go", "strings.EqualFold(claim[:n], ownPrefix)", "claim[:n] == ownPrefix"}}, inCategories},
	{"a claim of no categories restricts nothing", []edit{{"internal/server/auth/claims.go", "len(given) == 0 || len(given) > maxCategories", "len(given) > maxCategories"}}, inCategories},
	{"a client sees all categories", []edit{{"gateway/statesender.go", "if ss.view = nil; categories != nil {", "if ss.view = nil; false && categories != nil {"}}, categoryView},
	{"a read with the categories of an old token stays", []edit{{"gateway/statesender.go", "if !slices.Equal(categories, s.currentIdentity().Categories) {", "if false {"}}, categoryView},
	{"a command reaches other categories", []edit{{"gateway/marks.go", "isListed(c) && category.AnyCovers(identity.Categories, c.Category), err", "isListed(c) && (true || category.AnyCovers(identity.Categories, c.Category)), err"}}, categoryView},
	{"the badge over HTTP has all categories", []edit{{"internal/server/httpapi/badges.go", "return state.Within(category.Tops(categories)), nil", "_ = category.Tops\n	return state.Badge, nil"}}, categoryAPI},
	{"conversations over HTTP are of all categories", []edit{{"internal/server/httpapi/badges.go", "f := badges.Filter{Within: caller.user.Categories}", "f := badges.Filter{Within: caller.user.Categories[:0:0]}"}}, categoryAPI},
}
