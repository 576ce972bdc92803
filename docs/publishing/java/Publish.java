import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.List;

/**
 * Stores a chat message and publishes its event in one transaction. With
 * Postgres's JDBC driver and Java 17:
 *
 * <pre>
 * export DATABASE_URL='jdbc:postgresql://localhost/chat?user=chat'
 * java -cp postgresql.jar Publish.java
 * </pre>
 */
public final class Publish {
    /** The seq of a stored message, and its position, for at_least. */
    record Sent(long seq, long position) {}

    /**
     * Stores a message and publishes it within the transaction of conn. The
     * position is valid once that has committed.
     */
    static Sent send(Connection conn, String room, String sender, List<String> recipients, String body)
            throws SQLException {
        long seq;
        try (PreparedStatement insert = conn.prepareStatement(
                "INSERT INTO messages (room, sender, body) VALUES (?, ?, ?) RETURNING seq")) {
            insert.setString(1, room);
            insert.setString(2, sender);
            insert.setString(3, body);
            seq = number(insert);
        }
        // Postgres builds the JSON, so no library is needed. With a library, use
        // badged.publish(?::jsonb) and setString.
        try (PreparedStatement publish = conn.prepareStatement("""
                SELECT badged.publish(jsonb_build_object(
                    'specversion', '1.0',
                    'id', ?::text,
                    'source', 'chat',
                    'type', 'message.delivered',
                    'data', jsonb_build_object(
                        'conversation_id', ?::text,
                        'seq', ?::bigint,
                        'sender_id', ?::text,
                        'user_ids', to_jsonb(?::text[]))))""")) {
            publish.setString(1, room + "/" + seq);
            publish.setString(2, room);
            publish.setLong(3, seq);
            publish.setString(4, sender);
            publish.setArray(5, conn.createArrayOf("text", recipients.toArray()));
            return new Sent(seq, number(publish));
        }
    }

    /** Returns the number that a query yields. */
    private static long number(PreparedStatement query) throws SQLException {
        try (ResultSet rows = query.executeQuery()) {
            rows.next();
            return rows.getLong(1);
        }
    }

    public static void main(String[] args) throws SQLException {
        try (Connection conn = DriverManager.getConnection(System.getenv("DATABASE_URL"))) {
            try (Statement statement = conn.createStatement()) {
                statement.execute("""
                        CREATE TABLE IF NOT EXISTS messages (
                            seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
                            room   text NOT NULL,
                            sender text NOT NULL,
                            body   text NOT NULL
                        )""");
            }

            conn.setAutoCommit(false);
            Sent sent = send(conn, "design-crew", "ben", List.of("ada", "chloe"), "Shipping it");
            conn.commit();
            System.out.printf("message %d is stored and published, position %d%n", sent.seq(), sent.position());

            sent = send(conn, "design-crew", "ben", List.of("ada", "chloe"), "Or not");
            conn.rollback();
            System.out.printf("message %d was rolled back: it is neither stored nor published%n", sent.seq());
        }
    }
}
