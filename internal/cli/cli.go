// Package cli is the command line of badged: its commands, their output and the exit codes.
//
// A command reads flags, calls functions of other packages and prints the result. The package
// does not know how these other parts of badged work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9/logging"

	"github.com/badged/badged/internal/base/rfc3339"
	"github.com/badged/badged/internal/base/version"
	"github.com/badged/badged/internal/cli/offline"
	"github.com/badged/badged/internal/cli/partition"
	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/server/config"
)

// Exit codes.
const (
	exitDone    = 0
	exitFailed  = 1 // an error; also differences that a command such as verify has found
	exitUsage   = 2
	exitUnknown = 3 // see errUnknown
)

// errUnknown is returned by a command that has printed that badged has no data of the user.
var errUnknown = errors.New("the user is unknown")

// Streams are the standard streams of a command.
type Streams = terminal.Streams

// commands has all commands and their flags. kong derives the grammar of the command line from it.
type commands struct {
	Config  config.FileFlag  `help:"YAML file with settings, which have the names of the flags." placeholder:"FILE" env:"BADGED_CONFIG"`
	Release kong.VersionFlag `name:"version" help:"Print the version." env:"-" hidden:""`

	Demo        demoCmd             `cmd:"" help:"Run a demo without installing or configuring anything: a private Postgres, and a page with a simulated chat and live badges."`
	Dev         devCmd              `cmd:"" help:"Run an empty server for tests of your own program, with a private Postgres and keys that never change. All data is deleted at the end."`
	Serve       serveCmd            `cmd:"" help:"Run the server, with all roles or some roles."`
	Ingest      ingestCmd           `cmd:"" help:"Read events from Kafka, NATS JetStream or Redis Streams, and publish them."`
	Relay       relayCmd            `cmd:"" help:"Copy events from an outbox in the database of the chat backend to badged."`
	Tail        tailCmd             `cmd:"" help:"Publish all events, and all changes of badges, to Kafka, NATS JetStream or Redis Streams."`
	Settings    configCmd           `cmd:"" name:"config" help:"Check settings."`
	Migrate     migrateCmd          `cmd:"" help:"Create or update the schema of the database."`
	Load        loadCmd             `cmd:"" help:"Publish a file of traffic, or traffic of rooms, and print the totals."`
	Import      importCmd           `cmd:"" help:"Publish the states of users from another system, and compare the badges with these states."`
	User        userCmd             `cmd:"" help:"Show or explain the badge of a user; export, erase or merge the data of a user."`
	Lag         lagCmd              `cmd:"" help:"Show how far each partition is behind, and which process folds it."`
	Log         logCmd              `cmd:"" help:"Print the events of the log, one line of JSON for each event."`
	Verify      verifyCmd           `cmd:"" help:"Replay the log and compare the badges with it."`
	Rebuild     rebuildCmd          `cmd:"" help:"Replay the log and correct the badges, while the service runs."`
	Partition   partition.Cmd       `cmd:"" help:"List partitions, move them to other shards, and split them."`
	Archive     archiveCmd          `cmd:"" help:"Move old events from the log to files, while the service runs."`
	Restore     restoreCmd          `cmd:"" help:"Fill the log of a new database from an archive."`
	DeadLetters deadLettersCmd      `cmd:"" name:"deadletters" help:"List, retry or discard dead letters: events that could not be folded, and messages that are not events."`
	Audit       auditCmd            `cmd:"" help:"List, verify or prune the audit trail."`
	MCP         mcpCmd              `cmd:"" name:"mcp" help:"Answer an assistant over the Model Context Protocol, on standard input and output."`
	RepairLog   repairLogCmd        `cmd:"" name:"repair-log" help:"Renumber the log after moving it to another Postgres cluster by a dump or replication."`
	Keys        offline.Keys        `cmd:"" help:"Create keys of publishers, readers and admins."`
	Size        offline.Size        `cmd:"" help:"Estimate the resources that a chat of a given size needs: cores, disk, WAL, Redis, gateways."`
	Token       offline.Token       `cmd:"" help:"Print a client token for a user, for development and smoke tests."`
	Conformance offline.Conformance `cmd:"" help:"Check a client of the protocol badge.v1, in any language, against a scripted server."`
	Ready       readyCmd            `cmd:"" help:"Check that a running server can serve, as a health check of containers."`
	Completion  offline.Completion  `cmd:"" help:"Print a script that completes commands and flags in a shell."`
	Complete    offline.Complete    `cmd:"" hidden:"" help:"Print completions of the words."`
	Version     versionCmd          `cmd:"" help:"Print the version."`
}

// Main runs the command line and returns the exit code. The first interrupt (SIGINT or SIGTERM)
// asks the command to stop. The second interrupt kills the process.
func Main(args []string, streams Streams) int {
	logging.Disable() // do not log the errors of the Redis client: it also returns them, and commands print them
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx, args, streams)
}

// exited is an exit code. It is the value of the panic that ends parsing when kong has printed help
// and wants to exit.
type exited int

func run(ctx context.Context, args []string, streams Streams) (code int) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(exited)
			if !ok {
				panic(r)
			}
			code = int(e)
		}
	}()
	var all commands
	parser, err := newParser(ctx, &all, streams)
	if err != nil {
		say(streams.Err, err, "")
		return exitFailed
	}
	if name := notUTF8(args, os.Environ()); name != "" {
		say(streams.Err, errors.New(name+" is not valid UTF-8"), usageHint(nil))
		return exitUsage
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help": // accept `badged help` too, as git, go and kubectl do
		args = append(args[1:len(args):len(args)], "--help")
	}
	if asksForConfigCheck(parser, args) {
		return all.Settings.Check.run(ctx, parser, args, streams)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		say(streams.Err, usageError(err), usageHint(err))
		return exitUsage
	}
	if flag := emptyFlag(kctx); flag != "" {
		say(streams.Err, errors.New(flag+" must not be empty: give a value, or leave it out"), usageHint(nil))
		return exitUsage
	}
	hint := interruptionHint(kctx.Selected())
	ended := func() {}
	if announces(kctx.Selected()) {
		ended = announceInterruption(ctx, streams.Err)
	}
	err = kctx.Run()
	ended()
	if errors.Is(err, errUnknown) {
		return exitUnknown
	}
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			if hint != "" {
				say(streams.Err, errors.New("interrupted"), hint)
			}
			return exitFailed
		}
		say(streams.Err, err, failureHint(kctx.Selected(), err))
		if _, ok := errors.AsType[*config.MistakeError](err); ok {
			return exitUsage
		}
		return exitFailed
	}
	return exitDone
}

func newParser(ctx context.Context, all *commands, streams Streams) (*kong.Kong, error) {
	return kong.New(all,
		kong.Name("badged"),
		kong.Description("Notification badges that are exact and can explain themselves.\n\nEvery flag can also be set in the environment, as BADGED_… in capitals, or in the file given with --config."),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.DefaultEnvars("BADGED"),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(decodeTime)),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(decodeDuration)),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams),
		kong.Vars{"version": versionText()},
	)
}

// notUTF8 returns the name of an argument or setting that is not valid UTF-8, or "" if there is none.
// kong would replace the invalid bytes by U+FFFD, and the command might then act on another user. The
// configuration file needs no check, since YAML is UTF-8. The result does not contain the value,
// which may be a secret.
func notUTF8(args, environment []string) string {
	for i, arg := range args {
		name, _, isFlag := strings.Cut(arg, "=")
		switch {
		case utf8.ValidString(arg):
		case isFlag && strings.HasPrefix(name, "--") && utf8.ValidString(name):
			return name
		default:
			return fmt.Sprintf("argument %d", i+1)
		}
	}
	for _, variable := range environment {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "BADGED_") && !utf8.ValidString(value) {
			return name
		}
	}
	return ""
}

// emptyFlag returns a flag that has an empty value on the command line, or "" if there is none. An
// empty value is usually a mistake, such as an unset variable in a script: `--user=` would select
// all users instead of one. Flags that can also be set in the environment may be empty.
func emptyFlag(parsed *kong.Context) string {
	for _, part := range parsed.Path {
		if part.Flag == nil || part.Resolved || len(part.Flag.Envs) > 0 {
			continue
		}
		v := reflect.ValueOf(parsed.FlagValue(part.Flag))
		list, isList := v.Interface().([]string)
		if isList && (len(list) == 0 || slices.Contains(list, "")) || v.Kind() == reflect.String && v.Len() == 0 {
			return "--" + part.Flag.Name
		}
	}
	return ""
}

type versionCmd struct{}

// Run prints the version, the Go version and the platform.
func (versionCmd) Run(_ context.Context, streams Streams) error {
	_, err := fmt.Fprintln(streams.Out, versionText())
	return err
}

func versionText() string {
	return fmt.Sprintf("badged %s (%s, %s/%s)", version.String(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// decodeTime parses a time in RFC 3339. It replaces kong's parser, which accepts even an offset
// of +24:00.
func decodeTime(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	at, err := rfc3339.Parse(text)
	if err != nil {
		return fmt.Errorf("must be a time such as 2026-01-31T23:59:59Z, is %q", text)
	}
	target.Set(reflect.ValueOf(at))
	return nil
}

// decodeDuration parses a duration. For days, which Go does not support, its error says how many
// hours to write.
func decodeDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		instead := ""
		if number, ok := strings.CutSuffix(text, "d"); ok {
			if days, err := strconv.Atoi(number); err == nil {
				instead = fmt.Sprintf("; write %dh", 24*days)
			}
		}
		return fmt.Errorf("must be a duration such as 10s or 1h30m, is %q%s", text, instead)
	}
	target.SetInt(int64(d))
	return nil
}
