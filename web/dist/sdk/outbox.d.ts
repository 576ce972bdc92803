/** Why something the user did was not accepted. */
export declare class BadgedError extends Error {
    name: string;
    /** The code of the server's error, or `forgotten` after {@link Badged.forget}. */
    readonly code: string;
    constructor(code: string, message: string);
}
