package com.badged.client;

import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * What a client of one user keeps in a file between two starts of the app: the state to resume from,
 * the commands without an answer, and the number on the icon, which pushes change too. Safe for
 * concurrent use, but a file must have one store at a time.
 */
public final class BadgeStore {
    private final File file;
    private final String user;
    private BadgeState state;
    private List<JSONObject> commands = new ArrayList<>();
    // The number on the icon. Apart from the state: a push has no conversations, and resuming from its
    // version would skip their changes.
    private String epoch;
    private long version;
    private long total;

    /**
     * Reads the file. What is not a store, or is that of another user, counts as empty, and is replaced
     * by what comes next.
     */
    public BadgeStore(File file, String user) {
        this.file = Objects.requireNonNull(file, "file");
        this.user = Objects.requireNonNull(user, "user");
        try {
            read(new JSONObject(new String(Files.readAllBytes(file.toPath()), StandardCharsets.UTF_8)));
        } catch (IOException | JSONException e) {
            clear(); // the first start, or a damaged file
        }
    }

    /** The number on the icon: the total of the connection or of a push, whichever is newer. */
    public synchronized long total() {
        return total;
    }

    /**
     * Takes the total of a push message; false if it is late. A push of another epoch may be older or
     * newer: it is shown, and the next connection corrects it.
     */
    public synchronized boolean push(String epoch, long version, long total) throws IOException {
        if (!show(epoch, version, total)) return false;
        write();
        return true;
    }

    synchronized BadgeState state() {
        return state;
    }

    synchronized List<JSONObject> commands() {
        return new ArrayList<>(commands);
    }

    /** Keeps a state of the connection. Returns whether it or the number on the icon has changed. */
    synchronized boolean keep(BadgeState state) throws IOException {
        boolean changed = state != this.state;
        this.state = state;
        changed |= show(state.epoch, state.version, state.total);
        if (changed) write();
        return changed;
    }

    /** Keeps the commands without an answer. */
    synchronized void keep(List<JSONObject> commands) throws IOException {
        this.commands = commands;
        write();
    }

    synchronized void forget() throws IOException {
        clear();
        Files.deleteIfExists(file.toPath());
    }

    private boolean show(String epoch, long version, long total) {
        if (Objects.equals(epoch, this.epoch) && version <= this.version) return false;
        this.epoch = epoch;
        this.version = version;
        this.total = total;
        return true;
    }

    private void clear() {
        state = null;
        commands = new ArrayList<>();
        epoch = null;
        version = 0;
        total = 0;
    }

    private void read(JSONObject kept) throws JSONException {
        if (!kept.getString("user").equals(user)) return;
        if (kept.has("state")) state = BadgeState.after(null, kept.getJSONObject("state"));
        if (kept.has("shown")) {
            JSONObject shown = kept.getJSONObject("shown");
            show(shown.getString("epoch"), shown.getLong("version"), shown.getLong("total"));
        }
        JSONArray queue = kept.getJSONArray("commands");
        for (int i = 0; i < queue.length(); i++) {
            JSONObject command = queue.optJSONObject(i);
            commands.add(command == null ? new JSONObject() : command); // the client drops what is none
        }
    }

    /** Replaces the file: a crash leaves the old one or the new one. */
    private void write() throws IOException {
        JSONObject kept = new JSONObject();
        try {
            kept.put("user", user).put("commands", new JSONArray(commands));
            if (state != null) kept.put("state", state.toFrame());
            if (epoch != null) kept.put("shown", new JSONObject().put("epoch", epoch).put("version", version).put("total", total));
        } catch (JSONException e) {
            throw new IllegalStateException(e); // its values are texts and whole numbers
        }
        File fresh = new File(file.getPath() + ".new");
        Files.write(fresh.toPath(), kept.toString().getBytes(StandardCharsets.UTF_8));
        Files.move(fresh.toPath(), file.toPath(), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }
}
