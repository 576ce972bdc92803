/**
 * The close codes of `badge.v1`. From 4001 to 4004 the server refuses this
 * client, and coming back would not help; all others are worth another try.
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
     * The close code, one of {@link CloseCode} or of RFC 6455; 0 where this side
     * gave the connection up, or never had one.
     */
    readonly code: number;
    /** Why, in words for developers. */
    readonly reason: string;
}
