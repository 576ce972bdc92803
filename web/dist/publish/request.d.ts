import type { EventError } from "./error.js";
/** How a request ended. */
export type Outcome = {
    kind: "stored";
    position: string;
}
/** The same request may succeed later. */
 | {
    kind: "again";
    message: string;
    status?: number;
    afterMs: number;
} | {
    kind: "refused";
    message: string;
    status: number;
    errors: EventError[];
};
/** Sends events as one request, which stores all of them or none. It does not fail. */
export declare function post(send: typeof fetch, url: URL, key: string, body: string, timeoutMs: number): Promise<Outcome>;
