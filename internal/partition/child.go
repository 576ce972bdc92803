package partition

import (
	"fmt"
	"slices"
	"strings"
)

// Child is one of the two new partitions of a split. Its methods return SQL that selects the rows
// of the child. Each user of the parent belongs to exactly one child: the child for which
// badged.partition_of(user, Modulus) is Partition - Base. Both children get the rows that belong
// to no user, such as rooms. But only the first child gets the queued webhook calls about dead
// letters, and only its rooms count the erased members.
type Child struct {
	Partition, Base, Modulus int
	First                    bool
}

// has returns the condition that a user belongs to the child.
func (c *Child) has(user string) string {
	return fmt.Sprintf("badged.partition_of(%s, %d) = %d", user, c.Modulus, c.Partition-c.Base)
}

// Gets returns an SQL condition that is true for a row t of the parent's table if the child gets
// the row.
func (c *Child) Gets(t Table) string {
	switch {
	case slices.Contains(t.Key, "user_id"):
		return c.has("t.user_id")
	case t.Kind == "dead_letters":
		return "false" // only the switch moves dead letters: if the copy included them, lists would show each twice
	case t.Kind == "webhook_queue":
		// A queued webhook call about a room describes the members in one partition. So each child
		// needs the call, for its own members.
		return fmt.Sprintf(`CASE t.type WHEN 'room.changed' THEN true WHEN 'deadletter.buried' THEN %t ELSE %s END`, c.First, c.has("t.subject"))
	case t.Kind == "settled_letters":
		return `(t.user_ids IS NULL OR EXISTS (SELECT FROM unnest(t.user_ids) AS u WHERE ` + c.has("u") + `))`
	}
	return "true"
}

// Selects returns the select list of a query that makes the child's row from a row t of the
// parent's table. `all` has the columns of the table.
func (c *Child) Selects(t Table, all Columns) string {
	var list []string
	for _, one := range all {
		value := "t." + Quote(one.Name)
		switch {
		case one.Name == "partition_id":
			value = fmt.Sprint(c.Partition)
		case t.Kind == "settled_letters" && one.Name == "user_ids":
			value = `CASE WHEN t.user_ids IS NOT NULL THEN ARRAY(SELECT u FROM unnest(t.user_ids) WITH ORDINALITY AS x (u, n) WHERE ` + c.has("u") + ` ORDER BY n) END`
		case t.Kind == "rooms" && one.Name == "members":
			value = c.members(t)
		}
		list = append(list, value+" AS "+Quote(one.Name))
	}
	return strings.Join(list, ", ")
}

// members returns an SQL expression for a statement that copies a room t to the child: the number
// of members that the room gets in the child. For the second child, it is the number of memberships
// in the child's table of conversations if the child does not have the room yet. It is 0 for a room
// that the child already has, since the split itself updates the number of this room. For the first
// child it is always 0: the split later sets the number to the parent's number minus the second
// child's number. So erased members, whose user ids are not stored, count in the first child.
func (c *Child) members(rooms Table) string {
	if c.First {
		return "0"
	}
	conversations := Table{Kind: "conversations", Suffix: rooms.Suffix}
	return fmt.Sprintf(`CASE WHEN NOT EXISTS (SELECT FROM %s AS r WHERE r.conversation_id = t.conversation_id)
THEN (SELECT count(*) FROM %s AS c WHERE c.conversation_id = t.conversation_id AND c.joined IS NOT NULL) ELSE 0 END`,
		rooms.Name(c.Partition), conversations.Name(c.Partition))
}
