import com.google.firebase.messaging.RemoteMessage;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;

/** Gives the sample of docs/push.md a token, and each line of the input as the content of a push. */
final class PushSample {
    public static void main(String[] args) throws IOException {
        Pushes pushes = new Pushes();
        pushes.onNewToken("TOKEN");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String content = in.readLine(); content != null; content = in.readLine()) {
            System.out.println("push");
            pushes.onMessageReceived(new RemoteMessage(Collections.singletonMap("badged", content)));
        }
        System.out.println("push of another sender");
        pushes.onMessageReceived(new RemoteMessage(Collections.emptyMap()));
    }
}
