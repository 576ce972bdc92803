package com.badged.client;

/** Hears of the badge. All methods are called on the client's thread: do not block it. */
public interface BadgeListener {
    /** The state has changed. */
    void changed(BadgeState state);

    /** The connection was made (a state arrived) or lost. */
    default void online(boolean online) {}

    /** The server refused this client, with a code from 4001 to 4004. Only start tries again. */
    default void refused(int code, String reason) {}
}
