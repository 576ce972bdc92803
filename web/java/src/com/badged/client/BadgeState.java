package com.badged.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** The badge of the user and the conversations that the server has listed. Immutable. */
public final class BadgeState {
    public final String epoch;
    public final long version;
    /** The number for the badge. */
    public final long total;
    public final long mentions;
    /** How many conversations add something to the total; 0 with a server that does not say. */
    public final long unreadConversations;
    /** By id, without those that the user has left. */
    public final Map<String, Conversation> conversations;

    private BadgeState(JSONObject frame, Map<String, Conversation> conversations) throws JSONException {
        epoch = frame.getString("epoch");
        version = frame.getLong("version");
        total = frame.getLong("total");
        mentions = frame.getLong("mentions");
        unreadConversations = frame.optLong("unread_conversations");
        this.conversations = Collections.unmodifiableMap(conversations);
    }

    /** Returns the snapshot that this state comes from. */
    JSONObject toFrame() throws JSONException {
        JSONArray listed = new JSONArray();
        for (Conversation conversation : conversations.values()) listed.put(conversation.toFrame());
        return new JSONObject().put("t", "snapshot").put("epoch", epoch).put("version", version).put("total", total)
            .put("mentions", mentions).put("unread_conversations", unreadConversations).put("conversations", listed);
    }

    /** Applies a snapshot always, and changes if they are newer. Returns held if nothing applies. */
    static BadgeState after(BadgeState held, JSONObject frame) throws JSONException {
        Map<String, Conversation> conversations = new LinkedHashMap<>();
        if (frame.getString("t").equals("changes")) {
            if (held == null || !held.epoch.equals(frame.getString("epoch"))) {
                throw new JSONException("changes of another epoch");
            }
            if (frame.getLong("version") <= held.version) return held;
            conversations.putAll(held.conversations);
        }
        JSONArray listed = frame.getJSONArray("conversations");
        for (int i = 0; i < listed.length(); i++) {
            JSONObject one = listed.getJSONObject(i);
            Conversation conversation = new Conversation(one);
            if (one.optBoolean("left")) conversations.remove(conversation.id);
            else conversations.put(conversation.id, conversation);
        }
        return new BadgeState(frame, conversations);
    }
}
