/** A user of the demo, with its token. */
export interface User {
  readonly user_id: string;
  readonly name: string;
  /** A CSS color. */
  readonly color: string;
  readonly token: string;
}

/** How people talk in a conversation. A thread belongs to the channel of its category. */
export type Kind = "group" | "direct" | "thread" | "feed" | "room";

/** A conversation of the demo's chat. */
export interface ChatConversation {
  readonly conversation_id: string;
  readonly name: string;
  readonly kind: Kind;
  /** The people in it. A room has guests besides. */
  readonly members: readonly string[];
  /** A channel of a workspace, such as `acme/design`, or a part of the bell. */
  readonly category: string;
  /** Shown with its first message. */
  readonly late?: boolean;
}

export interface Cast {
  readonly users: readonly User[];
  readonly conversations: readonly ChatConversation[];
}

export interface Message {
  readonly conversation_id: string;
  readonly seq: number;
  readonly sender_id: string;
  readonly text: string;
  readonly mentioned_user_ids: readonly string[];
  readonly time: string;
  /** Its sender recalled it: it no longer has a text. */
  readonly recalled: boolean;
}

/** An event of the log, as the server describes it. */
export interface LoggedEvent {
  readonly position: string;
  readonly type: string;
  readonly source: string;
  readonly id: string;
  readonly summary: string;
  readonly time: string;
  /** The users that it affects, or some of them. */
  readonly users: readonly string[];
  /** How many more users it affects. */
  readonly others?: number;
}

/** The effect of an event on the badge of a user. */
export interface Change {
  readonly user_id: string;
  readonly before: number;
  readonly after: number;
  readonly conversations: readonly {
    readonly conversation_id: string;
    readonly unread_before: number;
    readonly unread_after: number;
    readonly adds_before: number;
    readonly adds_after: number;
    readonly level: string;
  }[];
  /** Why no number changed, if none did. */
  readonly detail?: string;
}

/** A badge in the tables. */
export interface TrueBadge {
  readonly epoch: string;
  readonly version: number;
  readonly total: number;
}

/** The bus link: the time until it is restored, and the number of updates lost so far. */
export interface LinkState {
  readonly cut_ms: number;
  readonly lost: number;
}

/** The long transaction: the time until it ends, and its id. */
export interface TransactionState {
  readonly open_ms: number;
  readonly transaction_id: number;
}

/** How many members the room has, and is to have. */
export interface CrowdState {
  readonly members: number;
  readonly target: number;
  /** Why it takes longer, if it does. */
  readonly trouble?: string;
}

/** What a message cost. */
export interface Cost {
  /** The message, or the last of several. */
  readonly seq: number;
  /** The members when it was sent. */
  readonly members: number;
  /** The rows that badged wrote for it; 0 for several messages. */
  readonly rows: number;
}

/** What the push service of the demo knows of a phone. */
export interface PhoneState {
  readonly user_id: string;
  /** Its app is closed: the icon shows what was pushed. */
  readonly closed: boolean;
  /** How many pushes came since the demo began. */
  readonly pushes: number;
  /** The newest push. */
  readonly pushed?: { readonly epoch: string; readonly version: number; readonly number: number };
}

/** A phone, and what its app registers at badged to get pushes. */
export interface Subscribed extends PhoneState {
  readonly device: string;
  readonly app: string;
  readonly subscription: object;
}

export interface FeedListener {
  onOpen(): void;
  onLost(): void;
  onMessage(message: Message): void;
  onLogged(event: LoggedEvent): void;
  onLink(state: LinkState): void;
  onTransaction(state: TransactionState): void;
  onCrowd(state: CrowdState): void;
  onPhone(state: PhoneState): void;
}

/** The name of a user of the demo. Guests of the room have numbers. */
export function nameOf(userId: string, users: ReadonlyMap<string, User>): string {
  return users.get(userId)?.name ?? userId.replace(/^guest-/, "Guest ");
}

const RETRY_MS = 2_000;

/** The endpoints of the demo: its chat and its log. */
export class DemoServer {
  #cast: Promise<Cast> | undefined;
  /** The last request to each path that changed something. */
  readonly #posted = new Map<string, Promise<unknown>>();

  /** The users and their conversations. Concurrent calls share an answer. */
  cast(): Promise<Cast> {
    this.#cast ??= request<Cast>("GET", "demo/users").finally(() => {
      this.#cast = undefined;
    });
    return this.#cast;
  }

  /** A fresh token of a user. */
  async token(userId: string): Promise<string> {
    const { users } = await this.cast();
    const user = users.find(({ user_id }) => user_id === userId);
    if (user === undefined)
      throw new Error(`the demo no longer has the user ${userId}: reload the page`);
    return user.token;
  }

  async send(conversationId: string, senderId: string, text: string): Promise<void> {
    await this.#post("demo/messages", {
      conversation_id: conversationId,
      sender_id: senderId,
      text,
    });
  }

  async recall({ conversation_id, sender_id, seq }: Message): Promise<void> {
    await this.#post("demo/recalls", { conversation_id, sender_id, seq });
  }

  async setLevel(conversationId: string, userId: string, level: string): Promise<void> {
    await this.#post("demo/levels", {
      conversation_id: conversationId,
      user_id: userId,
      level,
    });
  }

  /** What an event changed. Users whose partition has not folded it yet are missing. */
  async changes(event: LoggedEvent, users: readonly string[]): Promise<readonly Change[]> {
    const query = new URLSearchParams([
      ["source", event.source],
      ["id", event.id],
      ["transaction", event.position.split("/")[0] ?? ""],
      ...users.map((user) => ["user", user]),
    ]);
    return (await request<{ changes: Change[] }>("GET", `demo/changes?${query}`)).changes;
  }

  /** The badge of a user in the tables, read without the bus. */
  badge(user: User): Promise<TrueBadge> {
    return request("GET", `v1/users/${user.user_id}/badge`, undefined, user.token);
  }

  link(): Promise<LinkState> {
    return request("GET", "demo/bus");
  }

  /** Cuts the bus link for a while; 0 restores it. */
  cutLink(cutMs: number): Promise<LinkState> {
    return this.#post("demo/bus", { cut_ms: cutMs });
  }

  transaction(): Promise<TransactionState> {
    return request("GET", "demo/transaction");
  }

  /** Opens a transaction and leaves it open for a while; 0 ends it. */
  openTransaction(openMs: number): Promise<TransactionState> {
    return this.#post("demo/transaction", { open_ms: openMs });
  }

  crowd(): Promise<CrowdState> {
    return request("GET", "demo/room");
  }

  /** Lets guests join or leave until the room has that many members. */
  setMembers(members: number): Promise<CrowdState> {
    return this.#post("demo/room", { members });
  }

  /** Sends messages to the room, or to a group of the same users. */
  sendToAll(conversationId: string, messages: number): Promise<Cost> {
    return this.#post("demo/room/messages", { conversation_id: conversationId, messages });
  }

  async phones(): Promise<readonly Subscribed[]> {
    return (await request<{ phones: Subscribed[] }>("GET", "demo/phones")).phones;
  }

  /** Registers the device of a phone at badged, as an app does when it starts. */
  async register(
    { token, user_id }: User,
    { device, app, subscription }: Subscribed,
  ): Promise<void> {
    const path = `v1/users/${user_id}/devices/${device}`;
    await request("PUT", path, { platform: "unifiedpush", app, subscription }, token);
  }

  /** Opens or closes the app of a phone, on all pages. */
  setClosed(userId: string, closed: boolean): Promise<PhoneState> {
    return this.#post("demo/phones", { user_id: userId, closed });
  }

  async isRunning(): Promise<boolean> {
    return (await request<{ running: boolean }>("GET", "demo/simulation")).running;
  }

  async setRunning(running: boolean): Promise<boolean> {
    return (await this.#post<{ running: boolean }>("demo/simulation", { running })).running;
  }

  /** Follows the chat and the log while the page is open. */
  follow(listener: FeedListener): void {
    const source = new EventSource("demo/feed");
    source.onopen = () => listener.onOpen();
    source.onerror = () => {
      listener.onLost();
      // A browser retries after a lost connection, but not after an unexpected answer.
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.follow(listener), RETRY_MS);
    };
    source.addEventListener("message", ({ data }) => listener.onMessage(JSON.parse(data)));
    source.addEventListener("log", ({ data }) => listener.onLogged(JSON.parse(data)));
    source.addEventListener("link", ({ data }) => listener.onLink(JSON.parse(data)));
    source.addEventListener("transaction", ({ data }) => listener.onTransaction(JSON.parse(data)));
    source.addEventListener("phone", ({ data }) => listener.onPhone(JSON.parse(data)));
    source.addEventListener("room", ({ data }) => listener.onCrowd(JSON.parse(data)));
  }

  /** One request to a path at a time: the next could overtake it. */
  #post<Answer>(path: string, body: object): Promise<Answer> {
    const before = this.#posted.get(path) ?? Promise.resolve();
    const answer = before.then(() => request<Answer>("POST", path, body));
    this.#posted.set(
      path,
      answer.catch(() => undefined),
    );
    return answer;
  }
}

async function request<Answer>(
  method: string,
  path: string,
  body?: object,
  token?: string,
): Promise<Answer> {
  const response = await fetch(path, {
    method,
    ...(body && { body: JSON.stringify(body) }),
    headers: {
      ...(body && { "Content-Type": "application/json" }),
      ...(token && { Authorization: `Bearer ${token}` }),
    },
  });
  if (!response.ok) throw new Error(`${method} ${path}: status ${response.status}`);
  return response.json();
}
