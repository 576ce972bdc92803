import com.sun.net.httpserver.Headers;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Base64;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Receives webhooks of badged and prints what it could verify. */
public class Receive {
    private static final byte[] SECRET = Base64.getDecoder().decode(System.getenv("WEBHOOK_SECRET").substring("whsec_".length()));
    private static final long TOLERANCE_SECONDS = 5 * 60;

    static boolean isGenuine(Headers headers, byte[] body) throws GeneralSecurityException {
        String id = headers.getFirst("webhook-id");
        String timestamp = headers.getFirst("webhook-timestamp");
        String signatures = headers.getFirst("webhook-signature");
        if (id == null || timestamp == null || signatures == null || !timestamp.matches("\\d{1,12}")) {
            return false;
        }
        // An old call may have been recorded and sent again by somebody else.
        if (Math.abs(System.currentTimeMillis() / 1000 - Long.parseLong(timestamp)) > TOLERANCE_SECONDS) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(SECRET, "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        String expected = "v1," + Base64.getEncoder().encodeToString(mac.doFinal(body));
        for (String given : signatures.split(" ")) { // several while a secret is replaced
            if (MessageDigest.isEqual(expected.getBytes(StandardCharsets.UTF_8), given.getBytes(StandardCharsets.UTF_8))) {
                return true;
            }
        }
        return false;
    }

    static void receive(HttpExchange exchange) throws IOException {
        try (exchange) {
            if (exchange.getRequestMethod().equals("OPTIONS")) { // badged asks for permission
                exchange.getResponseHeaders().set("WebHook-Allowed-Origin", exchange.getRequestHeaders().getFirst("WebHook-Request-Origin"));
                exchange.getResponseHeaders().set("WebHook-Allowed-Rate", "*");
                exchange.sendResponseHeaders(200, -1);
                return;
            }
            // The signature covers these bytes: verify before decoding.
            byte[] body = exchange.getRequestBody().readNBytes(1 << 20);
            boolean genuine = isGenuine(exchange.getRequestHeaders(), body);
            if (genuine) {
                System.out.println(exchange.getRequestHeaders().getFirst("webhook-id") + " " + new String(body, StandardCharsets.UTF_8));
            }
            exchange.sendResponseHeaders(genuine ? 204 : 401, -1);
        } catch (GeneralSecurityException e) {
            throw new IllegalStateException(e);
        }
    }

    public static void main(String[] args) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(System.getenv("PORT"))), 0);
        server.createContext("/", Receive::receive);
        server.start();
    }
}
