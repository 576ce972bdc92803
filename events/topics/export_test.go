package topics

// PageSQL is what a [Subscriber] reads with.
func PageSQL(topic string) string { return pageSQL(topic) }
