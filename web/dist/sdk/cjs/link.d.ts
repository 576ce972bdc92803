import { type Ending } from "./closing.js";
/** What a client needs a token for. */
export interface TokenRequest {
    /** The last token has expired or soon will: do not return a cached one. */
    readonly expired: boolean;
}
/** The state of the connection. */
export type Status = 
/** Not started, or stopped. */
{
    readonly state: "stopped";
}
/** No state has arrived yet. */
 | {
    readonly state: "connecting";
}
/** Connected and up to date. */
 | {
    readonly state: "online";
}
/** Disconnected. The next attempt starts in `retryMs`. */
 | ({
    readonly state: "waiting";
    readonly retryMs: number;
} & Ending)
/** The server refused this client. It does not reconnect until `start`. */
 | ({
    readonly state: "refused";
} & Ending);
