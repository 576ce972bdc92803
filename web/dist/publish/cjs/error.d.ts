/** What is wrong with an event. */
export interface EventError {
    /** The event, by its index among those that were published together. */
    index: number;
    /** The path of the field, such as `data.seq`; absent if the event as a whole is at fault. */
    field?: string;
    message: string;
}
/** Why events were not published. */
export declare class PublishError extends Error {
    name: string;
    /** The status of the answer; absent if there was none. */
    readonly status: number | undefined;
    /** Each bad event, if the server refused some. */
    readonly errors: readonly EventError[];
    /**
     * Whether publishing the same events again may succeed: nothing is wrong with them, and
     * those that were stored after all count once.
     */
    readonly retryable: boolean;
    constructor(message: string, { status, errors, retryable }?: PublishErrorOptions);
}
interface PublishErrorOptions {
    status?: number;
    errors?: readonly EventError[];
    retryable?: boolean;
}
export {};
