package badge

// Room is the state of a room that its members in a partition share.
type Room struct {
	ID string
	// Changes grows by one with every event that changes what a member can see.
	Changes int64
	// LastSeq is the greatest seq posted, recalled or not, or at which the first
	// member joined.
	LastSeq int64
	// Category is that of the last message.
	Category string
	// DeliveredHour is when the latest message was appended, in hours since 1970.
	DeliveredHour int64
	// Members is how many users of the partition are members.
	Members int64

	// Open has the messages above Since, and Closed the others, in ascending order
	// of their bounds, as far as they are loaded.
	Open   Chunk
	Since  int64
	Closed []*Chunk
	// SinceChanges grows by one with every event that changes a closed chunk.
	SinceChanges int64
}
