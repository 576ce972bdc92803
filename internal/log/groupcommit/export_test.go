package groupcommit

// Size returns the number of queued events.
func Size(g *Group) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.waiting {
		n += len(c.evs)
	}
	return n
}
