/**
 * The close codes of `badge.v1`. From 4001 to 4004 the server refuses this
 * client, and coming back would not help; all others are worth another try.
 */
export const CloseCode = {
  BadToken: 4001,
  ProtocolError: 4002,
  Forbidden: 4003,
  NoCommonSubprotocol: 4004,
  OverCapacity: 4100,
  RateLimited: 4101,
  TooManyConnections: 4102,
  TooSlow: 4103,
  Draining: 4200,
  NoPong: 4201,
  TokenExpired: 4202,
  Resync: 4203,
} as const;

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

/** @internal */
export function isRefusal(code: number): boolean {
  return code >= CloseCode.BadToken && code <= CloseCode.NoCommonSubprotocol;
}

/** The reason of a close code where the server gave none. @internal */
export function reasonOf(code: number): string {
  const name = Object.entries(CloseCode).find(([, known]) => known === code)?.[0];
  if (name === undefined) return code === 1006 ? "connection lost" : `close code ${code}`;
  return name.replace(/\B[A-Z]/g, " $&").toLowerCase();
}
