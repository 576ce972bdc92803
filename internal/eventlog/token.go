package eventlog

import "fmt"

// timelineShift is by how many bits the timeline is moved in a token. 2^44 transactions
// are 55 years of 10,000 a second.
const timelineShift = 44

// timelineSQL is the timeline of Postgres, which a promotion and a point-in-time
// recovery change. Only a primary tells it.
const timelineSQL = `('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint`

// TokenSQL returns the token of the transaction that runs it.
var TokenSQL = fmt.Sprintf(`SELECT pg_current_xact_id()::text::bigint | (%s << %d)`, timelineSQL, timelineShift)

// Token is a transaction with the timeline of Postgres on which it committed. After a
// failover that lost the last commits, Postgres gives their ids to other transactions:
// the timeline tells which is meant. Of two tokens of a database the later one is
// greater.
type Token int64

// NewToken returns the token of a transaction. The timeline is 0 if it is not known.
func NewToken(timeline, transactionID int64) Token {
	return Token(timeline<<timelineShift | transactionID)
}

// Timeline returns the timeline, 0 if it is not known.
func (t Token) Timeline() int64 { return int64(t) >> timelineShift }

// TransactionID returns the transaction.
func (t Token) TransactionID() int64 { return int64(t) & (1<<timelineShift - 1) }
