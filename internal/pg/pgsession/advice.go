package pgsession

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Advice returns advice for an operator if err was caused by a setting of the role or of the
// database that prevents sessions from beginning or from writing. It returns "" for any other
// error.
func Advice(err error) string {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return ""
	}
	const remove = "remove it with ALTER ROLE … RESET or ALTER DATABASE … RESET"
	switch pg.Code {
	case "57P05": // idle_session_timeout
		return "The role or the database sets idle_session_timeout so short that sessions end while they begin: " + remove + " idle_session_timeout."
	case "58P01": // undefined_file
		return "The role or the database sets a library to load that the server does not have: " + remove + " session_preload_libraries or local_preload_libraries, or install it."
	case "25006": // read_only_sql_transaction
		return "Nothing can be written: connect to the primary, and if the role or the database sets default_transaction_read_only, " + remove + "."
	case "23502": // not_null_violation: a trigger would have set the column
		if pg.TableName == "audit" {
			return "Triggers do not fire for this session: if the role or the database sets session_replication_role, " + remove + "."
		}
	}
	return ""
}
