/**
 * The close codes of `badge.v1`. The codes 4001 to 4004 are final: the server
 * refuses this client. After any other code the client reconnects.
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
   * The close code, from {@link CloseCode} or RFC 6455; 0 if this client ended
   * the connection or never had one.
   */
  readonly code: number;
  /** A text for developers, not for users. */
  readonly reason: string;
}

/** @internal */
export function isRefusal(code: number): boolean {
  return code >= CloseCode.BadToken && code <= CloseCode.NoCommonSubprotocol;
}

/** Describes a close code that came without a reason. @internal */
export function reasonOf(code: number): string {
  const name = Object.entries(CloseCode).find(([, known]) => known === code)?.[0];
  if (name === undefined) return code === 1006 ? "connection lost" : `close code ${code}`;
  return name.replace(/\B[A-Z]/g, " $&").toLowerCase();
}
