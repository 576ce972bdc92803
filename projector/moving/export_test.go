package moving

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
	for _, t := range tables() {
		all = append(all, Moved{
			Kind: t.kind + t.suffix, Name: t.name(partition), Of: t.of(partition), Shared: t.shared, Frozen: t.form == frozen,
			Key: t.key, Row: t.places == ofRow, Between: t.places == between,
		})
	}
	return all
}

// Stay returns the tables that do not move.
func Stay() map[string]string { return stay() }
