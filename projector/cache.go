package projector

// cache remembers the users that the owner of a partition has folded, as the
// tables have them, so that a batch loads only the others. That is right while
// nobody else writes: another owner moves the position, which the fence
// notices, and whoever changes rows beside the owner raises the partition's
// revision, which each batch compares. Then, and after any error, the cache is
// emptied.
//
// It has two halves. What is used goes into the young one; when that is full it
// becomes the old one, and what was old and not used since is forgotten.
type cache struct {
	young, old map[string]*user
	// weight is that of young, in bytes, roughly; limit is when it is full.
	weight, limit int
}

// newCache returns an empty cache of so many bytes, roughly.
func newCache(limit int) *cache {
	return &cache{limit: limit / 2, young: map[string]*user{}}
}

// user returns a user that is remembered, nil where none is.
func (c *cache) user(id string) *user {
	if u, ok := c.young[id]; ok {
		return u
	}
	u, ok := c.old[id]
	if !ok {
		return nil
	}
	delete(c.old, id)
	c.young[id] = u
	c.weight += u.weight
	return u
}

// keep remembers users whose rows have just been written as they are.
func (c *cache) keep(users []*user) {
	for _, u := range users {
		before := u.weight
		u.settle()
		if before == 0 { // else it is among the young, where user has put it
			c.young[u.id] = u
		}
		c.weight += u.weight - before
	}
	if c.weight > c.limit {
		c.old, c.young, c.weight = c.young, map[string]*user{}, 0
	}
}

// clear forgets everything.
func (c *cache) clear() {
	c.young, c.old, c.weight = map[string]*user{}, nil, 0
}
