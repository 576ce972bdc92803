/** A user of the demo, with a token that speaks for it. */
export interface User {
  readonly user_id: string;
  readonly name: string;
  /** A CSS colour. */
  readonly color: string;
  readonly token: string;
}

/** A conversation of the demo's chat. */
export interface ChatConversation {
  readonly conversation_id: string;
  readonly name: string;
  readonly kind: "group" | "direct" | "feed";
  readonly members: readonly string[];
  readonly category: string;
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
  /** Its sender took it back; it has no text any more. */
  readonly recalled: boolean;
}

/** An event of the log, in the words of the server. */
export interface LoggedEvent {
  readonly position: string;
  readonly type: string;
  readonly source: string;
  readonly id: string;
  readonly summary: string;
  readonly time: string;
}

/** The link of the bus: for how long it stays cut, and how many updates it has lost so far. */
export interface LinkState {
  readonly cut_ms: number;
  readonly lost: number;
}

export interface FeedListener {
  onOpen(): void;
  onLost(): void;
  onMessage(message: Message): void;
  onLogged(event: LoggedEvent): void;
  onLink(state: LinkState): void;
}

const RETRY_MS = 2_000;

/** The demo's own endpoints: the chat that the badges are about. */
export class DemoServer {
  #cast: Promise<Cast> | undefined;

  /** The users and their conversations. Calls made while one is under way share its answer. */
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
    if (user === undefined) throw new Error(`the demo no longer has a user ${userId}`);
    return user.token;
  }

  async send(conversationId: string, senderId: string, text: string): Promise<void> {
    await request("POST", "demo/messages", {
      conversation_id: conversationId,
      sender_id: senderId,
      text,
    });
  }

  async recall({ conversation_id, sender_id, seq }: Message): Promise<void> {
    await request("POST", "demo/recalls", { conversation_id, sender_id, seq });
  }

  async setLevel(conversationId: string, userId: string, level: string): Promise<void> {
    await request("POST", "demo/levels", {
      conversation_id: conversationId,
      user_id: userId,
      level,
    });
  }

  link(): Promise<LinkState> {
    return request("GET", "demo/bus");
  }

  /** Cuts the link of the bus for a while; 0 makes it whole. */
  cutLink(cutMs: number): Promise<LinkState> {
    return request("POST", "demo/bus", { cut_ms: cutMs });
  }

  async isRunning(): Promise<boolean> {
    return (await request<{ running: boolean }>("GET", "demo/simulation")).running;
  }

  async setRunning(running: boolean): Promise<boolean> {
    return (await request<{ running: boolean }>("POST", "demo/simulation", { running })).running;
  }

  /** Follows the chat and the log for as long as the page lives. */
  follow(listener: FeedListener): void {
    const source = new EventSource("demo/feed");
    source.onopen = () => listener.onOpen();
    source.onerror = () => {
      listener.onLost();
      // A browser retries a lost connection, but not an answer it did not expect.
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.follow(listener), RETRY_MS);
    };
    source.addEventListener("message", ({ data }) => listener.onMessage(JSON.parse(data)));
    source.addEventListener("log", ({ data }) => listener.onLogged(JSON.parse(data)));
    source.addEventListener("link", ({ data }) => listener.onLink(JSON.parse(data)));
  }
}

async function request<Answer>(method: string, path: string, body?: object): Promise<Answer> {
  const response = await fetch(path, {
    method,
    ...(body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
  });
  if (!response.ok) throw new Error(`${method} ${path}: status ${response.status}`);
  return response.json();
}
