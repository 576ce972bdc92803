package pgsession

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestAdvice(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a session that ends while it begins": {&pgconn.PgError{Code: "57P05"}, "idle_session_timeout"},
		"a library that is not there":         {&pgconn.PgError{Code: "58P01"}, "session_preload_libraries"},
		"nothing can be written":              {&pgconn.PgError{Code: "25006"}, "default_transaction_read_only"},
		"no trigger fires":                    {&pgconn.PgError{Code: "23502", TableName: "audit"}, "session_replication_role"},
		"another column":                      {&pgconn.PgError{Code: "23502", TableName: "users"}, ""},
		"another error":                       {errors.New("no"), ""},
	} {
		if got := Advice(fmt.Errorf("connect: %w", tc.err)); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
