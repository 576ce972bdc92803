import { type Ending } from "./closing.js";
/** Why a token is asked for. */
export interface TokenRequest {
    /** The last token has ended or is about to; so a kept one will not do. */
    readonly expired: boolean;
}
/** How a client stands with the server. */
export type Status = 
/** Not started, or stopped. */
{
    readonly state: "stopped";
}
/** On the way to the first state. */
 | {
    readonly state: "connecting";
}
/** The state is the server's, and changes arrive as they happen. */
 | {
    readonly state: "online";
}
/** The connection was lost or could not be had; the next attempt is in `retryMs`. */
 | ({
    readonly state: "waiting";
    readonly retryMs: number;
} & Ending)
/** The server will not have this client; only `start` tries again. */
 | ({
    readonly state: "refused";
} & Ending);
