package com.badged.client;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import okhttp3.Request;
import okhttp3.Response;
import okhttp3.WebSocket;
import okhttp3.WebSocketListener;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

/**
 * The live badge of the one user that the tokens name. It keeps its state and its commands while
 * disconnected, with a store also after the process has ended, and resumes. Safe for concurrent use; one
 * thread does all work and calls the listener.
 */
public final class BadgeClient implements AutoCloseable {
    private static final long CONNECT_TIMEOUT_MS = 15_000;
    /** A connection that lasted so long resets the backoff. */
    private static final long LASTING_NANOS = 10_000_000_000L;
    private static final long MAX_HINT_MS = 3_600_000;
    private static final long CLOSE_TIMEOUT_MS = 5_000;
    /** Least time between two tokens of a connection: the app may give one that is nearly over. */
    private static final long MIN_RENEW_MS = 10_000;

    private final OkHttpClient http;
    private final Request.Builder request;
    private final TokenSource tokens;
    private final BadgeListener listener;
    private final BadgeStore store; // or null
    private final long minBackoffMs;
    private final long maxBackoffMs;
    private final Random random = new Random();
    private volatile Thread thread; // of the worker
    private final ScheduledExecutorService worker = Executors.newSingleThreadScheduledExecutor(run -> {
        thread = new Thread(run, "badged");
        thread.setDaemon(true);
        return thread;
    });
    private volatile BadgeState state;
    // The fields below are used on the worker only.
    private final Outbox outbox = new Outbox();
    private boolean running;
    private WebSocket socket;
    private boolean online;
    private long onlineSince;
    private boolean expired;
    private int failures;
    private long patienceMs;
    private ScheduledFuture<?> attempt;
    private ScheduledFuture<?> deadline;
    private ScheduledFuture<?> refresh;
    private ScheduledFuture<?> retry;

    /** A client of the server at url, {@code https://badges.example.com}, that pauses 0.5 to 30 s. */
    public BadgeClient(OkHttpClient http, String url, TokenSource tokens, BadgeListener listener) {
        this(http, url, tokens, listener, null, 500, 30_000);
    }

    /** With a store, which may be null, the client begins with the state and the commands there. */
    public BadgeClient(OkHttpClient http, String url, TokenSource tokens, BadgeListener listener, BadgeStore store) {
        this(http, url, tokens, listener, store, 500, 30_000);
    }

    /** The bound of the random pause before a reconnect doubles from minBackoffMs to maxBackoffMs. */
    public BadgeClient(
            OkHttpClient http, String url, TokenSource tokens, BadgeListener listener, BadgeStore store, long minBackoffMs, long maxBackoffMs) {
        if (minBackoffMs < 1 || maxBackoffMs < minBackoffMs) throw new IllegalArgumentException("not 1 <= minBackoffMs <= maxBackoffMs");
        this.http = Objects.requireNonNull(http, "http");
        this.request = new Request.Builder()
            .url(url.replaceFirst("/+$", "") + "/v1/ws")
            .header("Sec-WebSocket-Protocol", "badge.v1");
        this.tokens = Objects.requireNonNull(tokens, "tokens");
        this.listener = Objects.requireNonNull(listener, "listener");
        this.minBackoffMs = minBackoffMs;
        this.maxBackoffMs = maxBackoffMs;
        this.store = store;
        if (store == null) return;
        state = store.state();
        List<Runnable> reports = new ArrayList<>();
        for (JSONObject command : store.commands()) {
            try {
                outbox.restore(Command.checked(command));
            } catch (IllegalArgumentException e) {
                reports.add(() -> listener.dropped(command.toString(), e.getMessage()));
            }
        }
        if (reports.isEmpty()) return;
        worker.execute(() -> {
            storeCommands();
            reports.forEach(BadgeClient::tell);
        });
    }

    /** The last state of the server, or that of the store, or null. */
    public BadgeState state() {
        return state;
    }

    /** Connects, and stays connected. On Android call it when the app enters the foreground. */
    public void start() {
        worker.execute(() -> {
            if (running) return;
            running = true;
            connect();
        });
    }

    /** Disconnects. State and commands stay for the next start. */
    public void stop() {
        worker.execute(this::halt);
    }

    /**
     * Disconnects finally, and ends the thread. Commands without an answer stay only in the store: waits
     * until they are there, for at most 5 s.
     */
    @Override
    public void close() {
        try {
            worker.execute(() -> {
                halt();
                worker.shutdownNow();
            });
            if (Thread.currentThread() != thread) worker.awaitTermination(CLOSE_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        } catch (RejectedExecutionException e) {
            // The client is closed.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * Disconnects and forgets the state and the commands, also those in the store. Call it when the user
     * signs out. The outcomes of these commands are not called.
     */
    public void forget() {
        worker.execute(() -> {
            halt();
            state = null;
            outbox.clear();
            stored(() -> store.forget());
            tell(listener::forgotten);
        });
    }

    /**
     * The user has read the conversation up to this message.
     *
     * @throws IllegalArgumentException if a seq is below 1, or an id is null, empty, longer than 128 bytes, or has
     *     control characters: so for all commands. Nothing is stored or sent then
     */
    public void read(String conversationId, long upToSeq, Outcome outcome) {
        command(outcome, () -> Command.of("read", conversationId).put("up_to_seq", upToSeq));
    }

    /** The conversation counts at least 1 until the next read. */
    public void markUnread(String conversationId, Outcome outcome) {
        command(outcome, () -> Command.of("mark_unread", conversationId));
    }

    /** These messages, at most 150, count again until the next read. Not in rooms. */
    public void markUnread(String conversationId, long[] seqs, Outcome outcome) {
        JSONArray named = new JSONArray();
        for (long seq : seqs) named.put(seq);
        command(outcome, () -> Command.of("mark_unread", conversationId).put("seqs", named));
    }

    /** The messages of a room from this one on count again until the next read. */
    public void markUnreadFrom(String conversationId, long fromSeq, Outcome outcome) {
        command(outcome, () -> Command.of("mark_unread", conversationId).put("from_seq", fromSeq));
    }

    /** The user has read everything. While disconnected this covers what the client holds. */
    public void readAll(Outcome outcome) {
        all("read_all", null, outcome);
    }

    /** The user has read everything that a category covers. */
    public void readAll(String category, Outcome outcome) {
        all("read_all", Objects.requireNonNull(category, "category"), outcome);
    }

    /** The user has seen that there is something up to this message, which stays unread. */
    public void seen(String conversationId, long upToSeq, Outcome outcome) {
        command(outcome, () -> Command.of("seen", conversationId).put("up_to_seq", upToSeq));
    }

    /** The user has seen everything. While disconnected this covers what the client holds. */
    public void seenAll(Outcome outcome) {
        all("seen_all", null, outcome);
    }

    /** The user has seen everything that a category covers. */
    public void seenAll(String category, Outcome outcome) {
        all("seen_all", Objects.requireNonNull(category, "category"), outcome);
    }

    /**
     * Sets the level of a category (all, mentions, direct_mentions, none; default unsets it) for the
     * conversations that it covers and that have none of their own, also those to come.
     */
    public void setLevel(String category, String level, Outcome outcome) {
        command(outcome, () -> Command.of("level").put("category", category).put("level", level));
    }

    private void all(String t, String category, Outcome outcome) {
        JSONObject command = made(() -> Command.of(t).put("category", category));
        command(() -> {
            if (online) outbox.add(command, orIgnored(outcome), state);
            else outbox.addEach(command, state, orIgnored(outcome));
        });
    }

    private Outcome orIgnored(Outcome outcome) {
        if (outcome == null) return Outbox.IGNORED;
        return new Outcome() {
            @Override
            public void done() {
                tell(outcome::done);
            }

            @Override
            public void failed(String code, String message) {
                tell(() -> outcome.failed(code, message));
            }
        };
    }

    /** Calls back the app. What it throws is reported as uncaught, and changes nothing here. */
    private static void tell(Runnable callback) {
        try {
            callback.run();
        } catch (RuntimeException e) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
        }
    }

    private interface Action {
        void run() throws JSONException;
    }

    private interface Making {
        JSONObject make() throws JSONException;
    }

    /** Checks a command on the thread of the app. */
    private static JSONObject made(Making making) {
        try {
            return Command.checked(making.make());
        } catch (JSONException e) {
            throw new IllegalStateException(e); // its values are texts and whole numbers
        }
    }

    /** Checks a command, and adds it on the worker. */
    private void command(Outcome outcome, Making making) {
        JSONObject command = made(making);
        command(() -> outbox.add(command, orIgnored(outcome), null));
    }

    private void command(Action add) {
        worker.execute(() -> {
            try {
                add.run();
            } catch (JSONException e) {
                throw new IllegalStateException(e); // its frames are made here
            }
            storeCommands(); // before they are sent
            flush();
        });
    }

    private interface Storing {
        void run() throws IOException, JSONException;
    }

    private void stored(Storing action) {
        if (store == null) return;
        try {
            action.run();
        } catch (IOException e) {
            tell(() -> listener.notStored(e));
        } catch (JSONException e) {
            throw new IllegalStateException(e); // what is stored was made here
        }
    }

    private void storeCommands() {
        stored(() -> store.keep(outbox.frames()));
    }

    private void flush() {
        if (!online) return;
        JSONObject next = outbox.next();
        if (next != null) socket.send(next.toString());
    }

    private void connect() {
        patienceMs = CONNECT_TIMEOUT_MS;
        String token;
        try {
            token = token(expired);
        } catch (IOException | RuntimeException e) {
            again(0);
            return;
        }
        socket = http.newWebSocket(request.header("Authorization", "Bearer " + token).build(), new Frames());
        expect(socket);
    }

    private String token(boolean expired) throws IOException {
        String token = tokens.token(expired);
        // As of an app whose session is over: the server would refuse it finally.
        if (token == null || token.isEmpty()) throw new IOException("the token source returned none");
        return token;
    }

    /** Hands everything that a socket reports to the worker. */
    private final class Frames extends WebSocketListener {
        @Override
        public void onOpen(WebSocket from, Response response) {
            on(from, () -> {
                JSONObject hello = new JSONObject().put("t", "hello");
                if (state != null) hello.put("epoch", state.epoch).put("version", state.version);
                from.send(hello.toString());
            });
        }

        @Override
        public void onMessage(WebSocket from, String text) {
            on(from, () -> receive(new JSONObject(text)));
        }

        @Override
        public void onClosing(WebSocket from, int code, String reason) {
            on(from, () -> end(code, reason, 0));
        }

        @Override
        public void onFailure(WebSocket from, Throwable error, Response response) {
            on(from, () -> end(0, String.valueOf(error.getMessage()), 0));
        }

        /** Ignores what comes after the end of a connection. A frame that is none ends it. */
        private void on(WebSocket from, Action action) {
            try {
                worker.execute(() -> {
                    if (from == socket) attempt(action);
                });
            } catch (RejectedExecutionException e) {
                // The client is closed.
            }
        }

        private void attempt(Action action) {
            try {
                action.run();
            } catch (JSONException | RuntimeException e) {
                end(0, "protocol error: " + e.getMessage(), 0);
            }
        }
    }

    private void receive(JSONObject frame) throws JSONException {
        if (frame.has("ping_ms")) patienceMs = Math.min(frame.getLong("ping_ms"), MAX_HINT_MS) * 5 / 2;
        if (online || frame.has("ping_ms")) expect(socket);
        switch (frame.getString("t")) {
            case "snapshot":
            case "changes":
                apply(frame);
                break;
            case "ok":
            case "error":
                answered(frame);
                break;
            case "ping":
                socket.send("{\"t\":\"pong\"}");
                break;
            case "bye":
                end(frame.getInt("code"), frame.optString("reason"), frame.optLong("reconnect_ms"));
                break;
            default: // a type of a later server
        }
    }

    private void apply(JSONObject frame) throws JSONException {
        BadgeState before = state;
        state = BadgeState.after(before, frame);
        boolean[] changed = {state != before};
        stored(() -> changed[0] |= store.keep(state)); // a push may have shown another total
        BadgeState now = state;
        if (changed[0]) tell(() -> listener.changed(now));
        if (online) return;
        online = true;
        onlineSince = System.nanoTime();
        expired = false;
        tell(() -> listener.online(true));
        renewWithin(frame.optLong("expires_in_ms"), 0);
        flush();
    }

    private void answered(JSONObject frame) throws JSONException {
        if (frame.optString("id").equals("auth")) {
            renewWithin(frame.optLong("expires_in_ms"), MIN_RENEW_MS);
            return;
        }
        long pauseMs = Math.min(frame.optLong("retry_ms"), MAX_HINT_MS);
        if (pauseMs > 0) {
            retry = after(pauseMs, () -> {
                outbox.again();
                flush();
            });
            return;
        }
        outbox.answered(frame);
        storeCommands();
        flush();
    }

    /** Sends a fresh token after 75 to 85 % of the time left, and after leastMs; if that fails, 4202 follows. */
    private void renewWithin(long leftMs, long leastMs) {
        if (leftMs <= 0) return;
        WebSocket from = socket;
        refresh = after(Math.max(leastMs, (long) (leftMs * (0.75 + random.nextDouble() / 10))), () -> {
            if (from != socket) return;
            try {
                socket.send(new JSONObject().put("t", "auth").put("id", "auth").put("token", token(true)).toString());
            } catch (IOException | JSONException | RuntimeException e) {
                expired = true;
            }
        });
    }

    /** Ends the connection unless a frame comes in time. */
    private void expect(WebSocket from) {
        cancel(deadline);
        deadline = after(patienceMs, () -> {
            if (from == socket) end(0, "no sign of life", 0);
        });
    }

    private void end(int code, String reason, long pauseMs) {
        if (online && System.nanoTime() - onlineSince > LASTING_NANOS) failures = 0;
        leave();
        if (code >= 4001 && code <= 4004) {
            running = false;
            tell(() -> listener.refused(code, reason));
            return;
        }
        if (code == 4202) expired = true;
        again(pauseMs);
    }

    private void again(long pauseMs) {
        if (!running) return;
        long most = Math.min(maxBackoffMs, minBackoffMs << Math.min(failures++, 16));
        attempt = after(Math.min(pauseMs, MAX_HINT_MS) + (long) (random.nextDouble() * most), this::connect);
    }

    private void halt() {
        running = false;
        failures = 0;
        leave();
    }

    private void leave() {
        for (ScheduledFuture<?> timer : new ScheduledFuture<?>[] {attempt, deadline, refresh, retry}) cancel(timer);
        if (socket != null) {
            socket.close(1000, null);
            socket.cancel();
        }
        socket = null;
        try {
            outbox.offline();
        } catch (JSONException e) {
            throw new IllegalStateException(e); // its frames are made here
        }
        if (online) {
            online = false;
            tell(() -> listener.online(false));
        }
    }

    private ScheduledFuture<?> after(long ms, Runnable run) {
        return worker.schedule(run, ms, TimeUnit.MILLISECONDS);
    }

    private static void cancel(ScheduledFuture<?> timer) {
        if (timer != null) timer.cancel(false);
    }
}
