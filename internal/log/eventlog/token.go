package eventlog

import "fmt"

// timelineShift is the position of the timeline in a token, in bits. The 44 bits below it have
// the id of the transaction; they suffice for 55 years of 10,000 transactions per second.
const timelineShift = 44

// timelineSQL is the timeline of Postgres, which changes with each promotion and each
// point-in-time recovery. Only a primary can evaluate it.
const timelineSQL = `('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`

// TokenSQL returns the token of the transaction in which it runs.
var TokenSQL = fmt.Sprintf(`SELECT pg_current_xact_id()::text::bigint | (%s << %d)`, timelineSQL, timelineShift)

// Token identifies a transaction and the timeline of Postgres on which it committed. After a
// failover that lost the last commits, Postgres reuses the ids of the lost transactions; only
// the timeline then distinguishes old from new transactions. Of two transactions of a
// database, the later one has the greater token.
type Token int64

// NewToken returns the token of a transaction. timeline is 0 if unknown.
func NewToken(timeline, transactionID int64) Token {
	return Token(timeline<<timelineShift | transactionID)
}

// Timeline returns the timeline, 0 if unknown.
func (t Token) Timeline() int64 { return int64(t) >> timelineShift }

// TransactionID returns the id of the transaction.
func (t Token) TransactionID() int64 { return int64(t) & (1<<timelineShift - 1) }
