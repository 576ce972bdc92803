package operations_test

import (
	"testing"

	"github.com/badged/badged/internal/operations"
)

// What is no JSON in UTF-8 is shown in base64, and can be discarded: the audit
// trail refuses other bytes.
func TestDiscardADeadLetterThatIsNoText(t *testing.T) {
	d := newDatabase(t)
	var id int64
	if err := d.pool.QueryRow(t.Context(), `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
VALUES (0, '1', 1, gen_random_uuid(), '\x7b2261223a22ff227d', 'invalid UTF-8') RETURNING id`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	letter, err := d.operations.DiscardDeadLetter(t.Context(), operations.OSUser(), id)
	if err != nil {
		t.Fatal(err)
	}
	if letter.Payload != nil || letter.Raw != "eyJhIjoi/yJ9" {
		t.Errorf("payload %q, in base64 %q", letter.Payload, letter.Raw)
	}
}
