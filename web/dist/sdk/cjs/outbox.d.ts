/** Why a command was refused or dropped. */
export declare class BadgedError extends Error {
    name: string;
    /** The error code of the server, or `forgotten` after {@link Badged.forget}. */
    readonly code: string;
    constructor(code: string, message: string);
}
