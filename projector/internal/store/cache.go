package store

import "github.com/badged/badged/projector/internal/badge"

// Cache holds the users that the owner of a partition has folded, as the
// tables have them, so that a batch loads only the others. It is right as long
// as there is no other writer. The fence detects another owner, which moves
// the position; any other writer of rows raises the partition's revision,
// which each batch compares. Then, and after any error, the cache is cleared.
//
// It has two halves. Users in use go into Young; when that is full it becomes
// Old, and what was in Old and not used since is dropped.
type Cache struct {
	Young, Old map[string]*badge.User
	// weight is that of Young, in bytes, roughly; Limit is when it is full.
	weight, Limit int
}

// NewCache returns an empty cache of roughly limit bytes.
func NewCache(limit int) *Cache {
	return &Cache{Limit: limit / 2, Young: map[string]*badge.User{}}
}

// User returns a cached user, nil if there is none.
func (c *Cache) User(id string) *badge.User {
	if u, ok := c.Young[id]; ok {
		return u
	}
	u, ok := c.Old[id]
	if !ok {
		return nil
	}
	delete(c.Old, id)
	c.Young[id] = u
	c.weight += u.Weight
	return u
}

// Keep caches users whose rows have just been written as they are.
func (c *Cache) Keep(users []*badge.User) {
	for _, u := range users {
		before := u.Weight
		u.Settle()
		if before == 0 { // else User has put it into Young
			c.Young[u.ID] = u
		}
		c.weight += u.Weight - before
	}
	if c.weight > c.Limit {
		c.Old, c.Young, c.weight = c.Young, map[string]*badge.User{}, 0
	}
}

// Drop drops users: their state is that of a batch that was not committed.
func (c *Cache) Drop(users map[string]*badge.User) {
	for id := range users {
		if u, ok := c.Young[id]; ok {
			c.weight -= u.Weight
			delete(c.Young, id)
		}
		delete(c.Old, id)
	}
}

// Clear drops everything.
func (c *Cache) Clear() {
	c.Young, c.Old, c.weight = map[string]*badge.User{}, nil, 0
}
