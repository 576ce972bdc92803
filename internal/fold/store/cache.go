package store

import "github.com/badged/badged/internal/fold/badge"

// Cache has users and rooms of a partition that its owner has folded. They are equal to their rows,
// so a batch need not load these rows. The users and rooms remain equal as long as no other program
// writes the rows. The fence of each batch detects other writers: another owner moves the position,
// and any other program that writes rows raises the partition's revision. After a failed batch, the
// users and rooms of the batch are dropped, and the owner reads the state of the partition again.
// If the position or this state has changed, the owner clears the cache.
//
// The cache has two halves. A user or room that is used moves to Young. When Young is full,
// Young becomes Old, and a new Young begins. The previous Old is evicted: the users and rooms
// that are still in it have not been used since it was Young.
type Cache struct {
	Young, Old Cached
	// weight is the approximate size of Young in bytes. When it exceeds Limit, Young is full.
	weight, Limit int
}

// Cached is one half of a cache.
type Cached struct {
	Users map[string]*badge.User
	Rooms map[string]*badge.Room
}

func newCached() Cached {
	return Cached{map[string]*badge.User{}, map[string]*badge.Room{}}
}

// NewCache returns an empty cache of about limit bytes.
func NewCache(limit int) *Cache {
	return &Cache{Limit: limit / 2, Young: newCached()}
}

// User returns a cached user and moves it to Young. It returns nil if the cache does not have
// the user.
func (c *Cache) User(id string) *badge.User {
	if u, ok := c.Young.Users[id]; ok {
		return u
	}
	u, ok := c.Old.Users[id]
	if !ok {
		return nil
	}
	delete(c.Old.Users, id)
	c.Young.Users[id] = u
	c.weight += u.Weight
	return u
}

// Room returns a cached room and moves it to Young. It returns nil if the cache does not have
// the room.
func (c *Cache) Room(id string) *badge.Room {
	if r, ok := c.Young.Rooms[id]; ok {
		return r
	}
	r, ok := c.Old.Rooms[id]
	if !ok {
		return nil
	}
	delete(c.Old.Rooms, id)
	c.Young.Rooms[id] = r
	c.weight += r.Weight
	return r
}

// Keep caches users and rooms whose rows were just written.
func (c *Cache) Keep(users []*badge.User, rooms map[string]*badge.Room) {
	for _, u := range users {
		before := u.Weight
		u.Settle()
		if before == 0 { // else User has already put it into Young
			c.Young.Users[u.ID] = u
		}
		c.weight += u.Weight - before
	}
	for id, r := range rooms {
		if former := c.Room(id); former != nil { // the same room, or an older copy of a room that was loaded again
			c.weight -= former.Weight
		}
		r.Settle()
		c.Young.Rooms[id] = r
		c.weight += r.Weight
	}
	if c.weight > c.Limit {
		c.Old, c.Young, c.weight = c.Young, newCached(), 0
	}
}

// Drop removes the users and rooms that a failed batch has changed in memory.
func (c *Cache) Drop(s *badge.State) {
	for id := range s.Users {
		if u, ok := c.Young.Users[id]; ok {
			c.weight -= u.Weight
			delete(c.Young.Users, id)
		}
		delete(c.Old.Users, id)
	}
	for id := range s.Rooms {
		if r, ok := c.Young.Rooms[id]; ok {
			c.weight -= r.Weight
			delete(c.Young.Rooms, id)
		}
		delete(c.Old.Rooms, id)
	}
}

// Clear drops all users and rooms.
func (c *Cache) Clear() {
	c.Young, c.Old, c.weight = newCached(), Cached{}, 0
}
