// The Android client of docs/clients-mobile.md, which a test tells line by line
// what to do, and which tells it what happens; see tests/mobile_test.go.

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import okhttp3.OkHttpClient;
import org.json.JSONException;
import org.json.JSONObject;

final class Main {
    private static volatile String token = "";
    private static int asked;

    /** Arguments: the store's file, and the server's URL. */
    public static void main(String[] args) throws Exception {
        BadgeStore store = new BadgeStore(new File(args[0]));
        OkHttpClient http = new OkHttpClient();
        ScheduledExecutorService worker = Executors.newSingleThreadScheduledExecutor();
        BadgeConnection connection = new BadgeConnection(http, args[1], store, new BadgeConnection.App() {
            @Override
            public String token(boolean fresh) throws IOException {
                tell("token", fresh ? "fresh" : "", ++asked);
                return token;
            }

            @Override
            public void changed() {
                tell("total", store.next() == null ? "" : "waiting", store.total());
            }

            @Override
            public void refused(int code, String reason) {
                tell("refused", reason, code);
            }
        }, worker);
        tell("total", "kept", store.total());

        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JSONObject command = new JSONObject(line);
            switch (command.getString("do")) {
                case "start":
                    token = command.getString("token");
                    connection.start();
                    break;
                case "stop":
                    connection.stop();
                    break;
                case "read":
                    connection.read(command.getString("conversation"), command.getLong("seq"));
                    break;
                case "mark":
                    connection.markUnread(command.getString("conversation"));
                    break;
                case "push":
                    boolean news = store.push(
                        command.getString("epoch"), command.getLong("version"), command.getLong("total"));
                    tell("push", news ? "shown" : "late", store.total());
                    break;
                case "conversation":
                    JSONObject conversation = store.conversation(command.getString("conversation"));
                    tell("conversation", conversation == null ? "" : conversation.toString(), 0);
                    break;
                case "hello":
                    tell("hello", store.hello().toString(), 0);
                    break;
                case "forget":
                    connection.forget();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        connection.stop();
        worker.shutdown();
        if (!worker.awaitTermination(1, TimeUnit.MINUTES)) throw new IllegalStateException("the worker goes on");
        http.dispatcher().executorService().shutdown();
    }

    private static synchronized void tell(String event, String text, long code) {
        try {
            System.out.println(new JSONObject().put("Event", event).put("Text", text).put("Code", code));
        } catch (JSONException e) {
            throw new IllegalStateException(e);
        }
    }
}
