package conformance

// paths returns the scenarios about categories with several parts and their levels, and about the
// commands seen and seen_all.
func paths() []scenario {
	ok := golden("ok")
	start := then(opens(), greets(golden("snapshot-paths")), shows())
	seen := frame{"conversation_id": "general", "up_to_seq": "9"}
	wantSeen := frame{"conversation_id": "general", "up_to_seq": 9}
	acme := frame{"category": "acme"}
	unset := acme.with("level", "default")
	return []scenario{
		story("paths", "changes list only the categories that changed, those with nothing left are gone, and levels replace all levels",
			start, sends(golden("changes-paths")), shows(), sends(golden("changes-paths-levels")), shows(),
			cuts(), opens(), greets(golden("changes-paths-all")), shows(),
			sends(golden("changes-paths-levels").with("version", 16)), shows(),
		),
		story("read_all-category", "read_all of a category is sent while connected",
			start, does("read_all", acme), gets("read_all", acme), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 13)), shows(),
		),
		story("seen", "seen is sent, and what is seen stays unread",
			start, does("seen", seen), gets("seen", wantSeen), answers(ok), done(), sends(generalSeen()), shows(),
		),
		story("seen_all", "seen_all is sent while connected, of everything and of a category",
			start, does("seen_all", acme), gets("seen_all", acme), answers(ok), done(),
			does("seen_all", frame{}), gets("seen_all", frame{}), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 13)), shows(),
		),
		story("level", "the level of a category is sent, and its effect comes as changes",
			start, sends(golden("changes-paths")), shows(),
			does("level", unset), gets("level", unset), answers(ok), done(), sends(golden("changes-paths-levels")), shows(),
		),
		story("category-invalid", "a command about what cannot be a category, or a level, is refused where it is given: it is not sent, and others go on",
			start,
			does("read_all", frame{"category": "acme//general"}), failed("invalid"),
			does("seen_all", frame{"category": "/acme"}), failed("invalid"),
			does("level", unset.with("category", "a/b/c/d/e/f/g/h/i")), failed("invalid"),
			does("level", unset.with("level", "loud")), failed("invalid"),
			does("seen", seen), gets("seen", wantSeen), answers(ok), done(), sends(generalSeen()), shows(),
		),
		story("stored-paths", "a client that is started again still knows its categories and their levels",
			start, sends(golden("changes-paths")), shows(),
			restarts(), opens(), greets(golden("changes-paths-levels")), shows(),
		).storing(),
	}
}

// generalSeen returns the changes frame that a server would send after the snapshot
// "snapshot-paths" when the user has seen the conversation "general".
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
