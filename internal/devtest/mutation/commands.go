package main

const (
	connectFile  = "internal/cli/connect/connect.go"
	identifyFile = "internal/cluster/identify.go"
	stateOfFile  = "migrations/state.go"
)

// Checks of commands when a shard is wrong, does not answer, or has another schema version.
var (
	wrongShards  = check{"./internal/cli", "^(TestNoCommandWorksOnAWrongDatabase|TestShardsThatAreNoneYet)$", false}
	otherSchemas = check{"./internal/cli", "^TestEveryCommandNamesTheVersionOfAShard$", false}
	silentShards = check{"./internal/cli", "^TestSilentShardsAreAskedAtTheSameTime$", false}
	awayShards   = check{"./internal/cli", "^TestAllShardsThatAreAwayAreNamed$", false}
)

// commandMutants let commands work on wrong databases, or make them wait for the shards one after
// the other.
var commandMutants = []mutant{
	{"commands work on each of two shards whose names are exchanged", []edit{{identifyFile, "among(err, ErrForeign, ErrMisnamed, ErrEmpty)", "among(err, ErrForeign, ErrEmpty)"}}, wrongShards},
	{"commands work on a shard of another cluster", []edit{{identifyFile, "among(err, ErrForeign, ErrMisnamed, ErrEmpty)", "among(err, ErrMisnamed, ErrEmpty)"}}, wrongShards},
	{"commands work on an empty database in place of a shard", []edit{{identifyFile, "among(err, ErrForeign, ErrMisnamed, ErrEmpty)", "among(err, ErrForeign, ErrMisnamed)"}}, wrongShards},
	{"a command that was interrupted waits without a word", []edit{{"internal/cli/interrupt.go", "_, _ = fmt.Fprintln(w, interruptedText)", "_, _ = fmt.Fprint(w)"}}, check{"./internal/cli", "^TestInterruptedWhileADatabaseHangs$", false}},
	{"an empty database in place of a shard is taken for a new one", []edit{{identifyFile, "v.cluster == \"\" && len(owned) > 0 {", "v.cluster == \"\" && len(owned) > 1024 {"}}, wrongShards},
	{"commands work on databases that are no shards yet", []edit{{identifyFile, "	case !member && bare && !joining:", "	case false:"}}, wrongShards},
	{"servers migrate a shard of another cluster", []edit{{"internal/server/app/databases.go", "err := cluster.Identify(ctx, all, true); err != nil", "err := cluster.Identify(ctx, all, true); false && err != nil"}}, wrongShards},
	{"a shard of another cluster has the wrong number of partitions", []edit{{"internal/cli/migrate.go", "slices.Clone(databases), true); err != nil {", "slices.Clone(databases), true); false && err != nil {"}}, check{"./internal/cli", "^TestMigrateUpLeavesAWrongDatabaseAlone$", false}},
	{"a command waits for a server that hangs without a word", []edit{{"internal/cli/connect/watch.go", "		case was && !is:", "		case false:"}}, check{"./internal/cli/connect", "^TestWatchTellsOfASilentServer$", false}},
	{"commands work on old schemas", []edit{{connectFile, "lacks := state.Lacks(); lacks != \"\"", "lacks := state.Lacks(); false && lacks != \"\""}}, otherSchemas},
	{"commands do not say that shards have different schemas", []edit{{stateOfFile, "	if !differ {", "	if true {"}}, otherSchemas},
	{"commands ask one shard after the other", []edit{{connectFile, "		g.Go(func() { errs[i] = InShard(s.Name, do(i, s)) })\n", "		errs[i] = InShard(s.Name, do(i, s))\n"}}, silentShards},
	{"commands name one of the shards that are away", []edit{{connectFile, "		errs = append(errs, InShard(d.Name, err))\n", "		if errs = append(errs, InShard(d.Name, err)); err != nil {\n			break\n		}\n"}}, awayShards},
}
