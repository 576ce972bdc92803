package conformance

// paths returns the scenarios about categories with several parts and their levels, and about the
// commands seen and seen_all.
func paths() []scenario {
	ok := golden("ok")
	start := sequence(opens(), greets(golden("snapshot-paths")), shows())
	seen := frame{"conversation_id": "general", "up_to_seq": "9"}
	wantSeen := frame{"conversation_id": "general", "up_to_seq": 9}
	acme := frame{"category": "acme"}
	unset := acme.with("level", "default")
	return []scenario{
		story("paths", "changes list only the categories that changed; a category whose numbers are all 0 is removed; levels replace all levels",
			start, sends(golden("changes-paths")), shows(), sends(golden("changes-paths-levels")), shows(),
			cuts(), opens(), greets(golden("changes-paths-all")), shows(),
			sends(golden("changes-paths-levels").with("version", 16)), shows(),
		),
		story("read_all-category", "the client sends read_all of a category while it is connected",
			start, performs("read_all", acme), gets("read_all", acme), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 13)), shows(),
		),
		story("seen", "the client sends seen, and seen messages stay unread",
			start, performs("seen", seen), gets("seen", wantSeen), answers(ok), done(), sends(generalSeen()), shows(),
		),
		story("seen_all", "the client sends seen_all while it is connected, for all conversations and for a category",
			start, performs("seen_all", acme), gets("seen_all", acme), answers(ok), done(),
			performs("seen_all", frame{}), gets("seen_all", frame{}), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 13)), shows(),
		),
		story("level", "the client sends the level of a category, and changes show its effect",
			start, sends(golden("changes-paths")), shows(),
			performs("level", unset), gets("level", unset), answers(ok), done(), sends(golden("changes-paths-levels")), shows(),
		),
		story("category-invalid", "the client itself refuses a command with an invalid category or level: it does not send it, and other commands still work",
			start,
			performs("read_all", frame{"category": "acme//general"}), failed("invalid"),
			performs("seen_all", frame{"category": "/acme"}), failed("invalid"),
			performs("level", unset.with("category", "a/b/c/d/e/f/g/h/i")), failed("invalid"),
			performs("level", unset.with("level", "loud")), failed("invalid"),
			performs("seen", seen), gets("seen", wantSeen), answers(ok), done(), sends(generalSeen()), shows(),
		),
		story("stored-paths", "after a restart the client still knows its categories and their levels",
			start, sends(golden("changes-paths")), shows(),
			restarts(), opens(), greets(golden("changes-paths-levels")), shows(),
		).storing(),
	}
}

// generalSeen returns the changes frame that a server sends when the user has seen the conversation
// "general", if the state before is the snapshot "snapshot-paths".
func generalSeen() frame {
	snapshot := golden("snapshot-paths")
	general := frame(snapshot["conversations"].([]any)[0].(map[string]any)).with("seen", 3).with("seen_seq", 9).with("version", 13)
	categories := snapshot["categories"].(map[string]any)
	unseen := func(path string, n int) frame { return frame(categories[path].(map[string]any)).with("unseen", n) }
	f := snapshot.with("t", "changes").with("version", 13).with("unseen", 2).with("conversations", []any{general}).
		with("categories", frame{"acme": unseen("acme", 1), "acme/general": unseen("acme/general", 0)})
	for _, field := range []string{"levels", "more", "ping_ms", "expires_in_ms"} {
		delete(f, field)
	}
	return f
}
