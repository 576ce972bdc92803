package com.badged.client;

import java.util.ArrayList;
import java.util.List;
import org.json.JSONException;
import org.json.JSONObject;

/** The commands without an answer, in order. Used on the client's thread only. */
final class Outbox {
    static final Outcome IGNORED = new Outcome() {
        @Override
        public void done() {}

        @Override
        public void failed(String code, String message) {}
    };

    private static final class Entry {
        final JSONObject frame;
        Outcome outcome;
        /** What a read_all or seen_all stood for when the user asked for it; null for other commands. */
        final BadgeState covers;

        Entry(JSONObject frame, Outcome outcome, BadgeState covers) {
            this.frame = frame;
            this.outcome = outcome;
            this.covers = covers;
        }
    }

    private List<Entry> entries = new ArrayList<>();
    private boolean sent;

    /**
     * Adds a command. A read, or seen, replaces the last command if that is of the same conversation and
     * kind and not on its way: the further one suffices.
     */
    void add(JSONObject frame, Outcome outcome, BadgeState covers) throws JSONException {
        int last = entries.size() - 1;
        if (last > 0 || last == 0 && !sent) {
            Entry entry = entries.get(last);
            if (samePosition(entry.frame, frame)) {
                Outcome both = both(entry.outcome, outcome);
                if (entry.frame.getLong("up_to_seq") < frame.getLong("up_to_seq")) entries.set(last, new Entry(frame, both, null));
                else entry.outcome = both;
                return;
            }
        }
        entries.add(new Entry(frame, outcome, covers));
    }

    private static boolean samePosition(JSONObject a, JSONObject b) throws JSONException {
        return a.has("up_to_seq") && a.getString("t").equals(b.getString("t"))
            && a.getString("conversation_id").equals(b.getString("conversation_id"));
    }

    private static Outcome both(Outcome first, Outcome second) {
        return new Outcome() {
            @Override
            public void done() {
                first.done();
                second.done();
            }

            @Override
            public void failed(String code, String message) {
                first.failed(code, message);
                second.failed(code, message);
            }
        };
    }

    /** Adds a command of the last start. */
    void restore(JSONObject frame) {
        entries.add(new Entry(frame, IGNORED, null));
    }

    /** What a later start has to send. */
    List<JSONObject> frames() throws JSONException {
        Outbox later = new Outbox();
        for (Entry entry : entries) {
            if (entry.covers == null) later.entries.add(entry);
            else later.addEach(entry.frame, entry.covers, IGNORED);
        }
        List<JSONObject> frames = new ArrayList<>();
        for (Entry entry : later.entries) frames.add(entry.frame);
        return frames;
    }

    void clear() {
        entries.clear();
        sent = false;
    }

    /**
     * Adds, instead of a read_all or seen_all, a read or seen of each conversation that it is about. The
     * outcome is that of the last one.
     */
    void addEach(JSONObject all, BadgeState state, Outcome outcome) throws JSONException {
        boolean reads = all.getString("t").equals("read_all");
        String category = all.has("category") ? all.getString("category") : null;
        List<JSONObject> each = new ArrayList<>();
        if (state != null) {
            for (Conversation c : state.conversations.values()) {
                boolean applies = reads ? c.unread > 0 || c.markedUnread : c.unread > c.seen;
                if (!applies || !c.isIn(category)) continue;
                // A room without messages can be marked.
                each.add(Command.of(reads ? "read" : "seen", c.id).put("up_to_seq", Math.max(1, c.lastSeq)));
            }
        }
        if (each.isEmpty()) outcome.done();
        for (int i = 0; i < each.size(); i++) add(each.get(i), i == each.size() - 1 ? outcome : IGNORED, null);
    }

    /** The command to send now, or null: one at a time, to keep their order. */
    JSONObject next() {
        if (sent || entries.isEmpty()) return null;
        sent = true;
        return entries.get(0).frame;
    }

    /** The command in flight is to be sent again. */
    void again() {
        sent = false;
    }

    /** Handles a final answer. */
    void answered(JSONObject answer) throws JSONException {
        if (entries.isEmpty() || !entries.get(0).frame.getString("id").equals(answer.optString("id"))) return;
        Entry entry = entries.remove(0);
        sent = false;
        if (answer.getString("t").equals("ok")) entry.outcome.done();
        else entry.outcome.failed(answer.getString("code"), answer.optString("message"));
    }

    /**
     * The connection is lost. A read_all sent later would read messages that the user has not seen,
     * so reads replace it.
     */
    void offline() throws JSONException {
        sent = false;
        List<Entry> before = entries;
        entries = new ArrayList<>();
        for (Entry entry : before) {
            if (entry.covers == null) entries.add(entry);
            else addEach(entry.frame, entry.covers, entry.outcome);
        }
    }
}
