package events

// GroupSize returns how many events wait in g for the appends under way to end.
func GroupSize(g *Group) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.waiting {
		n += len(c.evs)
	}
	return n
}

// LogOf returns a log of so many partitions that no database has.
func LogOf(partitions int) *Log { return Attach(nil, partitions) }

// DecodeQuick and DecodeAny are the fast and the strict way to decode.
var (
	DecodeQuick = decodeQuick
	DecodeAny   = decode
)
