package badge

// Membership is what a conversation has in addition if it is a room and the user a
// member. With the [Room] it gives the numbers:
//
//   - unread: the room's live messages above ReadSeq, less those in Own;
//   - mentions: the room's live messages above ReadSeq that mention everybody, less
//     those in OwnAll, and those in Mentions of the conversation;
//   - version of the user: User.Version + User.Carried + the sum of
//     Room.Changes - Joined over the memberships.
//
// So a message of others changes nothing here.
type Membership struct {
	// Joined is Changes of the room when the user joined.
	Joined int64
	// Own are the user's own messages above ReadSeq, and OwnAll those of them that
	// mention everybody. Mentions of the conversation are the messages above ReadSeq
	// that mention the user by name, without those in Own and those that mention
	// everybody.
	Own, OwnAll BoundedSet
}

// Member reports whether the conversation is a room and the user a member.
func (c *Conversation) Member() bool { return c.Membership != nil }
