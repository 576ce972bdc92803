package com.badged.client;

import org.json.JSONException;
import org.json.JSONObject;

/** A conversation of the user. Immutable. */
public final class Conversation {
    public final String id;
    /** Unread messages, whatever the level. */
    public final long unread;
    /** Unread messages that mention the user. */
    public final long mentions;
    /** The first unread message, or 0. */
    public final long firstUnreadSeq;
    public final long readSeq;
    public final long lastSeq;
    /** The seen position if it is above readSeq; otherwise 0. */
    public final long seenSeq;
    /** How many of the unread messages the user has seen. */
    public final long seen;
    /** How many of the mentions the user has seen. */
    public final long seenMentions;
    /**
     * The level of the conversation itself: default, all, mentions, direct_mentions or none.
     * {@link BadgeState#levelOf} is what counts.
     */
    public final String level;
    /** When the level ends, in RFC 3339, or null if it does not. */
    public final String levelUntil;
    /** The path that the conversation counts at. */
    public final String category;
    public final boolean markedUnread;

    Conversation(JSONObject frame) throws JSONException {
        id = frame.getString("conversation_id");
        unread = frame.getLong("unread");
        mentions = frame.getLong("mentions");
        firstUnreadSeq = frame.getLong("first_unread_seq");
        readSeq = frame.getLong("read_seq");
        lastSeq = frame.getLong("last_seq");
        seenSeq = frame.optLong("seen_seq");
        seen = frame.optLong("seen");
        seenMentions = frame.optLong("seen_mentions");
        level = frame.getString("level");
        levelUntil = frame.has("level_until") ? frame.getString("level_until") : null;
        category = frame.getString("category");
        markedUnread = frame.getBoolean("marked_unread");
    }

    /** Whether a path is the category or lies above it. A path that is null covers everything. */
    boolean isIn(String path) {
        return path == null || category.equals(path) || category.startsWith(path + "/");
    }

    JSONObject toFrame() throws JSONException {
        return new JSONObject().put("conversation_id", id).put("unread", unread).put("mentions", mentions)
            .put("first_unread_seq", firstUnreadSeq).put("read_seq", readSeq).put("last_seq", lastSeq)
            .put("seen_seq", seenSeq).put("seen", seen).put("seen_mentions", seenMentions)
            .put("level", level).put("level_until", levelUntil).put("category", category).put("marked_unread", markedUnread);
    }
}
