package com.badged.client;

import java.io.IOException;

/** Gives tokens of the user. */
public interface TokenSource {
    /**
     * Returns a token, with expired not a cached one. Called on the client's thread, before every
     * connection and before a token expires; it may block. If it fails, the client tries again later.
     */
    String token(boolean expired) throws IOException;
}
