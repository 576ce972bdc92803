package com.badged.client;

import org.json.JSONException;
import org.json.JSONObject;

/** What is unread, of everything or of the conversations that a category covers. Immutable. */
public final class Numbers {
    static final Numbers NONE = new Numbers();

    /** The number for the badge. */
    public final long total;
    /** Unread messages that mention the user, in conversations whose level is not none. */
    public final long mentions;
    /** How many conversations add something to the total. */
    public final long unreadConversations;
    /** How much of the total the user has not seen. */
    public final long unseen;
    /** What is unread but kept out of the total by a level, for a grey number. */
    public final long mutedTotal;
    /** How many conversations that is of. */
    public final long mutedConversations;
    /** How much of the total comes from conversations that are marked and have no unread message. */
    public final long marked;

    private Numbers() {
        total = mentions = unreadConversations = unseen = mutedTotal = mutedConversations = marked = 0;
    }

    Numbers(JSONObject frame) throws JSONException {
        total = frame.getLong("total");
        mentions = frame.getLong("mentions");
        unreadConversations = frame.getLong("unread_conversations");
        unseen = frame.getLong("unseen");
        JSONObject muted = frame.optJSONObject("muted");
        mutedTotal = muted == null ? 0 : muted.getLong("total");
        mutedConversations = muted == null ? 0 : muted.getLong("conversations");
        marked = frame.optLong("marked");
    }

    boolean isNone() {
        return total == 0 && mentions == 0 && unreadConversations == 0 && unseen == 0 && mutedTotal == 0
            && mutedConversations == 0 && marked == 0;
    }

    /** Adds the fields to a frame. */
    JSONObject to(JSONObject frame) throws JSONException {
        return frame.put("total", total).put("mentions", mentions).put("unread_conversations", unreadConversations)
            .put("unseen", unseen).put("marked", marked)
            .put("muted", new JSONObject().put("total", mutedTotal).put("conversations", mutedConversations));
    }
}
