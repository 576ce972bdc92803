package com.badged.client;

import java.io.IOException;

/** Hears of the badge. All methods are called on the client's thread: do not block it. */
public interface BadgeListener {
    /** The state has changed. */
    void changed(BadgeState state);

    /** The connection was made (a state arrived) or lost. */
    default void online(boolean online) {}

    /** The server refused this client, with a code from 4001 to 4004. Only start tries again. */
    default void refused(int code, String reason) {}

    /** The state and the commands are forgotten, as the app asked for. */
    default void forgotten() {}

    /** The store cannot be written: what is new ends with the process. The client works on. */
    default void notStored(IOException e) {}

    /**
     * A command in the store was dropped, and why: the store is damaged, or of a newer release. Others are
     * sent.
     */
    default void dropped(String command, String reason) {}
}
