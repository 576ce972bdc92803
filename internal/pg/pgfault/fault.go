// Package pgfault classifies errors of Postgres that are faults of the server or of the
// connection, and not errors of the statement.
//
// The package does not know which statement failed. ADR 130 explains why a badged server stays
// ready while its database can be read but not written.
package pgfault

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Fault is a kind of fault. Its text is the value of the label "fault" in metrics.
type Fault string

// The faults. Committed data survives each of them.
const (
	None               Fault = ""
	Full               Fault = "full"
	Unwritable         Fault = "unwritable"
	ReadOnly           Fault = "read_only"
	TooManyConnections Fault = "too_many_connections"
	OutOfMemory        Fault = "out_of_memory"
	Restarting         Fault = "restarting"
	WrongPassword      Fault = "wrong_password"
	LoginRefused       Fault = "login_refused"
	NoDatabase         Fault = "no_database"
	Slow               Fault = "slow"
	Unreachable        Fault = "unreachable"
)

// FaultOf returns the fault that caused an error of a statement or of a connection. It returns None
// if no fault caused the error, for example if the statement itself is wrong.
func FaultOf(err error) Fault {
	var connect *pgconn.ConnectError
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		if pg.Code == "42501" && errors.As(err, &connect) { // insufficient_privilege: the role lacks CONNECT
			return LoginRefused
		}
		return OfCode(pg.Code)
	}
	var network net.Error
	switch {
	case err == nil:
		return None
	case errors.Is(err, context.DeadlineExceeded):
		return Slow
	case errors.As(err, &connect), errors.As(err, &network), pgconn.SafeToRetry(err),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreachable
	}
	return None
}

// OfCode returns the fault for an SQLSTATE.
func OfCode(code string) Fault {
	switch code {
	case "53100": // disk_full
		return Full
	case "58030": // io_error
		return Unwritable
	case "25006": // read_only_sql_transaction: a standby, or default_transaction_read_only
		return ReadOnly
	case "53300": // too_many_connections
		return TooManyConnections
	case "28P01": // invalid_password: wrong or expired
		return WrongPassword
	case "28000": // invalid_authorization_specification: NOLOGIN, pg_hba.conf, no such role
		return LoginRefused
	case "3D000": // invalid_catalog_name
		return NoDatabase
	case "53200": // out_of_memory
		return OutOfMemory
	case "57P01", "57P02", "57P03": // admin_shutdown, crash_shutdown, cannot_connect_now
		return Restarting
	case "57014", "55P03": // query_canceled, lock_not_available: by a timeout
		return Slow
	}
	for _, class := range []string{"08", "53", "57"} { // connection, resources, operators
		if strings.HasPrefix(code, class) {
			return Unreachable
		}
	}
	return None
}

// OfContent reports whether Postgres refused a statement because of its data: Postgres cannot
// store a value, or the data exceed a limit of Postgres.
func OfContent(err error) bool {
	const dataException, programLimitExceeded = "22", "54"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, dataException) || strings.HasPrefix(pg.Code, programLimitExceeded))
}

// String describes the fault as the end of a sentence that begins with "the database".
func (f Fault) String() string {
	switch f {
	case None:
		return "has no fault"
	case Full:
		return "has no space left on its disk"
	case Unwritable:
		return "cannot write to its disk"
	case ReadOnly:
		return "is read-only"
	case TooManyConnections:
		return "has no connection left"
	case OutOfMemory:
		return "is out of memory"
	case Restarting:
		return "is starting or stopping"
	case WrongPassword:
		return "refuses the password of badged, which is wrong or has expired"
	case LoginRefused:
		return "does not let badged log in: see its log, pg_hba.conf, and LOGIN and CONNECT of the role"
	case NoDatabase:
		return "does not exist on its server"
	case Slow:
		return "does not answer in time"
	}
	return "cannot be reached"
}

// OfLogin reports whether Postgres answers but refuses the login. Retries fail until an operator
// has changed the configuration.
func (f Fault) OfLogin() bool { return f == WrongPassword || f == LoginRefused || f == NoDatabase }

// Reads reports whether the database can still be read despite the fault.
func (f Fault) Reads() bool { return f == None || f == Full || f == Unwritable || f == ReadOnly }
