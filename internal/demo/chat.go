package demo

import (
	"regexp"
	"slices"
	"strings"
)

// person is one of the people in the demo.
type person struct {
	UserID string `json:"user_id"`
	Name   string `json:"name"`
	Color  string `json:"color"`
}

// conversation is one of the conversations of the demo.
type conversation struct {
	ConversationID string   `json:"conversation_id"`
	Name           string   `json:"name"`
	Kind           string   `json:"kind"` // direct, group or feed
	Members        []string `json:"members"`
	Category       string   `json:"category"`
	// weight is how often the simulation talks here.
	weight int
	lines  []string
}

// people returns the people of the demo.
func people() []person {
	return []person{
		{"ada", "Ada", "#e8596e"},
		{"ben", "Ben", "#2f7de1"},
		{"chloe", "Chloé", "#159a74"},
		{"dev", "Dev", "#8a5cf0"},
	}
}

// bot sends messages of the system.
const bot = "release-bot"

// conversations returns the conversations of the demo.
func conversations() []conversation {
	all := []string{"ada", "ben", "chloe", "dev"}
	return []conversation{
		{"design-crew", "Design crew", "group", all, "chat", 6, []string{
			"Morning! Who is in today?",
			"I moved the spacing tokens to 4 px steps",
			"@Ada can you look at the new icon?",
			"The dark palette is ready for review",
			"Shipping it 🚀",
			"@Ben the contrast on the badge is too low, I think",
			"Looks great on my phone",
			"Can we talk about the empty state tomorrow?",
		}},
		{"lunch", "Lunch & coffee", "group", []string{"ada", "ben", "chloe"}, "chat", 3, []string{
			"Lunch at 12:30?", "The ramen place again, please", "I'm in", "Coffee machine is alive again ☕", "Ten minutes",
		}},
		{"ada-ben", "Ada and Ben", "direct", []string{"ada", "ben"}, "chat", 3, []string{
			"Got a minute?", "Sure", "Pushed the fix, can you look?", "Thanks, that was it", "👍", "Call you after the stand-up",
		}},
		{"chloe-dev", "Chloé and Dev", "direct", []string{"chloe", "dev"}, "chat", 3, []string{
			"Did the numbers add up?", "To the last one", "How was the talk?", "Let me check and come back to you", "🙌",
		}},
		{"random", "Random", "group", all, "chat", 2, []string{
			"Has anyone seen my charger? It is the white one with the very long cable",
			"There is cake in the kitchen 🍰", "@Dev your cat is on camera", "Friday quiz at five",
		}},
		{"releases", "System notices", "feed", all, "system", 1, []string{
			"Version 4.2 is out: faster search", "New sign-in from Lisbon", "Your export is ready", "Scheduled maintenance on Sunday, 02:00 UTC",
		}},
	}
}

var mention = regexp.MustCompile(`@(\p{L}+)`)

// mentionedIn returns the members that a text mentions by name.
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

// without returns ids without one of them.
func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}
