/** Why something the user did was not accepted. */
export declare class BadgedError extends Error {
    name: string;
    /**
     * `offline` where there was no connection, or it was lost before the answer;
     * otherwise the code of the server's error.
     */
    readonly code: string;
    /** When to try again, in milliseconds; 0 where the server does not say. */
    readonly retryMs: number;
    constructor(code: string, message: string, retryMs?: number);
}
