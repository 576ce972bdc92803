package moving

// stay maps each table with rows of partitions that a move does not copy to the reason. The names
// omit the partition; "events" and "events_offsets" are the log and the positions of its readers.
func stay() map[string]string {
	return map[string]string{
		"events":             "copyLog gives the rows of the log places of the target",
		"events_offsets":     "positions are translated: the last round",
		"partitions":         "a database has the rows of the partitions that it holds",
		"log_ranges":         "each database has ranges of its own transaction ids",
		"rebuilt_partitions": "a rebuild of one database",
		"shard_partitions":   "the map, which each shard has",
		"stale_partitions":   "of partitions that the shard has given up",
		"moves":              "the move itself",
		"move_changes":       "the move itself",
		"move_places":        "the move itself",
	}
}
