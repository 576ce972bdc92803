package com.badged.client;

import java.util.Collections;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The badge of the user and the conversations that the server has listed. Immutable. */
public final class BadgeState {
    public final String epoch;
    public final long version;
    /** The number for the badge. */
    public final long total;
    /** All numbers of the badge. */
    public final Numbers numbers;
    /** By path, the categories with anything to show, and those above them. */
    public final Map<String, Numbers> categories;
    /** True if there are more categories than these, which were the first 500 by name. */
    public final boolean moreCategories;
    /** By path, the levels of categories. */
    public final Map<String, String> levels;
    /** By id, without those that the user has left. */
    public final Map<String, Conversation> conversations;

    private BadgeState(
            JSONObject frame, Map<String, Numbers> categories, boolean moreCategories, Map<String, String> levels,
            Map<String, Conversation> conversations) throws JSONException {
        epoch = frame.getString("epoch");
        version = frame.getLong("version");
        numbers = new Numbers(frame);
        total = numbers.total;
        this.categories = Collections.unmodifiableMap(categories);
        this.moreCategories = moreCategories;
        this.levels = Collections.unmodifiableMap(levels);
        this.conversations = Collections.unmodifiableMap(conversations);
    }

    /** The numbers of a category with those below it; all 0 if there is nothing. */
    public Numbers of(String category) {
        Numbers found = categories.get(category);
        return found == null ? Numbers.NONE : found;
    }

    /** The level that applies to a conversation: its own, or that of the longest path that covers it, or all. */
    public String levelOf(Conversation conversation) {
        if (!conversation.level.equals("default")) return conversation.level;
        String path = conversation.category;
        while (!path.isEmpty()) {
            String level = levels.get(path);
            if (level != null) return level;
            path = path.substring(0, Math.max(0, path.lastIndexOf('/')));
        }
        return "all";
    }

    /** Returns the snapshot that this state comes from. */
    JSONObject toFrame() throws JSONException {
        JSONArray listed = new JSONArray();
        for (Conversation conversation : conversations.values()) listed.put(conversation.toFrame());
        JSONObject paths = new JSONObject();
        for (Map.Entry<String, Numbers> one : categories.entrySet()) paths.put(one.getKey(), one.getValue().to(new JSONObject()));
        return numbers.to(new JSONObject().put("t", "snapshot").put("epoch", epoch).put("version", version))
            .put("categories", paths).put("more_categories", moreCategories).put("levels", new JSONObject(levels))
            .put("conversations", listed);
    }

    /** Applies a snapshot always, and changes if they are newer. Returns held if nothing applies. */
    static BadgeState after(BadgeState held, JSONObject frame) throws JSONException {
        Map<String, Numbers> categories = new TreeMap<>();
        Map<String, String> levels = new TreeMap<>();
        Map<String, Conversation> conversations = new LinkedHashMap<>();
        boolean moreCategories = frame.optBoolean("more_categories");
        if (frame.getString("t").equals("changes")) {
            if (held == null || !held.epoch.equals(frame.getString("epoch"))) {
                throw new JSONException("changes of another epoch");
            }
            if (frame.getLong("version") <= held.version) return held;
            conversations.putAll(held.conversations);
            if (!frame.optBoolean("all_categories")) {
                categories.putAll(held.categories);
                moreCategories = held.moreCategories;
                if (!frame.has("levels")) levels.putAll(held.levels);
            }
        }
        JSONObject paths = frame.getJSONObject("categories");
        for (Iterator<String> names = paths.keys(); names.hasNext();) {
            String path = names.next();
            Numbers numbers = new Numbers(paths.getJSONObject(path));
            if (numbers.isNone()) categories.remove(path);
            else categories.put(path, numbers);
        }
        JSONObject set = frame.has("levels") ? frame.getJSONObject("levels") : new JSONObject();
        for (Iterator<String> names = set.keys(); names.hasNext();) {
            String path = names.next();
            levels.put(path, set.getString(path));
        }
        JSONArray listed = frame.getJSONArray("conversations");
        for (int i = 0; i < listed.length(); i++) {
            JSONObject one = listed.getJSONObject(i);
            Conversation conversation = new Conversation(one);
            if (one.optBoolean("left")) conversations.remove(conversation.id);
            else conversations.put(conversation.id, conversation);
        }
        return new BadgeState(frame, categories, moreCategories, levels, conversations);
    }
}
