package com.badged.client;

/** Hears how a command ended, on the client's thread. */
public interface Outcome {
    /** The command is durable. Its effect comes as a state, before or after. */
    void done();

    /** The server refused the command finally. */
    void failed(String code, String message);
}
