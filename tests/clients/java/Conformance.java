// The Java client as a program for `badged conformance`; see docs/conformance.md.

import com.badged.client.BadgeClient;
import com.badged.client.BadgeListener;
import com.badged.client.BadgeState;
import com.badged.client.BadgeStore;
import com.badged.client.Conversation;
import com.badged.client.Numbers;
import com.badged.client.Outcome;
import com.badged.client.TokenSource;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Map;
import okhttp3.ConnectionSpec;
import okhttp3.OkHttpClient;
import org.json.JSONArray;
import org.json.JSONException;
import org.json.JSONObject;

final class Conformance {
    private static PrintStream out;

    public static void main(String[] args) throws Exception {
        out = new PrintStream(System.out, true, "UTF-8");
        String way = System.getenv("BADGED_AUTH");
        if ("sse".equals(System.getenv("BADGED_TRANSPORT"))) print("unsupported", "server-sent events");
        if (way.equals("subprotocol") || way.equals("hello")) print("unsupported", "a token by the way " + way);

        TokenSource tokens = new TokenSource() {
            private String token = System.getenv("BADGED_TOKEN");

            @Override
            public String token(boolean expired) {
                if (expired) token = System.getenv("BADGED_FRESH_TOKEN");
                return token;
            }
        };
        BadgeListener listener = new BadgeListener() {
            @Override
            public void changed(BadgeState state) {
                try {
                    JSONObject conversations = new JSONObject();
                    for (Conversation c : state.conversations.values()) {
                        conversations.put(c.id, new JSONObject()
                            .put("unread", c.unread).put("mentions", c.mentions).put("marked_unread", c.markedUnread)
                            .put("level_until", c.levelUntil));
                    }
                    JSONObject categories = new JSONObject();
                    for (Map.Entry<String, Numbers> one : state.categories.entrySet()) {
                        Numbers n = one.getValue();
                        categories.put(one.getKey(), new JSONObject()
                            .put("total", n.total).put("mentions", n.mentions).put("unread_conversations", n.unreadConversations)
                            .put("unseen", n.unseen).put("marked", n.marked)
                            .put("muted", new JSONObject().put("total", n.mutedTotal).put("conversations", n.mutedConversations)));
                    }
                    print("version", state.version, "total", state.total, "conversations", conversations,
                        "unread_conversations", state.numbers.unreadConversations, "categories", categories,
                        "levels", new JSONObject(state.levels));
                } catch (JSONException e) {
                    throw new IllegalStateException(e);
                }
                stumble();
            }

            @Override
            public void online(boolean online) {
                stumble();
            }

            @Override
            public void refused(int code, String reason) {
                print("refused", code);
            }

            @Override
            public void dropped(String command, String reason) {
                print("event", "dropped", "text", reason);
                stumble();
            }
        };
        // The kit has no TLS, and reading the certificates of the system would take most of the start.
        OkHttpClient http = new OkHttpClient.Builder().connectionSpecs(Collections.singletonList(ConnectionSpec.CLEARTEXT)).build();
        long backoff = Long.parseLong(System.getenv("BADGED_BACKOFF_MS"));
        String folder = System.getenv("BADGED_STORE");
        BadgeStore store = null;
        if (folder != null && !folder.isEmpty()) store = new BadgeStore(new File(folder, "badge.json"), System.getenv("BADGED_USER"));
        try (BadgeClient client = new BadgeClient(http, System.getenv("BADGED_URL"), tokens, listener, store, backoff, backoff)) {
            if (client.state() != null) listener.changed(client.state());
            client.start();
            BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = in.readLine(); line != null; line = in.readLine()) run(client, new JSONObject(line));
        }
        http.dispatcher().executorService().shutdown();
        http.connectionPool().evictAll();
    }

    private static void run(BadgeClient client, JSONObject command) throws JSONException {
        int n = command.getInt("n");
        Outcome outcome = new Outcome() {
            @Override
            public void done() {
                print("done", n);
                stumble();
            }

            @Override
            public void failed(String code, String message) {
                print("failed", n, "code", code);
            }
        };
        try {
            run(client, command, outcome);
        } catch (IllegalArgumentException e) {
            print("failed", n, "code", "invalid", "message", e.getMessage());
        }
    }

    private static void run(BadgeClient client, JSONObject command, Outcome outcome) throws JSONException {
        switch (command.getString("do")) {
            case "read":
                client.read(command.getString("conversation_id"), Long.parseLong(command.getString("up_to_seq")), outcome);
                break;
            case "read_all":
                if (command.has("category")) client.readAll(command.getString("category"), outcome);
                else client.readAll(outcome);
                break;
            case "seen":
                client.seen(command.getString("conversation_id"), Long.parseLong(command.getString("up_to_seq")), outcome);
                break;
            case "seen_all":
                if (command.has("category")) client.seenAll(command.getString("category"), outcome);
                else client.seenAll(outcome);
                break;
            case "level":
                client.setLevel(command.getString("category"), command.getString("level"), outcome);
                break;
            case "mark_unread":
                mark(client, command, outcome);
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static void mark(BadgeClient client, JSONObject command, Outcome outcome) throws JSONException {
        String conversation = command.getString("conversation_id");
        if (command.has("from_seq")) {
            client.markUnreadFrom(conversation, Long.parseLong(command.getString("from_seq")), outcome);
        } else if (command.has("seqs")) {
            JSONArray seqs = command.getJSONArray("seqs");
            long[] named = new long[seqs.length()];
            for (int i = 0; i < named.length; i++) named[i] = Long.parseLong(seqs.getString(i));
            client.markUnread(conversation, named, outcome);
        } else {
            client.markUnread(conversation, outcome);
        }
    }

    /** What an app with bugs does in callbacks. */
    private static void stumble() {
        if (System.getenv("STUMBLES") != null) throw new IllegalStateException("a bug of the app");
    }

    private static void print(Object... pairs) {
        try {
            JSONObject line = new JSONObject();
            for (int i = 0; i < pairs.length; i += 2) line.put((String) pairs[i], pairs[i + 1]);
            out.println(line);
        } catch (JSONException e) {
            throw new IllegalStateException(e);
        }
    }
}
