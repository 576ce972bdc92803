package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"
)

// say prints an error on a line of its own, and a hint below it where there is
// one.
func say(w io.Writer, err error, hint string) {
	fmt.Fprintln(w, "badged:", oneLine(err))
	if hint != "" {
		fmt.Fprintln(w, hint)
	}
}

// oneLine joins the lines of an error. pgx gives each attempt to connect a line,
// and attempts tend to fail alike.
func oneLine(err error) string {
	var text string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		switch {
		case strings.Contains(text, line):
		case text == "":
			text = line
		case strings.HasSuffix(text, ":"):
			text += " " + line
		default:
			text += "; " + line
		}
	}
	return text
}

// usageHint says where to find out how a command is used.
func usageHint(err error) string {
	help := "badged"
	var parseErr *kong.ParseError
	if errors.As(err, &parseErr) && parseErr.Context != nil && parseErr.Context.Selected() != nil {
		help = parseErr.Context.Selected().FullPath()
	}
	return "Run `" + help + " --help` for what there is."
}

// failureHint says what to look at after a command has failed.
func failureHint(command *kong.Node, err error) string {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return ""
	}
	for _, flag := range command.Flags {
		if flag.Name == "database-url" {
			return "Is Postgres running there, and may this user connect? --database-url (BADGED_DATABASE_URL) says where and who."
		}
	}
	return ""
}
