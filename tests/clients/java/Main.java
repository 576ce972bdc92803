// An app with the class Badges of docs/clients-mobile.md, which a test tells line by
// line what to do, and which tells it what happens; see tests/mobile_test.go.

import com.badged.client.BadgeState;
import com.badged.client.Conversation;
import com.badged.client.TokenSource;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import okhttp3.OkHttpClient;
import org.json.JSONException;
import org.json.JSONObject;

final class Main {
    private static volatile String token = "";
    private static int asked;

    /** Arguments: the folder of the store, and the server's URL. */
    public static void main(String[] args) throws Exception {
        OkHttpClient http = new OkHttpClient();
        TokenSource tokens = expired -> {
            tell("token", expired ? "fresh" : "", ++asked);
            return token;
        };
        Badges badges = new Badges(http, args[1], tokens, new File(args[0]), "ada", new Badges.Icon() {
            @Override
            public void show(long total) {
                tell("total", "", total);
            }

            @Override
            public void refused(int code, String reason) {
                tell("refused", reason, code);
            }
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) run(badges, new JSONObject(line));
        badges.client.close();
        http.dispatcher().executorService().shutdown();
    }

    private static void run(Badges badges, JSONObject command) throws Exception {
        switch (command.getString("do")) {
            case "start":
                token = command.getString("token");
                badges.enterForeground();
                break;
            case "stop":
                badges.leaveForeground();
                break;
            case "read":
                badges.client.read(command.getString("conversation"), command.getLong("seq"), null);
                break;
            case "mark":
                badges.client.markUnread(command.getString("conversation"), null);
                break;
            case "push":
                Map<String, String> data = new HashMap<>();
                for (String name : new String[] {"epoch", "version", "total"}) data.put(name, command.getString(name));
                badges.pushed(data);
                tell("pushed", "", 0);
                break;
            case "conversation":
                Conversation c = badges.client.state().conversations.get(command.getString("conversation"));
                tell("conversation", new JSONObject().put("unread", c.unread).put("read_seq", c.readSeq).toString(), 0);
                break;
            case "state":
                BadgeState state = badges.client.state();
                tell("state", new JSONObject().put("epoch", state.epoch).put("version", state.version).toString(), 0);
                break;
            case "forget":
                badges.signOut();
                break;
            default:
                throw new IllegalArgumentException(command.toString());
        }
    }

    private static synchronized void tell(String event, String text, long code) {
        try {
            System.out.println(new JSONObject().put("Event", event).put("Text", text).put("Code", code));
        } catch (JSONException e) {
            throw new IllegalStateException(e);
        }
    }
}
