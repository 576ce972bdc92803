package grouping

// Size returns how many events wait in g for the appends under way to end.
func Size(g *Group) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.waiting {
		n += len(c.evs)
	}
	return n
}
