package demo

import (
	"regexp"
	"slices"
	"strings"
)

// person is a simulated user of the demo.
type person struct {
	UserID string `json:"user_id"`
	Name   string `json:"name"`
	Color  string `json:"color"`
}

type conversation struct {
	ConversationID string `json:"conversation_id"`
	Name           string `json:"name"`
	Kind           string `json:"kind"` // direct, group, thread, feed or room
	// Members has the people in the conversation. A room has guests as well, who are not listed.
	Members []string `json:"members"`
	// Category is a channel of a workspace, or a kind of notifications. A thread has the category
	// of the channel to which it belongs.
	Category string `json:"category"`
	// Late is true if phones list the conversation only after its first message.
	Late bool `json:"late,omitempty"`
	// weight is how often the simulation writes in this conversation, relative to the other
	// conversations; 0 means never.
	weight int
	lines  []string
}

const (
	// townHall is the id of the room.
	townHall = "town-hall"
	// copied is a conversation with the same members as the room "town hall". A message to the room
	// names no users, and a message to this conversation names all members as recipients. The page
	// compares the costs of these two kinds of messages.
	copied = "town-hall-copy"
)

func people() []person {
	return []person{
		{"ada", "Ada", "#e8596e"},
		{"ben", "Ben", "#2f7de1"},
		{"chloe", "Chloé", "#159a74"},
		{"dev", "Dev", "#8a5cf0"},
	}
}

// bot is the sender of system messages.
const bot = "release-bot"

func conversations() []conversation {
	all := []string{"ada", "ben", "chloe", "dev"}
	hosts := []string{"ada", "ben"}
	return []conversation{
		{"design-crew", "Design crew", "group", all, "acme/design", false, 5, []string{
			"Morning! Who is in today?",
			"I moved the spacing tokens to 4 px steps",
			"@Ada can you look at the new icon?",
			"The dark palette is ready for review",
			"Shipping it 🚀",
			"@Ben the contrast on the badge is too low, I think",
			"Looks great on my phone",
			"Can we talk about the empty state tomorrow?",
		}},
		{"design-crew/icon", "The new icon", "thread", []string{"ada", "ben", "dev"}, "acme/design", false, 2, []string{
			"Round or square?", "The second one, in blue", "I attached three more", "@Dev what do you think?",
		}},
		{townHall, "Town hall", "room", hosts, "acme/town-hall", false, 0, []string{
			"Doors are open", "The keynote starts in five minutes", "Can everybody hear me?", "The slides are online",
			"@Ada you are on next", "Questions, please", "@Ben could you share the numbers?", "Thanks for coming 👏",
		}},
		{copied, "Town hall (group)", "feed", hosts, "acme/town-hall", true, 0, []string{"The same, to each member"}},
		{"ada-ben", "Ada and Ben", "direct", []string{"ada", "ben"}, "acme/direct", false, 3, []string{
			"Got a minute?", "Sure", "Pushed the fix, can you look?", "Thanks, that was it", "👍", "Call you after the stand-up",
		}},
		{"chloe-dev", "Chloé and Dev", "direct", []string{"chloe", "dev"}, "acme/direct", false, 3, []string{
			"Did the numbers add up?", "To the last one", "How was the talk?", "Let me check and come back to you", "🙌",
		}},
		{"random", "Random", "group", all, "acme/random", false, 2, []string{
			"Has anyone seen my charger? It is the white one with the very long cable",
			"There is cake in the kitchen 🍰", "@Dev your cat is on camera", "Friday quiz at five",
		}},
		{"lunch", "Lunch & coffee", "group", []string{"ada", "ben", "chloe"}, "club/lunch", false, 3, []string{
			"Lunch at 12:30?", "The ramen place again, please", "I'm in", "Coffee machine is alive again ☕", "Ten minutes",
		}},
		{"hikes", "Sunday hikes", "group", []string{"ada", "chloe", "dev"}, "club/hikes", false, 2, []string{
			"The lake or the ridge?", "Rain until noon, they say", "Bring the good biscuits 🍪", "@Chloé can you drive?",
		}},
		{"reactions", "Reactions", "feed", all, "bell/reactions", false, 1, []string{
			"Chloé liked your picture", "Three people like your idea", "Ada answered your question with 🎉",
		}},
		{"releases", "System notices", "feed", all, "bell/releases", false, 1, []string{
			"Version 4.2 is out: faster search", "New sign-in from Lisbon", "Your export is ready", "Scheduled maintenance on Sunday, 02:00 UTC",
		}},
	}
}

var mention = regexp.MustCompile(`@(\p{L}+)`)

// mentionedIn returns the ids of the members whose names follow an @ in a text.
func mentionedIn(text string, members []string) []string {
	var ids []string
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		for _, p := range people() {
			if strings.EqualFold(m[1], p.Name) && slices.Contains(members, p.UserID) && !slices.Contains(ids, p.UserID) {
				ids = append(ids, p.UserID)
			}
		}
	}
	return ids
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}
