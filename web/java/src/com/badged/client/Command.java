package com.badged.client;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/** Makes and checks commands: what the server would refuse, or could not read, is neither stored nor sent. */
final class Command {
    /** More may not fit into a frame. */
    static final int MAX_SEQS = 150;

    private static final int MAX_ID_BYTES = 128;
    private static final int MAX_CATEGORY_BYTES = 255;
    private static final int MAX_PARTS = 8;
    private static final int MAX_PART_CHARACTERS = 64;
    private static final List<String> LEVELS = Arrays.asList("default", "all", "mentions", "direct_mentions", "none");

    private Command() {}

    /** A command under a UUID, with which it takes effect once. */
    static JSONObject of(String t) throws JSONException {
        return new JSONObject().put("t", t).put("id", UUID.randomUUID().toString());
    }

    /** A command about a conversation. */
    static JSONObject of(String t, String conversationId) throws JSONException {
        return of(t).put("conversation_id", conversationId);
    }

    /**
     * Returns a command of the app or of the store.
     *
     * @throws IllegalArgumentException if no server takes it, or this release does not know it. It names the field
     */
    static JSONObject checked(JSONObject command) {
        if (!(command.opt("id") instanceof String) || !command.optString("id").matches("[0-9a-f-]{36}")) {
            throw new IllegalArgumentException("id must be a UUID, is " + command.opt("id"));
        }
        switch (command.optString("t")) {
            case "read_all":
            case "seen_all":
                if (command.has("category")) checkCategory(command.opt("category"));
                break;
            case "level":
                checkCategory(command.opt("category"));
                if (!LEVELS.contains(command.optString("level"))) {
                    throw new IllegalArgumentException("level must be one of " + LEVELS + ", is " + command.opt("level"));
                }
                break;
            case "read":
            case "seen":
                checkConversation(command.opt("conversation_id"));
                checkSeq("up_to_seq", command.opt("up_to_seq"));
                break;
            case "mark_unread":
                checkConversation(command.opt("conversation_id"));
                if (command.has("from_seq")) checkSeq("from_seq", command.opt("from_seq"));
                if (command.has("seqs")) checkSeqs(command.opt("seqs"));
                break;
            default:
                throw new IllegalArgumentException("t must be a command of this release, is " + command.opt("t"));
        }
        return command;
    }

    private static void checkConversation(Object id) {
        checkText("conversation_id", id, MAX_ID_BYTES);
    }

    private static void checkCategory(Object category) {
        String path = checkText("category", category, MAX_CATEGORY_BYTES);
        String[] parts = path.split("/", -1);
        boolean fits = parts.length <= MAX_PARTS;
        for (String part : parts) fits &= !part.isEmpty() && part.codePointCount(0, part.length()) <= MAX_PART_CHARACTERS;
        if (!fits) {
            throw new IllegalArgumentException("category must have 1 to " + MAX_PARTS + " parts of 1 to " + MAX_PART_CHARACTERS
                + " characters with a slash between each two, is " + JSONObject.quote(path));
        }
    }

    private static String checkText(String name, Object given, int mostBytes) {
        String text = given instanceof String ? (String) given : "";
        boolean plain = text.codePoints().noneMatch(c -> Character.isISOControl(c) || Character.getType(c) == Character.SURROGATE);
        if (!plain || text.isEmpty() || text.getBytes(StandardCharsets.UTF_8).length > mostBytes) {
            String shown = given instanceof String ? JSONObject.quote(text.substring(0, Math.min(text.length(), 40))) : String.valueOf(given);
            throw new IllegalArgumentException(name + " must have 1 to " + mostBytes + " bytes of UTF-8 without control characters, is " + shown);
        }
        return text;
    }

    private static void checkSeq(String name, Object seq) {
        boolean whole = seq instanceof Integer || seq instanceof Long;
        if (!whole || ((Number) seq).longValue() < 1) throw new IllegalArgumentException(name + " must be a seq of at least 1, is " + seq);
    }

    private static void checkSeqs(Object seqs) {
        JSONArray all = seqs instanceof JSONArray ? (JSONArray) seqs : new JSONArray();
        if (all.length() < 1 || all.length() > MAX_SEQS) throw new IllegalArgumentException("not 1 to " + MAX_SEQS + " seqs");
        for (int i = 0; i < all.length(); i++) checkSeq("seqs[" + i + "]", all.opt(i));
    }
}
