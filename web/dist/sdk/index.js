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
var REASONS = {
  1e3: "closed",
  1001: "server going away",
  1006: "connection lost",
  [CloseCode.BadToken]: "bad token",
  [CloseCode.ProtocolError]: "protocol error",
  [CloseCode.Forbidden]: "forbidden",
  [CloseCode.NoCommonSubprotocol]: "no common subprotocol",
  [CloseCode.OverCapacity]: "server over capacity",
  [CloseCode.RateLimited]: "rate limited",
  [CloseCode.TooManyConnections]: "too many connections of this user",
  [CloseCode.TooSlow]: "too slow",
  [CloseCode.Draining]: "server draining",
  [CloseCode.NoPong]: "no pong",
  [CloseCode.TokenExpired]: "token expired",
  [CloseCode.Resync]: "resync"
};
function reasonOf(code) {
  return REASONS[code] ?? `close code ${code}`;
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
        pingMs: frame.count("ping_ms", 0)
      };
    case "ok":
      return { t, id: frame.count("id") };
    case "error":
      return {
        t,
        id: frame.count("id", 0),
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
function encodeRead(id, conversationId, upToSeq) {
  return `{"t":"read","id":${id},"conversation_id":${JSON.stringify(conversationId)},"up_to_seq":${upToSeq}}`;
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
  string(field) {
    const value = this.#json[field];
    return typeof value === "string" ? value : this.#refuse(field, "a string");
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

// sdk/src/connection.ts
var PONG_TIMEOUT_MS = 1e4;
var CONNECT_TIMEOUT_MS = 15e3;
var PING_MS = 25e3;
var MAX_PING_MS = 36e5;
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
  /** Ends the connection from this side, without a call of `onEnd`. */
  close() {
    this.#release("client stopped");
  }
  async #open() {
    const { WebSocket, url, token, held } = this.#options;
    let credential;
    try {
      credential = await token();
    } catch (error) {
      this.#end(0, `no token: ${messageOf(error)}`);
      return;
    }
    if (this.#ended) return;
    let socket;
    try {
      socket = new WebSocket(url, [PROTOCOL, `bearer.${credential}`]);
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
    if (this.#onlineSince !== void 0) this.#cancelDeadline();
    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        this.#options.onAnswer(frame);
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
      this.#schedulePing();
    }
    if (!this.#options.onState(frame)) this.#end(0, "state of another epoch");
  }
  #schedulePing() {
    const { clock } = this.#options;
    this.#cancelPing = clock.after(this.#pingMs, () => {
      this.send(PING);
      this.#cancelDeadline = clock.after(
        Math.min(PONG_TIMEOUT_MS, this.#pingMs),
        () => this.#end(0, "connection dead: no pong")
      );
      this.#schedulePing();
    });
  }
  #end(code, reason, reconnectMs = 0) {
    if (this.#release(reason)) this.#options.onEnd({ code, reason, reconnectMs });
  }
  #release(reason) {
    if (this.#ended) return false;
    this.#ended = true;
    this.#cancelDeadline();
    this.#cancelPing();
    this.#socket?.close(1e3, reason.replace(/[^ -~]/g, "?").slice(0, 123));
    return true;
  }
};
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

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
  after(delayMs, call) {
    const timer = setTimeout(call, delayMs);
    return () => clearTimeout(timer);
  }
};

// sdk/src/requests.ts
var BadgedError = class extends Error {
  name = "BadgedError";
  /**
   * `offline` where there was no connection, or it was lost before the answer;
   * otherwise the code of the server's error.
   */
  code;
  /** When to try again, in milliseconds; 0 where the server does not say. */
  retryMs;
  constructor(code, message, retryMs = 0) {
    super(message);
    this.code = code;
    this.retryMs = retryMs;
  }
};
var Requests = class {
  #lastId = 0;
  #waiting = /* @__PURE__ */ new Map();
  /** Sends a read, and waits for its answer. */
  read(send, conversationId, upToSeq) {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      send(encodeRead(id, conversationId, upToSeq));
    });
  }
  answer(frame) {
    const waiting = this.#waiting.get(frame.id);
    if (waiting === void 0) return;
    this.#waiting.delete(frame.id);
    if (frame.t === "ok") waiting.resolve();
    else waiting.reject(new BadgedError(frame.code, frame.message, frame.retryMs));
  }
  /** The connection is gone: no answer will come. */
  rejectAll() {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(offline());
  }
};
function offline() {
  return new BadgedError("offline", "no connection to the server");
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

// sdk/src/client.ts
var LASTING_MS = 1e4;
var Badged = class {
  #url;
  #options;
  #WebSocket;
  #clock;
  #backoff;
  #state = new State();
  #requests = new Requests();
  #emitter = new Emitter();
  #status = { state: "stopped" };
  #connection;
  #tokenExpired = false;
  #cancelRetry = () => {
  };
  /** @throws TypeError if the URL is not one, or where there is no WebSocket. */
  constructor(options) {
    this.#options = options;
    this.#url = socketURL(options.url);
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (this.#WebSocket === void 0) {
      throw new TypeError("there is no global WebSocket here: give one in the options");
    }
    this.#clock = options.clock ?? systemClock;
    this.#backoff = new Backoff(
      options.minBackoffMs ?? 500,
      options.maxBackoffMs ?? 3e4,
      options.random ?? Math.random
    );
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
  /** Calls the listener at every such event, until the returned function is called. */
  on(event, listener) {
    return this.#emitter.on(event, listener);
  }
  /** Connects, and stays connected until `stop` or a refusal. */
  start() {
    const { state } = this.#status;
    if (state === "stopped" || state === "refused") this.#connect();
  }
  /** Disconnects. The state stays. */
  stop() {
    if (this.#status.state === "stopped") return;
    this.#cancelRetry();
    this.#connection?.close();
    this.#connection = void 0;
    this.#backoff.reset();
    this.#requests.rejectAll();
    this.#setStatus({ state: "stopped" });
  }
  /**
   * Says that the user has read a conversation up to a message, and resolves
   * once the server has that for good; the numbers follow as events.
   *
   * It rejects with a {@link BadgedError} if the server refuses, and if there
   * is no connection or it is lost before the answer. The read may then have
   * arrived all the same: sending it again is harmless. It rejects with a
   * RangeError for what is not a seq.
   */
  async read(conversationId, upToSeq) {
    const seq = toSeq(upToSeq);
    const connection = this.#connection;
    if (connection === void 0 || this.#status.state !== "online") throw offline();
    await this.#requests.read((frame) => connection.send(frame), conversationId, seq);
  }
  #connect() {
    const connection = new Connection({
      url: this.#url,
      WebSocket: this.#WebSocket,
      clock: this.#clock,
      // async, so that a function that throws is one that rejects.
      token: async () => this.#options.token({ expired: this.#tokenExpired }),
      held: () => this.#state.badge,
      onState: (frame) => this.#receive(frame),
      onAnswer: (frame) => this.#requests.answer(frame),
      onEnd: (ended) => this.#reconnect(connection, ended)
    });
    this.#connection = connection;
    this.#setStatus({ state: "connecting" });
  }
  #receive(frame) {
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;
    this.#tokenExpired = false;
    if (this.#status.state !== "online") this.#setStatus({ state: "online" });
    if (applied === "stale") return true;
    for (const conversation of applied.conversations) {
      this.#emitter.emit("conversation", conversation);
    }
    if (applied.badge !== void 0) this.#emitter.emit("total", applied.badge);
    return true;
  }
  #reconnect(connection, { code, reason, reconnectMs }) {
    this.#connection = void 0;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();
    if (isRefusal(code)) {
      this.#backoff.reset();
      this.#requests.rejectAll();
      this.#setStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#cancelRetry = this.#clock.after(retryMs, () => this.#connect());
    this.#requests.rejectAll();
    this.#setStatus({ state: "waiting", retryMs, code, reason });
  }
  #setStatus(status) {
    this.#status = status;
    this.#emitter.emit("status", status);
  }
};
function socketURL(base) {
  const url = new URL(base);
  const secure = url.protocol === "https:" || url.protocol === "wss:";
  if (!secure && url.protocol !== "http:" && url.protocol !== "ws:") {
    throw new TypeError(`URL ${base} is neither http(s) nor ws(s)`);
  }
  url.protocol = secure ? "wss:" : "ws:";
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/ws`;
  url.search = "";
  url.hash = "";
  return url.href;
}
export {
  Badged,
  BadgedError,
  CloseCode,
  toSeq
};
