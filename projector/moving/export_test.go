package moving

import "github.com/badged/badged/projector/internal/follow"

// Moved is a table that moves.
type Moved struct {
	Kind, Name, Of string
	Shared, Frozen bool
	Key            []string
	// Row and Between say what its places of the log are.
	Row, Between bool
}

// Tables returns the tables of a partition.
func Tables(partition int) []Moved {
	var all []Moved
	for _, t := range follow.Tables() {
		all = append(all, Moved{
			Kind: t.Kind + t.Suffix, Name: t.Name(partition), Of: t.Of(partition), Shared: t.Shared, Frozen: t.Form == follow.Frozen,
			Key: t.Key, Row: t.Places == follow.OfRow, Between: t.Places == follow.Between,
		})
	}
	return all
}

// Stay returns the tables that do not move.
func Stay() map[string]string { return stay() }
