package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/pg/pgfault"
	"github.com/badged/badged/internal/pg/pgsession"
)

// say prints an error on one line. If hint is not empty, it prints the hint on the next line.
func say(w io.Writer, err error, hint string) {
	fmt.Fprintln(w, "badged:", oneLine(err))
	if hint != "" {
		fmt.Fprintln(w, hint)
	}
}

// oneLine writes the lines of an error on one line, without repeated lines: pgx writes one line
// for each attempt to connect.
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

// usageError returns a clearer error for an unknown command, which kong reports as an unexpected
// argument. It returns other errors unchanged.
func usageError(err error) error {
	var parseErr *kong.ParseError
	if !errors.As(err, &parseErr) || parseErr.Context == nil || parseErr.Context.Selected() != nil {
		return err
	}
	if rest, ok := strings.CutPrefix(err.Error(), "unexpected argument "); ok {
		return errors.New("unknown command " + rest)
	}
	return err
}

// usageHint returns advice about a usage error: to read the help of the command that err is about.
func usageHint(err error) string {
	help := "badged"
	if parseErr, ok := errors.AsType[*kong.ParseError](err); ok && parseErr.Context != nil && parseErr.Context.Selected() != nil {
		help = parseErr.Context.Selected().FullPath()
	}
	return "Run `" + help + " --help` for what there is."
}

// failureHint returns advice about an error of Postgres, for example about a wrong password, a
// missing right or a failed connection. It returns "" if there is no advice.
func failureHint(command *kong.Node, err error) string {
	if advice := pgsession.Advice(err); advice != "" {
		return advice
	}
	switch pgfault.FaultOf(err) {
	case pgfault.WrongPassword:
		return "The password is wrong or has expired. It comes from the URL, the file that the URL names as password_file, PGPASSWORD, or the file of PGPASSFILE."
	case pgfault.TooManyConnections:
		return "Raise the limit that the message names: the limit of the role (ALTER ROLE … CONNECTION LIMIT), the limit of the database (ALTER DATABASE … CONNECTION LIMIT), or max_connections of the server. Or set pool_max_conns in the URLs of badged's processes, or run fewer of them."
	}
	switch pg, _ := errors.AsType[*pgconn.PgError](err); {
	case pg == nil:
	case pg.Code == "42501":
		return "The role that the URL names lacks this right. Connect as the owner of the schema badged, or let the owner run `badged migrate grant KIND ROLE`: https://github.com/badged/badged/blob/main/docs/postgres.md#roles says which kind this command needs."
	case slices.Contains([]string{"42P01", "42703", "42883"}, pg.Code): // a table, column or function that does not exist
		return "Migrations may be pending: `badged migrate status` shows them, and `badged migrate up` applies them."
	}
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return ""
	}
	if away := cluster.AwayIn(err); len(away) > 0 {
		return "Is Postgres running there, and may this user connect? --shard " + away[0].Database + " (BADGED_SHARDS) says where and who."
	}
	for _, flag := range command.Flags {
		switch {
		case flag.Name == "outbox-url" && strings.HasPrefix(err.Error(), "outbox: "):
			return "Is Postgres running there, and may this user connect? --outbox-url (BADGED_OUTBOX_URL) says where and who."
		case flag.Name == "database-url":
			return "Is Postgres running there, and may this user connect? --database-url (BADGED_DATABASE_URL) or --shard (BADGED_SHARDS) says where and who."
		}
	}
	return ""
}

// readyCmd is `badged ready`, a health check for container images that have no curl.
type readyCmd struct {
	URL string `name:"url" help:"The server." default:"http://127.0.0.1:8080" placeholder:"URL"`
}

// readyTimeout is longer than the time in which the server runs its checks.
const readyTimeout = 5 * time.Second

// Run reads /readyz of a server. It fails if the server cannot serve or cannot be reached.
func (c *readyCmd) Run(ctx context.Context, streams Streams) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", c.URL, res.Status, strings.TrimSpace(string(body)))
	}
	_, err = fmt.Fprintf(streams.Out, "%s\n", strings.TrimSpace(string(body)))
	return err
}
