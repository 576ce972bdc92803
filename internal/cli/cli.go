// Package cli is the command line of badged: what the commands are called,
// what they print, and how they exit.
package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/config"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // or differences found
	exitUsage  = 2
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// commands is the grammar.
type commands struct {
	Config kong.ConfigFlag `help:"YAML file of settings, named as the flags are." placeholder:"FILE" env:"BADGED_CONFIG"`

	Demo        demoCmd        `cmd:"" help:"Everything on this machine, nothing to install or configure: a private Postgres, and a page with a simulated chat and live badges."`
	Serve       serveCmd       `cmd:"" help:"Run the server, with all roles or some."`
	Settings    configCmd      `cmd:"" name:"config" help:"Look at settings."`
	Migrate     migrateCmd     `cmd:"" help:"Create or update the schema of the database."`
	Replay      replayCmd      `cmd:"" help:"Feed a file of traffic through the publish path and print the totals."`
	User        userCmd        `cmd:"" help:"Look at users."`
	Lag         lagCmd         `cmd:"" help:"Show how far each partition is behind, and who folds it."`
	Verify      verifyCmd      `cmd:"" help:"Fold the log again and compare the badges with it."`
	Rebuild     rebuildCmd     `cmd:"" help:"Fold the log again and make the badges what it says, while the service runs."`
	Archive     archiveCmd     `cmd:"" help:"Move old events from the log to files, and cut them off, while the service runs."`
	DeadLetters deadLettersCmd `cmd:"" name:"deadletters" help:"Look after events in the log that could not be understood."`
	RepairLog   repairLogCmd   `cmd:"" name:"repair-log" help:"Put the log in order after a restore from a dump, or replication, into another Postgres cluster."`
	Token       tokenCmd       `cmd:"" help:"Print a client token for a user, for development and smoke tests."`
	Ready       readyCmd       `cmd:"" help:"Ask a running server whether it can serve: the health check of containers."`
	Version     versionCmd     `cmd:"" help:"Print the version."`
}

// Main runs the command line and returns the exit code. A first interrupt asks
// the command to finish, a second one ends the process.
func Main(args []string, streams Streams) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx, args, streams)
}

// exited is how kong's wish to exit, after printing help, reaches us.
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
	var parser *kong.Kong
	loadFile := func(r io.Reader) (kong.Resolver, error) { return config.LoadFile(r, parser.Model) }
	parser, err := kong.New(&commands{},
		kong.Name("badged"),
		kong.Description("Notification badges that are exact and can explain themselves.\n\nEvery flag can also be given in the environment, as BADGED_… in capitals, or in the file of --config."),
		kong.Writers(streams.Out, streams.Err),
		kong.Exit(func(code int) { panic(exited(code)) }),
		kong.DefaultEnvars("BADGED"),
		kong.Configuration(loadFile),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(streams),
	)
	if err != nil {
		say(streams.Err, err, "")
		return exitFailed
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if rest, ok := configCheckArgs(args); ok {
		return checkConfig(ctx, parser.Model, rest, streams)
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		say(streams.Err, err, usageHint(err))
		return exitUsage
	}
	if err := kctx.Run(); err != nil {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return exitFailed // whoever interrupted knows
		}
		say(streams.Err, err, failureHint(kctx.Selected(), err))
		return exitFailed
	}
	return exitDone
}
