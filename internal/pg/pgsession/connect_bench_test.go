package pgsession_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/pgsession"
)

// Measures the round trip that sets up a session, which each new connection costs once.
func BenchmarkConnect(b *testing.B) {
	url := pgtest.NewDB(b, pgtest.Template{})
	for _, side := range []struct {
		name string
		set  bool
	}{{"as given", false}, {"set up", true}} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			b.Fatal(err)
		}
		if side.set {
			pgsession.Configure(cfg)
		}
		b.Run(side.name, func(b *testing.B) {
			for b.Loop() {
				conn, err := pgx.ConnectConfig(b.Context(), cfg)
				if err != nil {
					b.Fatal(err)
				}
				if err := conn.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
