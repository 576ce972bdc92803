package events

// GroupSize returns how many events wait in g for the append under way to end.
func GroupSize(g *Group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		return 0
	}
	return len(g.next.evs)
}

// DecodeOwn and DecodeAny are the fast and the strict way to decode.
var (
	DecodeOwn = decodeOwn
	DecodeAny = decode
)

// PageSQL is what a [Subscriber] reads with.
func PageSQL(topic string) string { return pageSQL(topic) }
