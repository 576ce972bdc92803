package moving

import "github.com/badged/badged/internal/partition"

// Moved is a table that moves.
type Moved struct {
	Kind, Name, Of string
	Shared, Frozen bool
	Key            []string
	// Row and Between say what its places of the log are.
	Row, Between bool
}

// Tables returns the tables of a partition.
func Tables(number int) []Moved {
	var all []Moved
	for _, t := range partition.Tables() {
		all = append(all, Moved{
			Kind: t.Kind + t.Suffix, Name: t.Name(number), Of: t.Of(number), Shared: t.Shared, Frozen: t.Form == partition.Frozen,
			Key: t.Key, Row: t.Places == partition.OfRow, Between: t.Places == partition.Between,
		})
	}
	return all
}

// Stay returns the tables that do not move.
func Stay() map[string]string { return stay() }
