import { parseExact } from "../../sdk/src/seq.js";

/** A number, or past 2^53 a string of digits. */
export type Seq = number | string;

/** A partition of the log, with its lag. */
export interface Partition {
  readonly partition: number;
  /** The shard that holds it; absent without shards. */
  readonly shard?: string;
  readonly head: string;
  readonly folded: string;
  readonly events_behind: number;
  readonly seconds_behind: number;
  /** Empty if it has no owner. */
  readonly owner: string;
}

export interface Lag {
  readonly partitions: readonly Partition[];
  /** The shards that cannot be reached. */
  readonly away?: readonly {
    readonly shard: string;
    readonly partitions?: readonly number[];
    readonly error: string;
  }[];
  /** The messages to rooms that wait on a shard for another. */
  readonly waiting?: readonly {
    readonly for: string;
    readonly on: string;
    readonly messages: number;
    readonly seconds: number;
  }[];
}

/** A list without what is on shards that cannot be reached. */
export interface Listed<Item> {
  readonly items: readonly Item[];
  /** The names of these shards. */
  readonly away: readonly string[];
}

export interface Limits {
  readonly connections: number;
  readonly user_connections: number;
  readonly connects_per_second: number;
  readonly commands_per_second: number;
}

export interface Process {
  readonly process: string;
  readonly roles: readonly string[];
  readonly started_at: string;
  readonly seen_at: string;
  readonly connections?: {
    readonly websockets: number;
    readonly event_streams: number;
    readonly limits: Limits;
    readonly frames_sent: number;
    readonly reconciliation_repairs: number;
    readonly bus_gaps: number;
  };
}

/** The counters of an interval that ends at a time; null if unknown. */
export interface Rate {
  readonly at: string;
  readonly appended_per_second: number | null;
  readonly folded_per_second: number | null;
  readonly delay_p50_seconds: number | null;
  readonly delay_p99_seconds: number | null;
  readonly websockets: number | null;
  readonly event_streams: number | null;
  readonly frames_per_second: number | null;
  readonly repairs_per_second: number | null;
}

export interface DeadLetter {
  readonly id: number;
  readonly shard?: string;
  readonly partition?: number;
  readonly position?: string;
  /** Where a message of a broker was. */
  readonly origin?: string;
  readonly payload: unknown;
  /** What was there, if it is no JSON. */
  readonly payload_base64?: string;
  readonly reason: string;
  readonly at: string;
}

export type JobKind = "rebuild" | "verification";

export interface Difference {
  readonly partition: number;
  readonly user_id: string;
  readonly conversation_id?: string;
  readonly field: string;
  readonly table: string;
  readonly log: string;
}

/** The result of a job, by its kind. */
export interface JobResult {
  readonly partitions?: number;
  readonly users?: number;
  readonly conversations?: number;
  readonly differences?: number | readonly Difference[];
  readonly different_users?: number;
  readonly new_epochs?: number;
  readonly first?: readonly Difference[];
  readonly user_id?: string;
  readonly healed?: boolean;
  readonly version?: number;
}

export interface JobTarget {
  readonly partition?: number;
  readonly user?: string;
  readonly users?: readonly string[];
  readonly sample?: number;
  readonly anew?: boolean;
  readonly max_load?: number;
}

export interface Job {
  readonly id: number;
  readonly shard?: string;
  readonly kind: JobKind;
  readonly state: "running" | "done" | "failed" | "canceled" | "interrupted";
  readonly arguments: JobTarget;
  readonly started_by: string;
  readonly started_at: string;
  readonly process: string;
  readonly progress: {
    readonly done: number;
    readonly events: number;
    readonly seconds_left?: number;
    readonly note?: string;
  };
  readonly cancel_requested: boolean;
  readonly ended_at?: string;
  readonly result?: JobResult;
  readonly error?: string;
}

export interface Action {
  readonly id: number;
  readonly shard?: string;
  readonly at: string;
  readonly who: string;
  readonly via: "api" | "cli";
  readonly action: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly ended_at?: string;
  readonly result?: unknown;
  readonly error?: string;
}

export interface LoggedEvent {
  readonly event_id: string;
  readonly source?: string;
  readonly type?: string;
  readonly time?: string;
  readonly appended_at: string;
  /** When it was folded: no app saw its effect earlier. */
  readonly folded_at: string;
  readonly position: string;
}

/** What is unread, of everything or of a category. */
export interface Numbers {
  readonly total: number;
  readonly mentions: number;
  readonly unread_conversations: number;
  readonly unseen: number;
  readonly muted?: { readonly total: number; readonly conversations: number };
  readonly marked?: number;
}

export interface ExplainedConversation {
  readonly conversation_id: string;
  readonly unread: number;
  readonly mentions: number;
  readonly first_unread_seq: Seq;
  readonly read_seq: Seq;
  readonly last_seq: Seq;
  readonly level: string;
  readonly level_until?: string;
  readonly category: string;
  readonly marked_unread: boolean;
  readonly adds: number;
  /** Of the room; absent if the user is no member of one. */
  readonly members?: number;
  readonly messages: readonly (LoggedEvent & { seq: Seq; mentioned: boolean })[];
  readonly more_messages: number;
  readonly last_read?: LoggedEvent & { up_to_seq: Seq };
  readonly marked_by?: LoggedEvent;
  readonly level_by?: LoggedEvent;
  /** The level that applies, and the category that it is of, if it is not the own one. */
  readonly applies: string;
  readonly level_of?: string;
}

/** An event that changed the total. */
export interface Step extends LoggedEvent {
  readonly total: number;
  readonly change: number;
  readonly conversation_id?: string;
  readonly seq?: Seq;
  /** The number of steps omitted before it. */
  readonly left_out?: number;
}

/** The total over time. */
export interface History {
  readonly before: number;
  readonly steps: readonly Step[];
  readonly left_out: number;
}

/** A delivered message and its outcome. */
export interface DeliveredMessage extends LoggedEvent {
  readonly conversation_id: string;
  readonly seq: Seq;
  readonly mentioned: boolean;
  readonly fate: "unread" | "read" | "recalled" | "read_before" | "recalled_before" | "own_message";
  readonly by?: LoggedEvent;
}

export interface Delivered {
  readonly messages: readonly DeliveredMessage[];
  /** The number of messages delivered before them. */
  readonly more: number;
}

export interface UncountedEvent extends LoggedEvent {
  readonly conversation_id?: string;
  readonly seq?: Seq;
  readonly why: string;
  readonly detail: string;
}

export interface UncountedKind {
  readonly type?: string;
  readonly why: string;
  readonly events: number;
}

export interface Explanation extends Numbers {
  readonly user_id: string;
  readonly partition: number;
  readonly at?: string;
  readonly position: string;
  readonly archived_until?: string;
  readonly version: number;
  readonly categories: Readonly<Record<string, Numbers>>;
  /** By category, the event that set its level. */
  readonly levels?: Readonly<Record<string, LoggedEvent>>;
  readonly conversations: readonly ExplainedConversation[];
  readonly more_conversations: number;
  readonly more_adds: number;
  readonly uncounted: readonly UncountedEvent[];
  readonly more_uncounted: number;
  readonly uncounted_kinds: readonly UncountedKind[];
  readonly history?: History;
  readonly delivered?: Delivered;
  readonly table?: Numbers & {
    readonly version: number;
    readonly epoch: string;
    readonly categories: Readonly<Record<string, Numbers>>;
    readonly levels?: Readonly<Record<string, string>>;
  };
  readonly agrees: boolean;
  readonly differences: readonly Difference[];
  readonly more_differences: number;
}

/** A device that gets pushes. */
export interface Device {
  readonly device_id: string;
  readonly platform: "apns" | "fcm" | "webpush" | "unifiedpush";
  readonly app: string;
  readonly environment: "production" | "sandbox";
  readonly shows: string;
  /** The part of the token that is no secret. */
  readonly token: string;
  readonly registered_at: string;
  readonly number?: number;
  readonly told_at?: string;
  readonly due_at?: string;
  readonly failures: number;
  readonly last_error?: string;
  readonly last_error_at?: string;
}

export type WebhookState = "active" | "paused" | "disabled";

/** An endpoint that is told of changes, and how its calls went. */
export interface Webhook {
  readonly name: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly categories?: readonly string[];
  readonly batch: number;
  readonly rate?: number;
  readonly state: WebhookState;
  /** Counted up to a limit. */
  readonly due_events: number;
  /** 0 while calls succeed. */
  readonly step: number;
  readonly next_call_at?: string;
  readonly failing_since?: string;
  readonly last_success_at?: string;
  readonly last_failure_at?: string;
  readonly last_status?: number;
  readonly last_error?: string;
}

/** The parameters of an explanation, as the server names them. */
export interface Question {
  /** A time in the server's format, to the microsecond. */
  readonly at?: string | undefined;
  readonly conversation?: string | undefined;
  readonly history?: boolean;
  readonly delivered?: number;
  readonly before?: string;
}

/** An error answer, with the message of the server. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

/** The server could not be reached, or its answer was incomplete. */
export class Away extends Error {}

/** What the pages of lists say of shards that cannot be reached. */
interface Lacking {
  readonly away?: readonly string[];
}

/** The admin API, with the key of an operator. */
export class Server {
  readonly #key: string;

  constructor(key: string) {
    this.#key = key;
  }

  partitions(): Promise<Lag> {
    return this.#request("GET", "v1/partitions");
  }

  async processes(): Promise<readonly Process[]> {
    return (await this.#request<{ processes: Process[] }>("GET", "v1/processes")).processes;
  }

  /** The rates of the last hour, or since a time. */
  async rates(since: string | undefined): Promise<readonly Rate[]> {
    const query = since === undefined ? "" : `?since=${encodeURIComponent(since)}`;
    return (await this.#request<{ points: Rate[] }>("GET", `v1/rates${query}`)).points;
  }

  async deadLetters(): Promise<Listed<DeadLetter>> {
    const page = await this.#request<{ dead_letters: DeadLetter[] } & Lacking>(
      "GET",
      "v1/deadletters",
    );
    return { items: page.dead_letters, away: page.away ?? [] };
  }

  async retryDeadLetter(id: number): Promise<void> {
    await this.#request("POST", `v1/deadletters/${id}/retry`);
  }

  async discardDeadLetter(id: number): Promise<void> {
    await this.#request("DELETE", `v1/deadletters/${id}`);
  }

  /** Explains the badge of a user, now or at a time. */
  explain(user: string, question: Question): Promise<Explanation> {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(question)) {
      if (value !== undefined) query.set(name, String(value));
    }
    return this.#request("GET", `v1/users/${encodeURIComponent(user)}/explain?${query}`);
  }

  /** The devices of a user that get pushes. */
  async devices(user: string): Promise<readonly Device[]> {
    const path = `v1/users/${encodeURIComponent(user)}/devices`;
    return (await this.#request<{ devices: Device[] }>("GET", path)).devices;
  }

  async webhooks(): Promise<Listed<Webhook>> {
    const page = await this.#request<{ webhooks: Webhook[] } & Lacking>("GET", "v1/webhooks");
    return { items: page.webhooks, away: page.away ?? [] };
  }

  /** Pauses or resumes a webhook, or tries an active one again. Its settings stay as they are now. */
  async setWebhookState(name: string, state: WebhookState): Promise<void> {
    const path = `v1/webhooks/${encodeURIComponent(name)}`;
    const { url, events, categories, batch } = await this.#request<Webhook>("GET", path);
    await this.#request("PUT", path, { url, events, categories, batch, state });
  }

  /** A job by its id, for those too old for the list; undefined if there is none. */
  async job(id: number): Promise<Job | undefined> {
    for (const kind of ["rebuild", "verification"]) {
      try {
        return await this.#request<Job>("GET", `v1/${kind}s/${id}`);
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 404) throw error;
      }
    }
    return undefined;
  }

  /** The newest jobs of both kinds. */
  async jobs(): Promise<Listed<Job>> {
    const [{ rebuilds, away }, { verifications }] = await Promise.all([
      this.#request<{ rebuilds: Job[] } & Lacking>("GET", "v1/rebuilds?limit=50"),
      this.#request<{ verifications: Job[] }>("GET", "v1/verifications?limit=50"),
    ]);
    const items = [...rebuilds, ...verifications].sort((a, b) => b.id - a.id);
    return { items, away: away ?? [] };
  }

  startJob(kind: JobKind, target: JobTarget): Promise<Job> {
    return this.#request("POST", `v1/${kind}s`, target);
  }

  async cancelJob({ kind, id }: Job): Promise<void> {
    await this.#request("DELETE", `v1/${kind}s/${id}`);
  }

  /** The latest actions of operators, or those before an action. */
  async audit(before: number | undefined): Promise<Listed<Action>> {
    const query = before === undefined ? "" : `&before=${before}`;
    const page = await this.#request<{ actions: Action[] } & Lacking>(
      "GET",
      `v1/audit?limit=50${query}`,
    );
    return { items: page.actions, away: page.away ?? [] };
  }

  async #request<Answer>(method: string, path: string, body?: object): Promise<Answer> {
    let response: Response;
    let answer: Answer & { detail?: string };
    try {
      response = await fetch(path, {
        method,
        cache: "no-store",
        headers: {
          Authorization: `Bearer ${this.#key}`,
          ...(body && { "Content-Type": "application/json" }),
        },
        ...(body && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      answer = (text === "" ? {} : parseExact(text)) as typeof answer;
    } catch (error) {
      throw new Away("the server cannot be reached", { cause: error });
    }
    if (!response.ok) {
      throw new Refused(response.status, answer.detail ?? `the server answers ${response.status}`);
    }
    return answer;
  }
}
