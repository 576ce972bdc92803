/**
 * The close codes of `badge.v1`. The codes 4001 to 4004 are final: the server
 * refuses this client. After any other code the client reconnects.
 */
export declare const CloseCode: {
    readonly BadToken: 4001;
    readonly ProtocolError: 4002;
    readonly Forbidden: 4003;
    readonly NoCommonSubprotocol: 4004;
    readonly OverCapacity: 4100;
    readonly RateLimited: 4101;
    readonly TooManyConnections: 4102;
    readonly TooSlow: 4103;
    readonly Draining: 4200;
    readonly NoPong: 4201;
    readonly TokenExpired: 4202;
    readonly Resync: 4203;
};
/** How a connection ended. */
export interface Ending {
    /**
     * The close code, from {@link CloseCode} or RFC 6455; 0 if this client ended
     * the connection or never had one.
     */
    readonly code: number;
    /** A text for developers, not for users. */
    readonly reason: string;
}
