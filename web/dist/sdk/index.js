// sdk/src/emitter.ts
var Emitter = class {
  #listeners = /* @__PURE__ */ new Map();
  /** Returns the function that takes the listener away again. */
  on(event, listener) {
    const listeners = this.#listeners.get(event) ?? /* @__PURE__ */ new Set();
    this.#listeners.set(event, listeners);
    const entry = (value) => listener(value);
    listeners.add(entry);
    return () => listeners.delete(entry);
  }
  emit(event, value) {
    for (const listener of [...this.#listeners.get(event) ?? []]) {
      try {
        listener(value);
      } catch (error) {
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
};

// sdk/src/environment.ts
var systemClock = {
  now: () => performance.now(),
  date: () => Date.now(),
  after(delayMs, call) {
    const timer = setTimeout(call, delayMs);
    return () => clearTimeout(timer);
  }
};
function surroundings() {
  const scope = globalThis;
  return {
    WebSocket: scope.WebSocket,
    // Unbound, browsers refuse to call it.
    fetch: scope.fetch?.bind(scope) ?? null,
    clock: systemClock,
    random: Math.random,
    storage: localStorageIfAllowed(),
    page: scope.document ? browserPage : null,
    locks: scope.navigator?.locks ?? null,
    BroadcastChannel: scope.BroadcastChannel ?? null
  };
}
function localStorageIfAllowed() {
  try {
    return (globalThis.document && globalThis.localStorage) ?? null;
  } catch {
    return null;
  }
}
var browserPage = {
  onReturn: (call) => listen([
    [window, "online", call],
    [window, "pageshow", call],
    [document, "visibilitychange", () => document.visibilityState === "visible" && call()]
  ]),
  onLeave: (call) => listen([
    [window, "pagehide", call],
    [document, "visibilitychange", () => document.visibilityState === "hidden" && call()]
  ])
};
function listen(all) {
  for (const [target, name, call] of all) target.addEventListener(name, call);
  return () => {
    for (const [target, name, call] of all) target.removeEventListener(name, call);
  };
}

// sdk/src/seq.ts
var MAX = 2n ** 63n - 1n;
function toSeq(value) {
  if (typeof value === "number") {
    if (Number.isSafeInteger(value) && value >= 0) return value;
    throw new RangeError(
      `seq ${value} is not a whole number between 0 and 2^53 - 1; give larger ones as a bigint or a string of digits`
    );
  }
  if (typeof value === "string" && !/^\d{1,19}$/.test(value)) {
    throw new RangeError(`seq ${JSON.stringify(value.slice(0, 40))} is not a string of digits`);
  }
  const exact = BigInt(value);
  if (exact < 0n || exact > MAX) throw new RangeError(`seq ${exact} is not between 0 and 2^63 - 1`);
  return exact <= Number.MAX_SAFE_INTEGER ? Number(exact) : exact;
}
var TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
function parseExact(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const quoted = text.replace(
    TOKEN,
    (token) => /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token
  );
  return JSON.parse(quoted);
}

// sdk/src/frames.ts
var PROTOCOL = "badge.v1";
var FrameError = class extends Error {
  name = "FrameError";
};
function decodeFrame(text) {
  let json;
  try {
    json = parseExact(text);
  } catch {
    throw new FrameError("frame is not JSON");
  }
  const frame = new Fields(json, "frame");
  const t = frame.string("t");
  switch (t) {
    case "snapshot":
    case "changes":
      return {
        t,
        badge: {
          epoch: frame.string("epoch"),
          version: frame.count("version"),
          total: frame.count("total"),
          mentions: frame.count("mentions"),
          categories: frame.counts("categories")
        },
        conversations: frame.list("conversations").map(decodeConversation),
        more: frame.boolean("more", false),
        pingMs: frame.count("ping_ms", 0),
        expiresAt: frame.time("expires_at")
      };
    case "ok":
      return { t, id: frame.id(), expiresAt: frame.time("expires_at") };
    case "error":
      return {
        t,
        id: frame.id(),
        code: frame.string("code"),
        message: frame.string("message"),
        retryMs: frame.count("retry_ms", 0)
      };
    case "ping":
    case "pong":
      return { t };
    case "bye":
      return { t, code: frame.count("code"), reconnectMs: frame.count("reconnect_ms", 0) };
    default:
      return void 0;
  }
}
function decodeConversation(json) {
  const fields = new Fields(json, "conversation");
  return {
    conversationId: fields.string("conversation_id"),
    unread: fields.count("unread"),
    mentions: fields.count("mentions"),
    firstUnreadSeq: fields.seq("first_unread_seq"),
    readSeq: fields.seq("read_seq"),
    lastSeq: fields.seq("last_seq"),
    level: fields.string("level"),
    category: fields.string("category"),
    markedUnread: fields.boolean("marked_unread"),
    version: fields.count("version")
  };
}
function encodeHello(held) {
  return JSON.stringify({ t: "hello", epoch: held?.epoch, version: held?.version });
}
function encodeCommand(command) {
  const { t, id } = command;
  switch (t) {
    case "read":
      return `{"t":"read","id":"${id}","conversation_id":${JSON.stringify(command.conversationId)},"up_to_seq":${command.upToSeq}}`;
    case "read_all":
      return JSON.stringify({ t, id, category: command.category });
    case "mark_unread":
      return JSON.stringify({ t, id, conversation_id: command.conversationId });
  }
}
function encodeAuth(id, token) {
  return JSON.stringify({ t: "auth", id, token });
}
function encodeSnapshot({ badge, conversations, more }) {
  const listed = conversations.map(
    (conversation) => Object.fromEntries(
      Object.entries(conversation).map(([name, value]) => [
        name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        value
      ])
    )
  );
  return stringify({ t: "snapshot", ...badge, conversations: listed, more });
}
function stringify(value) {
  return JSON.stringify(value, (_, part) => typeof part === "bigint" ? String(part) : part);
}
var PING = '{"t":"ping"}';
var PONG = '{"t":"pong"}';
var Fields = class {
  #json;
  #name;
  constructor(json, name) {
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      throw new FrameError(`${name} is not an object`);
    }
    this.#json = json;
    this.#name = name;
  }
  string(field, absent) {
    const value = this.#json[field] ?? absent;
    return typeof value === "string" ? value : this.#refuse(field, "a string");
  }
  /** What a command was named; empty where the server speaks of none. */
  id() {
    const { id } = this.#json;
    return typeof id === "number" ? String(id) : this.string("id", "");
  }
  /** Milliseconds since 1970, or 0 where the field is absent or no time. */
  time(field) {
    return Date.parse(String(this.#json[field])) || 0;
  }
  boolean(field, absent) {
    const value = this.#json[field] ?? absent;
    return typeof value === "boolean" ? value : this.#refuse(field, "a boolean");
  }
  count(field, absent) {
    const value = this.#json[field] ?? absent;
    return isCount(value) ? value : this.#refuse(field, "a count");
  }
  counts(field) {
    const value = this.#json[field];
    if (typeof value !== "object" || value === null || !Object.values(value).every(isCount)) {
      return this.#refuse(field, "an object of counts");
    }
    return Object.assign(/* @__PURE__ */ Object.create(null), value);
  }
  list(field) {
    const value = this.#json[field];
    return Array.isArray(value) ? value : this.#refuse(field, "an array");
  }
  seq(field) {
    const value = this.#json[field];
    try {
      return toSeq(value);
    } catch {
      return this.#refuse(field, "a seq");
    }
  }
  #refuse(field, wanted) {
    throw new FrameError(`${field} of ${this.#name} is not ${wanted}`);
  }
};
function isCount(value) {
  return Number.isSafeInteger(value) && value >= 0;
}

// sdk/src/keeper.ts
var SAVE_MS = 1e3;
var Keeper = class {
  #name;
  #environment;
  #state;
  #cancelSave;
  /** Without a name it keeps nothing. */
  constructor(name, environment, state) {
    this.#name = name;
    this.#environment = environment;
    this.#state = state;
  }
  loadState() {
    return this.#read("state", (text) => {
      const frame = decodeFrame(text);
      return frame?.t === "snapshot" ? frame : void 0;
    });
  }
  loadCommands() {
    const commands = this.#read(
      "commands",
      (text) => JSON.parse(text).map(
        (command) => command.t === "read" ? { ...command, upToSeq: toSeq(command.upToSeq) } : command
      )
    );
    return commands ?? [];
  }
  /** Keeps the state, soon. */
  saveState() {
    this.#cancelSave ??= this.#environment.clock.after(SAVE_MS, () => this.flush());
  }
  saveCommands(commands) {
    this.#write("commands", commands.length > 0 ? stringify(commands) : void 0);
  }
  /** Keeps at once what was to be kept soon. */
  flush() {
    if (this.#cancelSave === void 0) return;
    this.#cancelSave();
    this.#cancelSave = void 0;
    const frame = this.#state();
    if (frame !== void 0) this.#write("state", encodeSnapshot(frame));
  }
  forget() {
    this.#cancelSave?.();
    this.#cancelSave = void 0;
    for (const part of ["state", "commands"]) this.#write(part, void 0);
  }
  #read(part, parse) {
    try {
      const text = this.#storage?.getItem(`${this.#name} ${part}`);
      return text ? parse(text) : void 0;
    } catch {
      return void 0;
    }
  }
  #write(part, text) {
    const key = `${this.#name} ${part}`;
    try {
      if (text === void 0) this.#storage?.removeItem(key);
      else this.#storage?.setItem(key, text);
    } catch {
    }
  }
  get #storage() {
    return this.#name === void 0 ? null : this.#environment.storage;
  }
};

// sdk/src/backoff.ts
var MAX_HINT_MS = 36e5;
var Backoff = class {
  #minMs;
  #maxMs;
  #random;
  #failures = 0;
  /** The first pause is below `minMs`, and each next bound twice the last, up to `maxMs`. */
  constructor(minMs, maxMs, random) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }
  /** The next pause in milliseconds, never shorter than what the server asked for. */
  next(hintMs) {
    const bound = Math.min(this.#maxMs, this.#minMs * 2 ** this.#failures++);
    return Math.min(hintMs, MAX_HINT_MS) + Math.floor(this.#random() * bound);
  }
  /** Starts over, after a connection that lasted. */
  reset() {
    this.#failures = 0;
  }
};

// sdk/src/closing.ts
var CloseCode = {
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
  Resync: 4203
};
function isRefusal(code) {
  return code >= CloseCode.BadToken && code <= CloseCode.NoCommonSubprotocol;
}
function reasonOf(code) {
  const name = Object.entries(CloseCode).find(([, known]) => known === code)?.[0];
  if (name === void 0) return code === 1006 ? "connection lost" : `close code ${code}`;
  return name.replace(/\B[A-Z]/g, " $&").toLowerCase();
}

// sdk/src/connection.ts
var PONG_TIMEOUT_MS = 1e4;
var CONNECT_TIMEOUT_MS = 15e3;
var PING_MS = 25e3;
var MAX_PING_MS = 36e5;
var MAX_TIMER_MS = 2 ** 31 - 1;
var AUTH_ID = "auth";
var WRONG_CLOCK_REFRESH_MS = 6e4;
var Connection = class {
  #options;
  #socket;
  #ended = false;
  #pingMs = PING_MS;
  #onlineSince;
  // Each takes its timer back.
  #cancelDeadline;
  #cancelPing = () => {
  };
  #cancelRefresh = () => {
  };
  constructor(options) {
    this.#options = options;
    this.#cancelDeadline = options.clock.after(
      CONNECT_TIMEOUT_MS,
      () => this.#end(0, "no answer from the server")
    );
    void this.#open();
  }
  /** Since the first state arrived; 0 before. */
  get onlineMs() {
    return this.#onlineSince === void 0 ? 0 : this.#options.clock.now() - this.#onlineSince;
  }
  /** Sends a frame. To be called only after the first state arrived. */
  send(frame) {
    this.#socket?.send(frame);
  }
  /** Makes sure soon that the connection is not dead, as after a sleep. */
  probe() {
    if (this.#onlineSince === void 0 || !this.#options.pings) return;
    this.#cancelPing();
    this.#cancelDeadline();
    this.#ping();
  }
  /** Ends the connection from this side, without a call of `onEnd`. */
  close() {
    this.#release("client stopped");
  }
  async #open() {
    const { open, token, held } = this.#options;
    let credential;
    try {
      credential = await token(false);
    } catch (error) {
      this.#end(0, `no token: ${messageOf(error)}`);
      return;
    }
    if (this.#ended) return;
    let socket;
    try {
      socket = open(credential);
    } catch (error) {
      this.#end(0, `cannot connect: ${messageOf(error)}`);
      return;
    }
    this.#socket = socket;
    socket.onopen = () => {
      if (!this.#ended) socket.send(encodeHello(held()));
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = ({ code, reason }) => this.#end(code, reason || reasonOf(code));
    socket.onerror = () => {
    };
  }
  #receive(data) {
    if (this.#ended) return;
    let frame;
    try {
      if (typeof data !== "string") throw new TypeError("frame is not text");
      frame = decodeFrame(data);
    } catch (error) {
      this.#end(0, `protocol error: ${messageOf(error)}`);
      return;
    }
    if (this.#onlineSince !== void 0) {
      this.#cancelDeadline();
      if (!this.#options.pings) this.#awaitWord(2.5 * this.#pingMs);
    }
    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        if (frame.id !== AUTH_ID) this.#options.onAnswer(frame);
        else if (frame.t === "ok") this.#refreshBefore(frame.expiresAt);
        break;
      case "ping":
        this.send(PONG);
        break;
      case "bye":
        this.#end(frame.code, reasonOf(frame.code), frame.reconnectMs);
        break;
    }
  }
  #receiveState(frame) {
    if (frame.pingMs > 0) this.#pingMs = Math.min(frame.pingMs, MAX_PING_MS);
    if (this.#onlineSince === void 0) {
      this.#onlineSince = this.#options.clock.now();
      this.#cancelDeadline();
      if (this.#options.pings) this.#schedulePing();
      else this.#awaitWord(2.5 * this.#pingMs);
      this.#refreshBefore(frame.expiresAt);
    }
    if (!this.#options.onState(frame)) this.#end(0, "state of another epoch");
  }
  #schedulePing() {
    this.#cancelPing = this.#options.clock.after(this.#pingMs, () => this.#ping());
  }
  #ping() {
    this.send(PING);
    this.#awaitWord(Math.min(PONG_TIMEOUT_MS, this.#pingMs));
    this.#schedulePing();
  }
  #awaitWord(timeoutMs) {
    this.#cancelDeadline = this.#options.clock.after(
      timeoutMs,
      () => this.#end(0, "connection dead: no pong")
    );
  }
  /**
   * Plans to bring a fresh token when some four fifths of this one's time have
   * passed, not all clients at once. Where that fails, the server ends the
   * connection, and the next one brings a fresh token.
   */
  #refreshBefore(expiresAt) {
    const { clock, random, token, pings } = this.#options;
    if (expiresAt === 0 || !pings) return;
    const leftMs = expiresAt - clock.date();
    const delayMs = leftMs > 0 ? leftMs * (0.75 + random() / 10) : WRONG_CLOCK_REFRESH_MS;
    this.#cancelRefresh = clock.after(Math.min(delayMs, MAX_TIMER_MS), async () => {
      const fresh = await token(true).catch(() => void 0);
      if (fresh !== void 0 && !this.#ended) this.send(encodeAuth(AUTH_ID, fresh));
    });
  }
  #end(code, reason, reconnectMs = 0) {
    const unheard = this.#socket !== void 0 && this.#onlineSince === void 0 && code < CloseCode.BadToken;
    if (this.#release(reason)) this.#options.onEnd({ code, reason, reconnectMs, unheard });
  }
  #release(reason) {
    if (this.#ended) return false;
    this.#ended = true;
    this.#cancelDeadline();
    this.#cancelPing();
    this.#cancelRefresh();
    this.#socket?.close(1e3, reason.replace(/[^ -~]/g, "?").slice(0, 123));
    return true;
  }
};
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

// sdk/src/eventstream.ts
var EventStream = class {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  #fetch;
  #base;
  #authorization;
  #abort = new AbortController();
  /** `base` is where the server's routes are, with a slash at its end. */
  constructor(fetcher, base, token) {
    this.#fetch = fetcher;
    this.#base = base;
    this.#authorization = `Bearer ${token}`;
    queueMicrotask(() => this.onopen?.({}));
  }
  send(data) {
    const frame = JSON.parse(data);
    if (frame.t === "hello") void this.#listen(frame);
    else if (frame.id !== void 0 && frame.t !== "auth") void this.#post(frame.id, data);
  }
  close() {
    this.#abort.abort();
  }
  async #listen({ epoch, version }) {
    try {
      const { ok, status, headers, body } = await this.#fetch(`${this.#base}v1/sse`, {
        headers: {
          Accept: "text/event-stream",
          Authorization: this.#authorization,
          ...epoch === void 0 ? {} : { "Last-Event-ID": `${epoch}:${version}` }
        },
        cache: "no-store",
        signal: this.#abort.signal
      });
      if (!ok || body === null) {
        this.#tell({ t: "bye", code: closeCode(status), reconnect_ms: retryAfter(headers) });
        return;
      }
      await this.#read(body);
    } catch {
    }
    this.onclose?.({ code: 1006, reason: "" });
  }
  async #read(body) {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (; ; ) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const events = text.split(/\r?\n\r?\n/);
      text = events.pop() ?? "";
      for (const event of events) {
        const data = event.match(/^data:.*/gm)?.map((line) => line.slice(5).trim());
        this.#tell(data?.join("\n") ?? PING);
      }
    }
  }
  async #post(id, body) {
    let message = "no answer";
    let retryMs = 1500;
    let code = "unavailable";
    try {
      const response = await this.#fetch(`${this.#base}v1/commands`, {
        method: "POST",
        headers: { Authorization: this.#authorization, "Content-Type": "application/json" },
        body,
        signal: this.#abort.signal
      });
      const answer = await response.text();
      if (response.ok) {
        this.#tell(answer);
        return;
      }
      message = JSON.parse(answer).detail ?? message;
      if (response.status === 404) code = "not_found";
      else if ([400, 413, 422].includes(response.status)) code = "invalid";
      retryMs = code === "unavailable" ? retryAfter(response.headers) || retryMs : 0;
    } catch {
    }
    this.#tell({ t: "error", id, code, message, retry_ms: retryMs });
  }
  #tell(frame) {
    if (this.#abort.signal.aborted) return;
    const data = typeof frame === "string" ? frame : JSON.stringify(frame);
    this.onmessage?.({ data });
  }
};
function closeCode(status) {
  if (status === 401) return 4202;
  if (status === 403) return 4003;
  return status === 429 || status === 503 ? 4100 : 1006;
}
function retryAfter(headers) {
  return Math.trunc(Number(headers.get("Retry-After")) * 1e3) || 0;
}

// sdk/src/link.ts
var LASTING_MS = 1e4;
var DEAF_TRIES = 2;
var Link = class {
  #options;
  #backoff;
  #connection;
  #tokenExpired = false;
  #streams = false;
  #deaf = 0;
  #mayHurry = false;
  #cancelRetry = () => {
  };
  constructor(options) {
    this.#options = options;
    const { minBackoffMs, maxBackoffMs, environment } = options;
    this.#backoff = new Backoff(minBackoffMs, maxBackoffMs, environment.random);
  }
  /** Connects. To be called only once before each stop or refusal. */
  start() {
    const { environment, base, token, held, onState, onAnswer, onStatus } = this.#options;
    const { WebSocket, fetch, clock, random } = environment;
    this.#mayHurry = false;
    const streams = this.#streams && fetch !== null;
    const connection = new Connection({
      open: (credential) => streams ? new EventStream(fetch, base, credential) : (
        // Browsers can send no Authorization header, and URLs end up in logs.
        new WebSocket(`${base.replace(/^http/, "ws")}v1/ws`, [
          PROTOCOL,
          `bearer.${credential}`
        ])
      ),
      pings: !streams,
      clock,
      random,
      // async, so that a function that throws is one that rejects.
      token: async (fresh) => token({ expired: fresh || this.#tokenExpired }),
      held,
      onState: (frame) => {
        this.#tokenExpired = false;
        this.#deaf = 0;
        return onState(frame);
      },
      onAnswer,
      onEnd: (ended) => this.#reconnect(connection, ended)
    });
    this.#connection = connection;
    onStatus({ state: "connecting" });
  }
  stop() {
    this.#mayHurry = false;
    this.#cancelRetry();
    this.#connection?.close();
    this.#connection = void 0;
    this.#backoff.reset();
  }
  /** Sends a frame. To be called only while online. */
  send(frame) {
    this.#connection?.send(frame);
  }
  /** The user or the network is back: look at once, unless the server asked for a pause. */
  hurry() {
    this.#connection?.probe();
    if (!this.#mayHurry) return;
    this.#cancelRetry();
    this.start();
  }
  #reconnect(connection, { code, reason, reconnectMs, unheard }) {
    const { onStatus, fallback, environment } = this.#options;
    this.#connection = void 0;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    if (fallback && unheard && ++this.#deaf % DEAF_TRIES === 0) this.#streams = !this.#streams;
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();
    if (isRefusal(code)) {
      this.#backoff.reset();
      onStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#mayHurry = reconnectMs === 0;
    this.#cancelRetry = environment.clock.after(retryMs, () => this.start());
    onStatus({ state: "waiting", retryMs, code, reason });
  }
};

// sdk/src/outbox.ts
var MOST_IN_FLIGHT = 32;
var BadgedError = class extends Error {
  name = "BadgedError";
  /** The code of the server's error, or `forgotten` after {@link Badged.forget}. */
  code;
  constructor(code, message) {
    super(message);
    this.code = code;
  }
};
var Outbox = class {
  #options;
  #entries = [];
  #send;
  constructor(options) {
    this.#options = options;
  }
  /** What waits, in order. A `read_all` that would come too late is the reads that it meant. */
  get commands() {
    return this.#entries.flatMap(
      ({ command, reads }) => command.t === "read_all" ? reads : command
    );
  }
  /**
   * Takes in a command, and resolves once the server has it for good. One that
   * is known, or that adds nothing to one that was not yet sent, shares that
   * one's fate. A `read_all` brings along the reads that it stands for.
   */
  add(command, reads = []) {
    const known = this.#entries.find(({ command: { id } }) => id === command.id);
    const entry = known ?? this.#merge(command) ?? this.#append(command, reads);
    this.#options.onChange();
    this.#flush();
    return entry.settled;
  }
  /** There is a way to the server: everything is sent, in order. */
  open(send) {
    this.#send = send;
    for (const entry of this.#entries) entry.busy = false;
    this.#flush();
  }
  /**
   * The way is lost, and with it the answers. A `read_all` that comes later
   * would read what the user has not seen, so it becomes reads up to what the
   * user had.
   */
  close() {
    this.#send = void 0;
    const entries = this.#entries;
    this.#entries = [];
    for (const entry of entries) {
      if (entry.command.t !== "read_all") {
        this.#entries.push(entry);
        continue;
      }
      const all = entry.reads.map((read) => this.#append(read, []).settled);
      void Promise.all(all).then(entry.resolve, entry.reject);
    }
    this.#options.onChange();
  }
  answer(answer) {
    const entry = this.#entries.find(({ command }) => command.id === answer.id);
    if (entry === void 0) return;
    if (answer.t === "error" && answer.retryMs > 0) {
      const { tries } = entry;
      this.#options.clock.after(answer.retryMs, () => {
        if (entry.tries === tries) entry.busy = false;
        this.#flush();
      });
      return;
    }
    this.#entries = this.#entries.filter((other) => other !== entry);
    if (answer.t === "ok") entry.resolve();
    else entry.reject(new BadgedError(answer.code, answer.message));
    this.#options.onChange();
    this.#flush();
  }
  /** Drops everything. */
  clear() {
    const entries = this.#entries;
    this.#entries = [];
    for (const { reject } of entries)
      reject(new BadgedError("forgotten", "client was told to forget"));
    this.#options.onChange();
  }
  /** The last entry of the conversation, if it says the same or is made to. */
  #merge(command) {
    if (command.t === "read_all") return void 0;
    const last = this.#entries.filter(({ command: other }) => [void 0, about(command)].includes(about(other))).at(-1);
    if (last === void 0 || last.tries > 0 || last.command.t !== command.t) return void 0;
    if (command.t === "read" && last.command.t === "read" && command.upToSeq > last.command.upToSeq) {
      last.command = command;
    }
    return last;
  }
  #append(command, reads) {
    let resolve = () => {
    };
    let reject = (_) => {
    };
    const settled = new Promise((yes, no) => {
      resolve = yes;
      reject = no;
    });
    settled.catch(() => {
    });
    const entry = { command, reads, tries: 0, busy: false, settled, resolve, reject };
    this.#entries.push(entry);
    return entry;
  }
  #flush() {
    const ahead = /* @__PURE__ */ new Set();
    for (const entry of [...this.#entries]) {
      if (this.#send === void 0 || ahead.size >= MOST_IN_FLIGHT) return;
      const id = about(entry.command);
      const blocked = ahead.has(void 0) || ahead.has(id) || id === void 0 && ahead.size > 0;
      ahead.add(id);
      if (blocked || entry.busy) continue;
      entry.busy = true;
      entry.tries++;
      this.#send(entry.command, entry.reads);
    }
  }
};
function about(command) {
  return command.t === "read_all" ? void 0 : command.conversationId;
}
function randomId() {
  return "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) => {
    const [random = 0] = crypto.getRandomValues(new Uint8Array(1));
    return (Number(digit) ^ random & 15 >> Number(digit) / 4).toString(16);
  });
}

// sdk/src/state.ts
var State = class {
  #badge;
  #conversations = /* @__PURE__ */ new Map();
  #more = false;
  /** Undefined before the first snapshot. */
  get badge() {
    return this.#badge;
  }
  get conversations() {
    return this.#conversations;
  }
  /** The last snapshot left out conversations, so their sum is not the total. */
  get more() {
    return this.#more;
  }
  /** All of it as a frame; undefined before the first snapshot. */
  get snapshot() {
    if (this.#badge === void 0) return void 0;
    const conversations = [...this.#conversations.values()].filter(
      ({ unread, markedUnread }) => unread > 0 || markedUnread
    );
    const [badge, more] = [this.#badge, this.#more];
    return { t: "snapshot", badge, conversations, more, pingMs: 0, expiresAt: 0 };
  }
  /**
   * Takes in a frame, if it is newer: versions compare within an epoch, and a
   * snapshot of another epoch replaces everything.
   */
  apply(frame) {
    const held = this.#badge;
    if (held?.epoch !== frame.badge.epoch) {
      if (frame.t === "changes") return "foreign";
    } else if (frame.badge.version <= held.version) {
      return "stale";
    }
    const conversations = frame.t === "snapshot" ? this.#replace(frame) : this.#merge(frame);
    this.#badge = frame.badge;
    return {
      badge: held !== void 0 && sameNumbers(held, frame.badge) ? void 0 : frame.badge,
      conversations
    };
  }
  #merge(frame) {
    const changed = frame.conversations.filter(
      ({ conversationId, version }) => version > (this.#conversations.get(conversationId)?.version ?? -1)
    );
    for (const conversation of changed) {
      this.#conversations.set(conversation.conversationId, conversation);
    }
    return changed;
  }
  #replace(frame) {
    const before = this.#conversations;
    const sameEpoch = this.#badge?.epoch === frame.badge.epoch;
    this.#conversations = new Map(frame.conversations.map((c) => [c.conversationId, c]));
    this.#more = frame.more;
    const changed = frame.conversations.filter((c) => {
      const held = before.get(c.conversationId);
      return !sameEpoch || held?.version !== c.version;
    });
    for (const held of before.values()) {
      if (!this.#conversations.has(held.conversationId)) changed.push(emptied(held));
    }
    return changed;
  }
};
function emptied(conversation) {
  return { ...conversation, unread: 0, mentions: 0, firstUnreadSeq: 0, markedUnread: false };
}
function sameNumbers(a, b) {
  const names = Object.keys(a.categories);
  return a.total === b.total && a.mentions === b.mentions && names.length === Object.keys(b.categories).length && names.every((name) => a.categories[name] === b.categories[name]);
}

// sdk/src/tabs.ts
var Tabs = class {
  #name;
  #environment;
  #onLead;
  #onMessage;
  #channel;
  #leads = false;
  #leave = () => {
  };
  /** Without a name, or in browsers that cannot share, every tab leads. */
  constructor(name, environment, onLead, onMessage) {
    this.#name = name;
    this.#environment = environment;
    this.#onLead = onLead;
    this.#onMessage = onMessage;
  }
  get leads() {
    return this.#leads;
  }
  join() {
    const { locks, BroadcastChannel } = this.#environment;
    if (this.#name === void 0 || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const channel = new BroadcastChannel(this.#name);
    channel.onmessage = ({ data }) => this.#onMessage(data);
    this.#channel = channel;
    const left = new AbortController();
    this.#leave = () => left.abort();
    const until = new Promise(
      (resolve) => left.signal.addEventListener("abort", () => resolve())
    );
    locks.request(this.#name, { signal: left.signal }, () => {
      if (!left.signal.aborted) this.#lead();
      return until;
    }).catch(() => {
    });
  }
  /** Lets another tab lead, and hears no more. */
  leave() {
    this.#leads = false;
    this.#leave();
    this.#channel?.close();
    this.#channel = void 0;
  }
  post(message) {
    this.#channel?.postMessage(message);
  }
  #lead() {
    this.#leads = true;
    this.#onLead();
  }
};

// sdk/src/client.ts
var Badged = class {
  #emitter = new Emitter();
  #environment;
  #keeper;
  #outbox;
  #link;
  #tabs;
  #state = new State();
  #status = { state: "stopped" };
  /** The kept state was not told yet. */
  #untold;
  /** There is another tab that leads. */
  #follows = false;
  #ignorePage = () => {
  };
  /** @throws TypeError if the URL is not one, or where there is no WebSocket. */
  constructor(options) {
    const base = baseURL(options.url);
    const environment = { ...surroundings(), ...options };
    if (environment.WebSocket === void 0) {
      throw new TypeError("there is no global WebSocket here: give one in the options");
    }
    const name = options.user === void 0 ? void 0 : `badged ${base} ${options.user}`;
    this.#environment = environment;
    this.#keeper = new Keeper(name, environment, () => this.#state.snapshot);
    this.#outbox = new Outbox({
      clock: environment.clock,
      onChange: () => {
        if (this.#tabs.leads) this.#keeper.saveCommands(this.#outbox.commands);
      }
    });
    this.#link = new Link({
      environment,
      base,
      token: options.token,
      minBackoffMs: options.minBackoffMs ?? 500,
      maxBackoffMs: options.maxBackoffMs ?? 3e4,
      fallback: options.fallback ?? true,
      held: () => this.#state.badge,
      onState: (frame) => this.#receive(frame),
      onAnswer: (answer) => this.#outbox.answer(answer),
      onStatus: (status) => this.#lose(status)
    });
    this.#tabs = new Tabs(
      name,
      environment,
      () => this.#lead(),
      (message) => this.#hear(message)
    );
    const kept = this.#keeper.loadState();
    if (kept !== void 0) this.#state.apply(kept);
    this.#untold = kept !== void 0;
  }
  /** The badge as last heard; undefined before the first state. */
  get badge() {
    return this.#state.badge;
  }
  /** The conversations that have or had something to show, by id. */
  get conversations() {
    return this.#state.conversations;
  }
  /**
   * The user has more conversations with something to show than the server
   * sends at once; page through the HTTP API for them. The total counts them.
   */
  get more() {
    return this.#state.more;
  }
  get status() {
    return this.#status;
  }
  /** How many things that the user did the server does not yet have for good. */
  get waiting() {
    return this.#outbox.commands.length;
  }
  /** Calls the listener at every such event, until the returned function is called. */
  on(event, listener) {
    return this.#emitter.on(event, listener);
  }
  /**
   * Connects, and stays connected until `stop` or a refusal. A state that was
   * kept from the last visit is told at once.
   */
  start() {
    const { state } = this.#status;
    if (state !== "stopped" && state !== "refused") return;
    if (this.#untold && this.badge !== void 0)
      this.#tell(this.badge, this.conversations.values());
    this.#untold = false;
    const { page } = this.#environment;
    const ignoreReturn = page?.onReturn(() => this.#tabs.leads && this.#link.hurry());
    const ignoreLeave = page?.onLeave(() => this.#keeper.flush());
    this.#ignorePage = () => {
      ignoreReturn?.();
      ignoreLeave?.();
    };
    this.#tabs.join();
    if (!this.#tabs.leads) {
      this.#setStatus({ state: "connecting" });
      this.#tabs.post({ m: "hello" });
    }
  }
  /** Disconnects. The state stays, and what the user did waits for the next `start`. */
  stop() {
    if (this.#status.state === "stopped") return;
    this.#link.stop();
    this.#leave();
    this.#setStatus({ state: "stopped" });
  }
  /**
   * Stops, here and in the user's other tabs, and leaves nothing in the
   * browser: for when the user signs out.
   */
  forget() {
    this.#tabs.post({ m: "forget" });
    this.#forget();
  }
  #forget() {
    this.stop();
    this.#state = new State();
    this.#outbox.clear();
    this.#keeper.forget();
  }
  /**
   * Says that the user has read a conversation up to a message, and resolves
   * once the server has that for good; the numbers follow as events. Without a
   * connection it waits for the next one.
   *
   * It rejects with a {@link BadgedError} if the server refuses it, and with a
   * RangeError for what is not a seq.
   */
  async read(conversationId, upToSeq) {
    await this.#outbox.add(readUpTo(conversationId, toSeq(upToSeq)));
  }
  /**
   * Says that the user has read everything, or everything of a category, that
   * there is by now. Without a connection that is what this client holds: later
   * messages, and conversations beyond {@link Badged.more}, stay unread.
   */
  async readAll(category) {
    const reads = [...this.conversations.values()].filter(({ unread, markedUnread }) => unread > 0 || markedUnread).filter((conversation) => category === void 0 || conversation.category === category).map(({ conversationId, lastSeq }) => readUpTo(conversationId, lastSeq));
    if (this.#status.state !== "online") {
      await Promise.all(reads.map((read) => this.#outbox.add(read)));
      return;
    }
    const all = { t: "read_all", id: randomId() };
    await this.#outbox.add(category === void 0 ? all : { ...all, category }, reads);
  }
  /** Says that the conversation is to count at least 1 until it is read. */
  async markUnread(conversationId) {
    await this.#outbox.add({ t: "mark_unread", id: randomId(), conversationId });
  }
  /** This tab has the connection from now on. */
  #lead() {
    this.#follows = false;
    const left = this.#keeper.loadCommands();
    this.#outbox.close();
    for (const command of left) void this.#outbox.add(command);
    this.#tabs.post({ m: "status", status: { state: "connecting" }, elected: true });
    this.#link.start();
  }
  #leave() {
    this.#keeper.flush();
    this.#ignorePage();
    this.#tabs.leave();
    this.#follows = false;
    this.#outbox.close();
  }
  /** Takes in a state frame of the server's. */
  #receive(frame) {
    const base = this.badge?.version ?? 0;
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;
    if (applied !== "stale") {
      this.#keeper.saveState();
      this.#tabs.post({ m: "state", frame, base });
    }
    if (this.#status.state !== "online") {
      this.#setStatus({ state: "online" });
      this.#outbox.open((command) => this.#link.send(encodeCommand(command)));
    }
    if (applied !== "stale") this.#tell(applied.badge, applied.conversations);
    return true;
  }
  /** There is no connection, for now or for good. */
  #lose(status) {
    this.#outbox.close();
    if (status.state === "refused") this.#leave();
    this.#setStatus(status);
  }
  /** Takes in what another tab says. */
  #hear(message) {
    const { leads } = this.#tabs;
    if (message.m === "forget") this.#forget();
    else if (message.m === "hello" || message.m === "command") {
      if (leads) this.#serve(message);
    } else if (!leads) {
      this.#follow(message);
    }
  }
  #serve(message) {
    if (message.m === "hello") {
      const frame = this.#state.snapshot;
      if (frame !== void 0) this.#tabs.post({ m: "state", frame, base: 0 });
      this.#tabs.post({ m: "status", status: this.#status, elected: false });
      return;
    }
    const { id } = message.command;
    this.#outbox.add(message.command, message.reads).then(
      () => this.#tabs.post({ m: "answer", answer: { t: "ok", id, expiresAt: 0 } }),
      ({ code, message: message2 }) => this.#tabs.post({ m: "answer", answer: { t: "error", id, code, message: message2, retryMs: 0 } })
    );
  }
  #follow(message) {
    if (message.m === "answer") {
      this.#outbox.answer(message.answer);
    } else if (message.m === "status") {
      if (message.elected || !this.#follows) {
        this.#follows = true;
        this.#outbox.close();
        this.#outbox.open((command, reads) => this.#tabs.post({ m: "command", command, reads }));
      }
      this.#setStatus(message.status);
    } else {
      const { frame, base } = message;
      const held = this.badge;
      const complete = frame.t === "snapshot" || held?.epoch === frame.badge.epoch && held.version >= base;
      const applied = complete ? this.#state.apply(frame) : "foreign";
      if (applied === "foreign") this.#tabs.post({ m: "hello" });
      else if (applied !== "stale") this.#tell(applied.badge, applied.conversations);
    }
  }
  #tell(badge, conversations) {
    for (const conversation of conversations) this.#emitter.emit("conversation", conversation);
    if (badge !== void 0) this.#emitter.emit("total", badge);
  }
  #setStatus(status) {
    this.#status = status;
    if (this.#tabs.leads) this.#tabs.post({ m: "status", status, elected: false });
    this.#emitter.emit("status", status);
  }
};
function readUpTo(conversationId, upToSeq) {
  return { t: "read", id: randomId(), conversationId, upToSeq };
}
function baseURL(text) {
  const url = new URL(text);
  url.protocol = url.protocol.replace(/^ws/, "http");
  if (!/^https?:$/.test(url.protocol))
    throw new TypeError(`URL ${text} is neither http(s) nor ws(s)`);
  url.pathname = url.pathname.replace(/\/?$/, "/");
  url.search = "";
  url.hash = "";
  return url.href;
}

// sdk/src/display.ts
function formatCount(count, most = 99) {
  if (count <= 0) return "";
  return count > most ? `${most}+` : String(count);
}
function showInTitle(client) {
  const show = (count) => {
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = count === "" ? title : `(${count}) ${title}`;
  };
  return follow(client, (total) => show(formatCount(total)));
}
function showOnApp(client) {
  const { navigator } = globalThis;
  return follow(client, (total) => void navigator.setAppBadge?.(total).catch(() => {
  }));
}
function showOnFavicon(client, options = {}) {
  const link = document.querySelector('link[rel~="icon"]') ?? document.head.appendChild(Object.assign(document.createElement("link"), { rel: "icon" }));
  const { href, type } = link;
  const image = new Image();
  image.src = options.icon ?? (href || "/favicon.ico");
  let latest = "";
  const show = async (count) => {
    latest = count;
    await image.decode().catch(() => {
    });
    if (count !== latest) return;
    link.type = count === "" ? type : "image/png";
    link.href = count === "" ? href : drawFavicon(image, count, options);
  };
  return follow(client, (total) => void show(formatCount(total)));
}
var SIDE = 64;
function drawFavicon(image, count, options) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d");
  if (context === null) return image.src;
  if (image.naturalWidth > 0) context.drawImage(image, 0, 0, SIDE, SIDE);
  context.font = "bold 34px system-ui, sans-serif";
  const height = 42;
  const width = Math.min(SIDE, Math.max(height, context.measureText(count).width + 18));
  context.fillStyle = options.color ?? "#e5251b";
  context.beginPath();
  context.roundRect(SIDE - width, SIDE - height, width, height, height / 2);
  context.fill();
  context.fillStyle = options.textColor ?? "#fff";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(count, SIDE - width / 2, SIDE - height / 2 + 2, width - 8);
  return canvas.toDataURL();
}
function follow(client, show) {
  show(client.badge?.total ?? 0);
  const stop = client.on("total", ({ total }) => show(total));
  return () => {
    stop();
    show(0);
  };
}
export {
  Badged,
  BadgedError,
  CloseCode,
  formatCount,
  showInTitle,
  showOnApp,
  showOnFavicon,
  toSeq
};
