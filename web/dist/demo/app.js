// sdk/src/category.ts
var NO_NUMBERS = {
  total: 0,
  mentions: 0,
  unreadConversations: 0,
  unseen: 0,
  muted: { total: 0, conversations: 0 },
  marked: 0
};
function covers(path, category) {
  return category === path || category.startsWith(`${path}/`);
}
function above(path) {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}
function pathsOf(category) {
  const paths = [];
  for (let path = category; path !== ""; path = above(path)) paths.push(path);
  return paths;
}
function at(values, path) {
  return Object.hasOwn(values, path) ? values[path] : void 0;
}
function levelOf({ level, category }, levels) {
  if (level !== "default") return level;
  const path = pathsOf(category).find((path2) => Object.hasOwn(levels, path2));
  return (path && levels[path]) ?? "all";
}
function numbersOf(client, path) {
  const { badge } = client;
  return (path === void 0 ? badge : badge && at(badge.categories, path)) ?? NO_NUMBERS;
}
function shareOf(conversation, levels) {
  const { unread: unread2, mentions, seen, seenMentions, markedUnread, left } = conversation;
  if (left) return NO_NUMBERS;
  const full = markedUnread ? Math.max(1, unread2) : unread2;
  const muted = (total) => ({ total, conversations: Math.sign(total) });
  switch (levelOf(conversation, levels)) {
    case "all":
      return {
        total: full,
        mentions,
        unreadConversations: Math.sign(full),
        unseen: unread2 - seen,
        muted: muted(0),
        marked: full - unread2
      };
    case "mentions":
    case "direct_mentions":
      return {
        total: mentions,
        mentions,
        unreadConversations: Math.sign(mentions),
        unseen: mentions - seenMentions,
        muted: muted(full - mentions),
        marked: 0
      };
    case "none":
      return { ...NO_NUMBERS, muted: muted(full) };
    default:
      return void 0;
  }
}
function sum(to, plus, minus = NO_NUMBERS) {
  const of = (number) => Math.max(0, number(to) + number(plus) - number(minus));
  return {
    total: of((n) => n.total),
    mentions: of((n) => n.mentions),
    unreadConversations: of((n) => n.unreadConversations),
    unseen: of((n) => n.unseen),
    muted: { total: of((n) => n.muted.total), conversations: of((n) => n.muted.conversations) },
    marked: of((n) => n.marked)
  };
}
function merged(held, changes) {
  const categories = Object.assign(/* @__PURE__ */ Object.create(null), held);
  for (const [path, numbers2] of changes) {
    if (same(numbers2, NO_NUMBERS)) delete categories[path];
    else categories[path] = numbers2;
  }
  return categories;
}
function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => same(a[name], b[name]));
}

// sdk/src/refuse.ts
function refuse(name, wanted, value) {
  throw new TypeError(`${name} must be ${wanted}, is ${shown(value)}`);
}
function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.replace(/^(.{40}).+/s, "$1…"));
  return typeof value === "number" || typeof value === "bigint" ? value : typeof value;
}

// sdk/src/seq.ts
var MAX = 2n ** 63n - 1n;
var MAX_NUMBER = Number.MAX_SAFE_INTEGER;
function toSeq(value) {
  return seqOf("seq", value);
}
function seqOf(name, value) {
  if (Number.isSafeInteger(value) && Number(value) >= 0) return value;
  if (typeof value === "bigint" || typeof value === "string" && /^\d{1,19}$/.test(value)) {
    const exact = BigInt(value);
    if (exact >= 0n && exact <= MAX) return exact <= MAX_NUMBER ? Number(exact) : exact;
  }
  return refuse(name, "an integer, above 2^53 - 1 as a bigint or a string of digits", value);
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

// sdk/src/arguments.ts
var MAX_SEQS = 150;
function toText(name, value, most = 128) {
  if (typeof value === "string" && value !== "" && value.length <= most && !/[\p{Cc}\p{Cs}]/u.test(value) && encodeURIComponent(value).replace(/%../g, "-").length <= most) {
    return value;
  }
  return refuse(name, `text of 1 to ${most} bytes without control characters`, value);
}
function toCategory(value) {
  const path = toText("category", value, 255);
  const parts = path.split("/");
  return parts.length <= 8 && parts.every((part) => part !== "" && [...part].length <= 64) ? path : refuse("category", "1 to 8 parts of 1 to 64 characters with a slash between each two", value);
}
var LEVELS = ["default", "all", "mentions", "direct_mentions", "none"];
function toMessage(name, value) {
  const seq = seqOf(name, value);
  return seq > 0 ? seq : refuse(name, "at least 1", value);
}
function toMessages(value, most) {
  return Array.isArray(value) && value.length > 0 && value.length <= most ? value.map((seq, i) => toMessage(`seqs[${i}]`, seq)) : refuse("seqs", `an array of 1 to ${most} seqs`, value);
}
function toFunction(name, value) {
  if (typeof value !== "function") refuse(name, "a function", value);
}
function toCommand(given) {
  const fields = given;
  const { t, id, category, level, conversationId, upToSeq, seqs, fromSeq } = fields;
  if (typeof id !== "string" || !/^[\da-f-]{36}$/.test(id)) return refuse("id", "a UUID", id);
  if (t === "read_all" || t === "seen_all") {
    return category === void 0 ? { t, id } : { t, id, category: toCategory(category) };
  }
  if (t === "level") {
    if (!LEVELS.includes(level)) refuse("level", `one of ${LEVELS.join(", ")}`, level);
    return { t, id, category: toCategory(category), level };
  }
  const of = { id, conversationId: toText("conversationId", conversationId) };
  if (t === "read" || t === "seen") return { t, ...of, upToSeq: toMessage("upToSeq", upToSeq) };
  if (t !== "mark_unread") return refuse("t", "a command of this release", t);
  if (fromSeq === void 0) {
    return seqs === void 0 ? { t, ...of } : { t, ...of, seqs: toMessages(seqs, MAX_SEQS) };
  }
  if (seqs !== void 0) refuse("seqs", "left out with fromSeq", seqs);
  return { t, ...of, fromSeq: toMessage("fromSeq", fromSeq) };
}

// sdk/src/emitter.ts
var Emitter = class {
  #listeners = /* @__PURE__ */ new Map();
  /** Returns the function that removes the listener. */
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
function defaultEnvironment() {
  const scope = globalThis;
  return {
    WebSocket: scope.WebSocket ?? null,
    // Browsers throw if fetch is called with another receiver. That of React Native
    // cannot read a stream.
    fetch: (scope.ReadableStream && scope.fetch?.bind(scope)) ?? null,
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
  ]),
  attended: () => document.visibilityState === "visible" && document.hasFocus(),
  onAttend: (call) => listen([
    [window, "focus", call],
    [document, "visibilitychange", call]
  ])
};
function listen(all) {
  for (const [target, name, call] of all) target.addEventListener(name, call);
  return () => {
    for (const [target, name, call] of all) target.removeEventListener(name, call);
  };
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
    case "changes": {
      const allCategories = t === "snapshot" || frame.boolean("all_categories", false);
      return {
        t,
        badge: {
          epoch: frame.string("epoch"),
          version: frame.count("version"),
          ...decodeNumbers(frame),
          categories: frame.map(
            "categories",
            (categories, path) => decodeNumbers(categories.object(path))
          ),
          ...frame.boolean("more_categories", false) && { moreCategories: true },
          levels: frame.map("levels", (levels, path) => levels.string(path), {})
        },
        allCategories,
        allLevels: allCategories || frame.has("levels"),
        conversations: frame.list("conversations").map(decodeConversation),
        more: frame.boolean("more", false),
        pingMs: frame.count("ping_ms", 0),
        expiresInMs: frame.count("expires_in_ms", 0)
      };
    }
    case "ok":
      return { t, id: frame.id(), expiresInMs: frame.count("expires_in_ms", 0) };
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
function decodeNumbers(fields) {
  const muted = fields.object("muted", {});
  return {
    total: fields.count("total"),
    mentions: fields.count("mentions"),
    unreadConversations: fields.count("unread_conversations"),
    unseen: fields.count("unseen"),
    muted: { total: muted.count("total", 0), conversations: muted.count("conversations", 0) },
    marked: fields.count("marked", 0)
  };
}
function decodeConversation(json) {
  const fields = new Fields(json, "conversation");
  const levelUntil = fields.string("level_until", "");
  return {
    conversationId: fields.string("conversation_id"),
    unread: fields.count("unread"),
    mentions: fields.count("mentions"),
    firstUnreadSeq: fields.seq("first_unread_seq"),
    readSeq: fields.seq("read_seq"),
    lastSeq: fields.seq("last_seq"),
    seenSeq: fields.seq("seen_seq", 0),
    seen: fields.count("seen", 0),
    seenMentions: fields.count("seen_mentions", 0),
    level: fields.string("level"),
    ...levelUntil && { levelUntil },
    category: fields.string("category"),
    markedUnread: fields.boolean("marked_unread"),
    left: fields.boolean("left", false),
    version: fields.count("version")
  };
}
function encodeHello(held, device) {
  return JSON.stringify({ t: "hello", epoch: held?.epoch, version: held?.version, device });
}
function encodeCommand(command) {
  const { t, id } = command;
  const of = (conversationId) => `{"t":"${t}","id":"${id}","conversation_id":${JSON.stringify(conversationId)}`;
  switch (t) {
    case "read":
    case "seen":
      return `${of(command.conversationId)},"up_to_seq":${command.upToSeq}}`;
    case "read_all":
    case "seen_all":
      return JSON.stringify({ t, id, category: command.category });
    case "level":
      return JSON.stringify({ t, id, category: command.category, level: command.level });
    case "mark_unread":
      return `${of(command.conversationId)}${marked(command)}}`;
  }
}
function marked({ seqs, fromSeq }) {
  if (fromSeq !== void 0) return `,"from_seq":${fromSeq}`;
  return seqs === void 0 ? "" : `,"seqs":[${seqs.join()}]`;
}
function encodeAuth(id, token) {
  return JSON.stringify({ t: "auth", id, token });
}
function encodeSnapshot({ badge, conversations, more }) {
  return stringify({
    t: "snapshot",
    ...named(badge),
    conversations: conversations.map(named),
    more
  });
}
function named(fields) {
  const { categories, levels, ...rest } = fields;
  return {
    ...Object.fromEntries(
      Object.entries(rest).map(([name, value]) => [
        name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        value
      ])
    ),
    ...categories && {
      levels,
      categories: Object.fromEntries(
        Object.entries(categories).map(([path, numbers2]) => [path, named(numbers2)])
      )
    }
  };
}
function stringify(value) {
  return JSON.stringify(value, (_, part) => typeof part === "bigint" ? String(part) : part);
}
var PING = '{"t":"ping"}';
var PONG = '{"t":"pong"}';
var Fields = class _Fields {
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
  /** The id of the command that the frame answers; empty if absent. */
  id() {
    const { id } = this.#json;
    return typeof id === "number" ? String(id) : this.string("id", "");
  }
  boolean(field, absent) {
    const value = this.#json[field] ?? absent;
    return typeof value === "boolean" ? value : this.#refuse(field, "a boolean");
  }
  count(field, absent) {
    const value = this.#json[field] ?? absent;
    return isCount(value) ? value : this.#refuse(field, "a count");
  }
  has(field) {
    return this.#json[field] !== void 0;
  }
  object(field, absent) {
    return new _Fields(this.#json[field] ?? absent, `${field} of ${this.#name}`);
  }
  /** An object whose names are paths. */
  map(field, decode, absent) {
    const fields = this.object(field, absent);
    const map = /* @__PURE__ */ Object.create(null);
    for (const path of Object.keys(fields.#json)) map[path] = decode(fields, path);
    return map;
  }
  list(field) {
    const value = this.#json[field];
    return Array.isArray(value) ? value : this.#refuse(field, "an array");
  }
  seq(field, absent) {
    const value = this.#json[field] ?? absent;
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

// sdk/src/backoff.ts
var MAX_HINT_MS = 36e5;
var Backoff = class {
  #minMs;
  #maxMs;
  #random;
  #failures = 0;
  /** The first pause is below `minMs`. The bound doubles each time, up to `maxMs`. */
  constructor(minMs, maxMs, random) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }
  /** The next pause in milliseconds, at least the `hintMs` of the server. */
  next(hintMs) {
    const bound = Math.min(this.#maxMs, this.#minMs * 2 ** this.#failures++);
    return Math.min(hintMs, MAX_HINT_MS) + Math.floor(this.#random() * bound);
  }
  /** Starts over. Call it after a connection that lasted. */
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
var MIN_REFRESH_MS = 1e4;
var Connection = class {
  #options;
  #socket;
  #ended = false;
  #pingMs = PING_MS;
  #onlineSince;
  #cancelDeadline;
  #cancelPing = () => {
  };
  #cancelRefresh = () => {
  };
  constructor(options) {
    this.#options = options;
    this.#cancelDeadline = options.clock.after(
      CONNECT_TIMEOUT_MS,
      () => this.#end(0, "timeout: no state from the server")
    );
    void this.#open();
  }
  /** Milliseconds since the first state arrived; 0 before. */
  get onlineMs() {
    return this.#onlineSince === void 0 ? 0 : this.#options.clock.now() - this.#onlineSince;
  }
  /** Sends a frame. Call it only after the first state arrived. */
  send(frame) {
    this.#socket?.send(frame);
  }
  /** Pings at once, to find out whether the connection survived a sleep. */
  probe() {
    if (this.#onlineSince === void 0 || !this.#options.pings) return;
    this.#cancelPing();
    this.#cancelDeadline();
    this.#ping();
  }
  /** Closes the connection without calling `onEnd`. */
  close() {
    this.#release("client stopped");
  }
  async #open() {
    const { open, token, held, device } = this.#options;
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
      if (!this.#ended) socket.send(encodeHello(held(), device));
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
      if (!this.#options.pings) this.#expectFrame(2.5 * this.#pingMs);
    }
    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        if (frame.id !== AUTH_ID) this.#options.onAnswer(frame);
        else if (frame.t === "ok") this.#refreshWithin(frame.expiresInMs, MIN_REFRESH_MS);
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
      else this.#expectFrame(2.5 * this.#pingMs);
      this.#refreshWithin(frame.expiresInMs, 0);
    }
    if (!this.#options.onState(frame)) this.#end(0, "protocol error: changes of another epoch");
  }
  #schedulePing() {
    this.#cancelPing = this.#options.clock.after(this.#pingMs, () => this.#ping());
  }
  #ping() {
    this.send(PING);
    this.#expectFrame(Math.min(PONG_TIMEOUT_MS, this.#pingMs));
    this.#schedulePing();
  }
  #expectFrame(timeoutMs) {
    this.#cancelDeadline = this.#options.clock.after(
      timeoutMs,
      () => this.#end(0, "timeout: no frame from the server")
    );
  }
  /**
   * Schedules a fresh token for 75 to 85 % of the time left, at random, so that
   * clients do not renew together, but not before `leastMs`. If that fails, the
   * server closes the connection, and the next one starts with a fresh token.
   */
  #refreshWithin(leftMs, leastMs) {
    const { clock: clock2, random, token, pings } = this.#options;
    if (leftMs === 0 || !pings) return;
    const delayMs = Math.max(leastMs, leftMs * (0.75 + random() / 10));
    this.#cancelRefresh = clock2.after(Math.min(delayMs, MAX_TIMER_MS), async () => {
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
var RETRY_MS = 1500;
var ANSWER_MS = 3e4;
var FINAL = {
  400: "invalid",
  404: "not_found",
  413: "invalid",
  422: "invalid"
};
var EventStream = class {
  onopen = null;
  onmessage = null;
  onclose = null;
  onerror = null;
  #fetch;
  #base;
  #authorization;
  #clock;
  #abort = new AbortController();
  /** Those of commands without an answer. */
  #posts = /* @__PURE__ */ new Set();
  /** `base` is the URL of the server, with a slash at its end. */
  constructor(fetcher, base, token, clock2) {
    this.#fetch = fetcher;
    this.#base = base;
    this.#authorization = `Bearer ${token}`;
    this.#clock = clock2;
    queueMicrotask(() => this.onopen?.({}));
  }
  send(data) {
    const frame = JSON.parse(data);
    if (frame.t === "hello") void this.#listen(frame);
    else if (frame.id !== void 0 && frame.t !== "auth") void this.#post(frame.id, data);
  }
  close() {
    for (const request2 of [this.#abort, ...this.#posts]) request2.abort();
  }
  async #listen({ epoch, version, device }) {
    const query = device === void 0 ? "" : `?device=${encodeURIComponent(device)}`;
    try {
      const response = await this.#fetch(`${this.#base}v1/sse${query}`, {
        headers: {
          Accept: "text/event-stream",
          Authorization: this.#authorization,
          ...epoch === void 0 ? {} : { "Last-Event-ID": `${epoch}:${version}` }
        },
        cache: "no-store",
        signal: this.#abort.signal
      });
      if (!response.ok || response.body === null) {
        const { detail, retryMs } = await readProblem(response);
        const code = closeCode(response.status, detail !== void 0);
        this.#tell({ t: "bye", code, reconnect_ms: retryMs });
        return;
      }
      await this.#read(response.body);
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
    let refusal = { code: "unavailable", message: "no answer", retryMs: RETRY_MS };
    const request2 = new AbortController();
    this.#posts.add(request2);
    const cancel = this.#clock.after(ANSWER_MS, () => request2.abort());
    try {
      const response = await this.#fetch(`${this.#base}v1/commands`, {
        method: "POST",
        headers: { Authorization: this.#authorization, "Content-Type": "application/json" },
        body,
        signal: request2.signal
      });
      if (response.ok) {
        this.#tell(await response.text());
        return;
      }
      const { code: code2, detail, retryMs: retryMs2 } = await readProblem(response);
      const final = detail !== void 0 && retryMs2 === 0 ? FINAL[response.status] : void 0;
      refusal = {
        code: code2 ?? final ?? refusal.code,
        message: detail ?? refusal.message,
        retryMs: final === void 0 ? retryMs2 || RETRY_MS : 0
      };
    } catch {
    } finally {
      cancel();
      this.#posts.delete(request2);
    }
    const { code, message, retryMs } = refusal;
    this.#tell({ t: "error", id, code, message, retry_ms: retryMs });
  }
  #tell(frame) {
    if (this.#abort.signal.aborted) return;
    const data = typeof frame === "string" ? frame : JSON.stringify(frame);
    this.onmessage?.({ data });
  }
};
function closeCode(status, ofServer) {
  if (status === 401) return 4202;
  if (status === 403 && ofServer) return 4003;
  return status === 429 || status === 503 ? 4100 : 1006;
}
async function readProblem(response) {
  const problem = await response.json().catch(() => void 0);
  const seconds = Number(response.headers.get("Retry-After"));
  const text = (value) => typeof value === "string" ? value : void 0;
  return {
    code: text(problem?.code),
    detail: text(problem?.detail),
    retryMs: Math.max(0, Math.trunc(Number(problem?.retry_ms ?? seconds * 1e3))) || 0
  };
}

// sdk/src/storage.ts
var SAVE_MS = 1e3;
var StorageEntry = class {
  #storage;
  #key;
  /** Of an asynchronous storage: what it holds; undefined before it was read or written. */
  #held;
  #writes;
  constructor(storage, key) {
    this.#storage = storage;
    this.#key = key;
  }
  /** Reads an asynchronous storage. Others are read at once, and it returns undefined. */
  load() {
    const text = this.#get();
    if (typeof text !== "object" || text === null) return void 0;
    const keep = (read) => {
      if (this.#held === void 0) this.#held = read;
    };
    this.#writes = text.then(keep, () => keep(null));
    return this.#writes;
  }
  read(parse) {
    const text = this.#writes === void 0 ? this.#get() : this.#held;
    try {
      return typeof text === "string" && text !== "" ? parse(text) : void 0;
    } catch {
      return void 0;
    }
  }
  write(text) {
    if (this.#writes === void 0) {
      this.#put(text);
      return;
    }
    this.#held = text ?? null;
    this.#writes = this.#writes.then(() => this.#put(this.#held ?? void 0)).catch(() => {
    });
  }
  #get() {
    try {
      return this.#storage?.getItem(this.#key);
    } catch {
      return null;
    }
  }
  #put(text) {
    try {
      if (text === void 0) return this.#storage?.removeItem(this.#key);
      return this.#storage?.setItem(this.#key, text);
    } catch {
    }
  }
};
var Storage = class {
  #environment;
  #snapshot;
  #state;
  #commands;
  #cancelSave;
  /** Without a name it stores nothing. */
  constructor(name, environment, snapshot) {
    const storage = name === void 0 ? null : environment.storage;
    this.#environment = environment;
    this.#snapshot = snapshot;
    this.#state = new StorageEntry(storage, `${name} state`);
    this.#commands = new StorageEntry(storage, `${name} commands`);
  }
  /** Resolves once an asynchronous storage was read; undefined for others. */
  load() {
    const loads = [this.#state.load(), this.#commands.load()];
    return loads.some((load) => load) ? Promise.all(loads) : void 0;
  }
  loadState() {
    return this.#state.read((text) => {
      const frame = decodeFrame(text);
      return frame?.t === "snapshot" ? frame : void 0;
    });
  }
  /**
   * The commands of the last visit. It leaves out what this release cannot send, such as
   * commands of a newer one, and calls `onBad` with each reason.
   */
  loadCommands(onBad = (_) => {
  }) {
    const stored = this.#commands.read((text) => JSON.parse(text));
    if (!Array.isArray(stored)) return [];
    return stored.flatMap((command) => {
      try {
        return toCommand(command);
      } catch (error) {
        onBad(error);
        return [];
      }
    });
  }
  /** Writes the state within SAVE_MS. */
  saveState() {
    this.#cancelSave ??= this.#environment.clock.after(SAVE_MS, () => this.flush());
  }
  saveCommands(commands) {
    this.#commands.write(commands.length > 0 ? stringify(commands) : void 0);
  }
  /** Writes a state that saveState scheduled at once. */
  flush() {
    if (this.#cancelSave === void 0) return;
    this.#cancelSave();
    this.#cancelSave = void 0;
    const frame = this.#snapshot();
    if (frame !== void 0) this.#state.write(encodeSnapshot(frame));
  }
  forget() {
    this.#cancelSave?.();
    this.#cancelSave = void 0;
    this.#state.write(void 0);
    this.#commands.write(void 0);
  }
};

// sdk/src/link.ts
var LASTING_MS = 1e4;
var MAX_UNHEARD = 2;
var NEVER_CONNECTED = "cannot connect: check the url, the server, and that the server allows this page's origin (--allowed-origins)";
var RIVAL_MS = 3e3;
var RIVAL_PROVEN_MS = 1e4;
var REMEMBER_MS = 36e5;
var Link = class {
  #options;
  #backoff;
  #entry;
  /** Until when event streams are tried first, in milliseconds since 1970. */
  #streamsUntil;
  /** The connections of this attempt that have delivered no state yet. */
  #rivals = /* @__PURE__ */ new Set();
  #connection;
  #tokenExpired = false;
  /** A WebSocket has delivered a state. */
  #proven = false;
  /** Unheard connections since the last state. */
  #unheard = 0;
  #mayHurry = false;
  #cancelRetry = () => {
  };
  #cancelRival = () => {
  };
  /** Starts the other transport; undefined if there is none or it has started. */
  #tryOther;
  constructor(options) {
    this.#options = options;
    const { minBackoffMs, maxBackoffMs, environment, base } = options;
    this.#backoff = new Backoff(minBackoffMs, maxBackoffMs, environment.random);
    this.#entry = new StorageEntry(environment.storage, `badged ${base} streams until`);
    void this.#entry.load();
    this.#streamsUntil = this.#entry.read(Number) || 0;
  }
  /** Connects. After a call, stop or a refusal must come before the next. */
  start() {
    const { environment, fallback, onStatus } = this.#options;
    const { clock: clock2, fetch: fetch2, WebSocket } = environment;
    this.#mayHurry = false;
    const fallsBack = fallback && fetch2 !== null;
    const streams = fallsBack && (!WebSocket || this.#prefersStreams);
    this.#open(streams);
    if (fallsBack && WebSocket) {
      this.#tryOther = () => {
        this.#cancelRival();
        this.#tryOther = void 0;
        this.#open(!streams);
      };
      const delayMs = this.#proven ? RIVAL_PROVEN_MS : RIVAL_MS;
      this.#cancelRival = clock2.after(delayMs, this.#tryOther);
    }
    onStatus({ state: "connecting" });
  }
  stop() {
    this.#mayHurry = false;
    this.#cancelRetry();
    this.#abandon();
    this.#backoff.reset();
  }
  /** Removes what it stored in the browser. */
  forget() {
    this.#remember(false);
  }
  /** Sends a frame. Call it only while online. */
  send(frame) {
    this.#connection?.send(frame);
  }
  /**
   * The user or the network is back: checks the connection, or skips the rest
   * of the pause unless the server asked for it.
   */
  hurry() {
    this.#connection?.probe();
    if (!this.#mayHurry) return;
    this.#cancelRetry();
    this.start();
  }
  #open(streams) {
    const { environment, base, token, held, device, onState, onAnswer } = this.#options;
    const { WebSocket, fetch: fetch2, clock: clock2, random } = environment;
    const connection = new Connection({
      open: (credential) => {
        if (streams && fetch2 !== null) return new EventStream(fetch2, base, credential, clock2);
        if (WebSocket === null) throw new TypeError("no WebSocket: set the option WebSocket");
        return new WebSocket(`${base.replace(/^http/, "ws")}v1/ws`, [
          PROTOCOL,
          `bearer.${credential}`
        ]);
      },
      pings: !streams,
      clock: clock2,
      random,
      // async turns a throw into a rejection.
      token: async (fresh) => {
        const found = await token({ expired: fresh || this.#tokenExpired });
        if (/^[\w.-]+$/.test(found || "")) return found;
        throw new TypeError(`token() returned ${shown(found)}`);
      },
      held,
      device,
      onState: (frame) => {
        if (this.#connection === void 0) this.#choose(connection, streams);
        return onState(frame);
      },
      onAnswer,
      onEnd: (ended) => this.#end(connection, ended)
    });
    this.#rivals.add(connection);
  }
  /** Keeps the connection that delivered the first state, and ends the other. */
  #choose(connection, streams) {
    this.#rivals.delete(connection);
    this.#abandon();
    this.#connection = connection;
    this.#tokenExpired = false;
    this.#unheard = 0;
    if (!streams) this.#proven = true;
    this.#remember(streams);
  }
  /** Ends all connections of this attempt. */
  #abandon() {
    this.#cancelRival();
    this.#tryOther = void 0;
    for (const rival of this.#rivals) rival.close();
    this.#rivals.clear();
    this.#connection?.close();
    this.#connection = void 0;
  }
  get #prefersStreams() {
    const leftMs = this.#streamsUntil - this.#options.environment.clock.date();
    return leftMs > 0 && leftMs <= REMEMBER_MS;
  }
  #remember(streams) {
    if (streams ? this.#prefersStreams : this.#streamsUntil === 0) return;
    this.#streamsUntil = streams ? this.#options.environment.clock.date() + REMEMBER_MS : 0;
    this.#entry.write(streams ? String(this.#streamsUntil) : void 0);
  }
  #end(connection, ended) {
    this.#rivals.delete(connection);
    if (ended.unheard) {
      if (this.#rivals.size > 0) return;
      if (++this.#unheard >= MAX_UNHEARD && this.#tryOther !== void 0) {
        this.#tryOther();
        return;
      }
    }
    this.#abandon();
    this.#reconnect(connection, ended);
  }
  #reconnect(connection, { code, reason, reconnectMs }) {
    const { onStatus, environment, held } = this.#options;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();
    if (isRefusal(code)) {
      this.#backoff.reset();
      onStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#mayHurry = reconnectMs === 0;
    this.#cancelRetry = environment.clock.after(retryMs, () => this.start());
    const never = code === 1006 && this.#unheard >= MAX_UNHEARD && !held();
    onStatus({ state: "waiting", retryMs, code, reason: never ? NEVER_CONNECTED : reason });
  }
};

// sdk/src/outbox.ts
var MAX_IN_FLIGHT = 32;
var MAX_RETRY_MS = 36e5;
var BadgedError = class extends Error {
  name = "BadgedError";
  /** The error code of the server, or `forgotten` after {@link Badged.forget}. */
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
  #relayed = false;
  constructor(options) {
    this.#options = options;
  }
  /** The pending commands, in order, with each command for all as those that it stands for. */
  get commands() {
    return this.#entries.flatMap(({ command, reads }) => isForAll(command) ? reads : command);
  }
  /** The ids of the pending commands that merged into others. */
  get merged() {
    return this.#entries.flatMap(({ merged: merged2 }) => merged2);
  }
  /**
   * Adds a command, and resolves once it is durable. A command that is already
   * pending, or that merges into one not yet sent, settles together with it.
   * `reads` are the commands that one for all stands for.
   */
  add(command, reads = []) {
    const { settled } = this.#take(command, reads);
    this.#options.onChange();
    this.#flush();
    return settled;
  }
  /** Adds commands, and resolves once all are durable. */
  addAll(commands) {
    const all = Promise.all(commands.map((command) => this.#take(command, []).settled));
    this.#options.onChange();
    this.#flush();
    return quiet(all.then(() => {
    }));
  }
  /** Adds commands of an earlier time, before those that are pending. */
  addFirst(commands) {
    const later = this.#entries;
    this.#entries = [];
    for (const command of commands) {
      const known = later.find(({ command: { id } }) => id === command.id);
      if (known === void 0) this.#take(command, []);
      else this.#entries.push(known);
    }
    this.#entries.push(...later.filter((entry) => !this.#entries.includes(entry)));
    this.#options.onChange();
    this.#flush();
  }
  /**
   * A connection is available: sends everything, in order. With `relayed`, the
   * recipient is an outbox too, which keeps the order itself: it gets every
   * command at once, and keeps it even if this tab closes.
   */
  open(send, relayed = false) {
    this.#send = send;
    this.#relayed = relayed;
    for (const entry of this.#entries) entry.busy = false;
    this.#flush();
  }
  /**
   * The connection is lost, and with it the answers. A `read_all` sent later
   * would read messages that the user has not seen, so its reads replace it.
   * So it is with `seen_all`.
   */
  close() {
    this.#send = void 0;
    const entries = this.#entries;
    this.#entries = [];
    for (const entry of entries) {
      if (!isForAll(entry.command)) {
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
      this.#options.clock.after(Math.min(answer.retryMs, MAX_RETRY_MS), () => {
        if (entry.tries === tries) entry.busy = false;
        this.#flush();
      });
      return;
    }
    this.#entries = this.#entries.filter((other) => other !== entry);
    if (answer.t === "ok") {
      for (const accepted of [entry.command, ...entry.reads]) this.#options.onAccept(accepted);
      entry.resolve();
    } else entry.reject(new BadgedError(answer.code, answer.message));
    this.#options.onChange();
    this.#flush();
  }
  /** Drops all commands and rejects their promises. */
  clear() {
    const entries = this.#entries;
    this.#entries = [];
    for (const { reject } of entries)
      reject(new BadgedError("forgotten", "forget() dropped the command"));
    this.#options.onChange();
  }
  #take(command, reads) {
    const known = this.#entries.find(({ command: { id } }) => id === command.id);
    return known ?? this.#merge(command) ?? this.#append(command, reads);
  }
  /** Merges the command into the last entry of its conversation, if possible. */
  #merge(command) {
    if (about(command) === void 0) return void 0;
    const last = this.#entries.filter(({ command: other }) => [void 0, about(command)].includes(about(other))).at(-1);
    if (last === void 0 || last.tries > 0 || last.command.t !== command.t) return void 0;
    if ("upToSeq" in command && "upToSeq" in last.command && command.upToSeq > last.command.upToSeq) {
      last.merged.push(last.command.id);
      last.command = command;
    } else if (ofMessages(command) || ofMessages(last.command)) {
      return void 0;
    } else {
      last.merged.push(command.id);
    }
    return last;
  }
  #append(command, reads) {
    let resolve = () => {
    };
    let reject = (_) => {
    };
    const settled = quiet(
      new Promise((yes, no) => {
        resolve = yes;
        reject = no;
      })
    );
    const entry = { command, reads, merged: [], tries: 0, busy: false, settled, resolve, reject };
    this.#entries.push(entry);
    return entry;
  }
  #flush() {
    const ahead = /* @__PURE__ */ new Set();
    for (const entry of [...this.#entries]) {
      if (this.#send === void 0) return;
      if (!this.#relayed) {
        if (ahead.size >= MAX_IN_FLIGHT) return;
        const id = about(entry.command);
        const blocked = ahead.has(void 0) || ahead.has(id) || id === void 0 && ahead.size > 0;
        ahead.add(id);
        if (blocked) continue;
      }
      if (entry.busy) continue;
      entry.busy = true;
      entry.tries++;
      this.#send(entry.command, entry.reads);
    }
  }
};
function quiet(promise) {
  promise.catch(() => {
  });
  return promise;
}
function ofMessages(command) {
  return "seqs" in command || "fromSeq" in command;
}
function about(command) {
  return "conversationId" in command ? command.conversationId : void 0;
}
function isForAll({ t }) {
  return t === "read_all" || t === "seen_all";
}
function randomId() {
  return "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) => {
    const random = globalThis.crypto?.getRandomValues(new Uint8Array(1))[0] ?? Math.random() * 256;
    return (Number(digit) ^ random & 15 >> Number(digit) / 4).toString(16);
  });
}

// sdk/src/options.ts
function heed(options, act) {
  let promise;
  const signal = options?.signal;
  try {
    if (signal !== void 0) toFunction("signal.addEventListener", signal?.addEventListener);
    promise = act();
  } catch (error) {
    return Promise.reject(error);
  }
  if (signal === void 0) return promise;
  return quiet(
    new Promise((resolve, reject) => {
      const stop = () => reject(signal.reason);
      if (signal.aborted) stop();
      signal.addEventListener("abort", stop, { once: true });
      promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    })
  );
}
function baseURL(text) {
  if (!text) throw new TypeError("url is required, such as https://badged.example.com");
  const parts = /^\s*(?:http|ws)(s?:\/\/[^/?#\s]+)([^?#\s]*)/i.exec(text);
  if (parts === null) return refuse("url", "http(s) or ws(s)", text);
  const [, origin = "", path = ""] = parts;
  if (/\/v1\/ws\/?$/.test(path)) refuse("url", "the server's, without /v1/ws", text);
  return `http${origin.toLowerCase()}${path.replace(/\/?$/, "/")}`;
}

// sdk/src/overlay.ts
function overlay(state, commands) {
  if (state.badge === void 0 || commands.length === 0) return state;
  const conversations = new Map(state.conversations);
  let badge = state.badge;
  for (const command of commands) {
    if (!("conversationId" in command)) continue;
    const before = conversations.get(command.conversationId);
    const was = before && shareOf(before, badge.levels);
    if (before === void 0 || was === void 0) continue;
    const after = foresee(before, command);
    conversations.set(command.conversationId, after);
    badge = adjust(badge, before.category, was, shareOf(after, badge.levels));
  }
  return { ...state, badge, conversations };
}
function foresee(conversation, command) {
  if (command.t === "mark_unread") {
    return ofMessages(command) ? conversation : { ...conversation, markedUnread: true };
  }
  if (command.t === "read") return afterRead(conversation, command.upToSeq);
  return command.t === "seen" ? afterSeen(conversation, command.upToSeq) : conversation;
}
function afterRead(conversation, upToSeq) {
  const { unread: unread2, mentions, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
  if (upToSeq >= lastSeq) {
    const read2 = { unread: 0, mentions: 0, firstUnreadSeq: 0, markedUnread: false };
    const seen2 = { seenSeq: 0, seen: 0, seenMentions: 0 };
    return { ...conversation, ...read2, ...seen2, readSeq: readSeq > lastSeq ? readSeq : lastSeq };
  }
  if (upToSeq < readSeq) return conversation;
  const read = {
    ...conversation,
    readSeq: upToSeq,
    markedUnread: false,
    seenSeq: seenSeq > upToSeq ? seenSeq : 0
  };
  if (unread2 === 0 || upToSeq < firstUnreadSeq) return read;
  if (hasGaps(conversation)) return conversation;
  const left = distance(upToSeq, lastSeq);
  const seen = seenSeq > upToSeq ? Math.min(left, distance(upToSeq, seenSeq)) : 0;
  return withSeen(
    {
      ...read,
      unread: left,
      mentions: Math.min(mentions, left),
      firstUnreadSeq: toSeq(BigInt(upToSeq) + 1n)
    },
    seen
  );
}
function afterSeen(conversation, upToSeq) {
  const { unread: unread2, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
  const position = upToSeq < lastSeq ? upToSeq : lastSeq;
  if (position <= readSeq || position <= seenSeq) return conversation;
  const seen = { ...conversation, seenSeq: position };
  if (position >= lastSeq) return withSeen(seen, unread2);
  if (position < firstUnreadSeq) return seen;
  return hasGaps(conversation) ? conversation : withSeen(seen, unread2 - distance(position, lastSeq));
}
function withSeen(conversation, seen) {
  const { unread: unread2, mentions, seenMentions } = conversation;
  const [least, most] = [Math.max(0, mentions - (unread2 - seen)), Math.min(seen, mentions)];
  return { ...conversation, seen, seenMentions: Math.min(most, Math.max(least, seenMentions)) };
}
function hasGaps({ unread: unread2, firstUnreadSeq, lastSeq }) {
  return distance(firstUnreadSeq, lastSeq) + 1 !== unread2;
}
function distance(from, to) {
  return Number(BigInt(to) - BigInt(from));
}
function adjust(badge, category, was, is = NO_NUMBERS) {
  const moved = (from) => sum(from, is, was);
  const changed = pathsOf(category).map(
    (path) => [path, moved(at(badge.categories, path) ?? NO_NUMBERS)]
  );
  return { ...badge, ...moved(badge), categories: merged(badge.categories, changed) };
}
function reflects(conversation, command, since) {
  const later = conversation.version > since;
  if (command.t === "mark_unread") {
    return ofMessages(command) || conversation.markedUnread || later;
  }
  const { readSeq, seenSeq, markedUnread, unread: unread2, firstUnreadSeq } = conversation;
  if (command.t === "seen") return readSeq >= command.upToSeq || seenSeq >= command.upToSeq;
  if (command.t !== "read") return true;
  const marked2 = markedUnread || unread2 > 0 && firstUnreadSeq <= readSeq;
  return readSeq >= command.upToSeq && (!marked2 || later);
}

// sdk/src/reading.ts
var PAUSE_MS = 250;
var Looking = class {
  #options;
  #ignorePage;
  /** The last command, and the state that it was sent for. */
  #sent = "";
  #closed = false;
  #cancelPause;
  constructor(options) {
    this.#options = options;
    this.#ignorePage = options.page?.onAttend(() => {
      if (this.#cancelPause === void 0) this.#pause();
    });
  }
  close() {
    this.#closed = true;
    this.#ignorePage?.();
    this.#cancelPause?.();
    this.#options.onClose?.();
  }
  check() {
    if (this.#closed || this.#cancelPause || this.#options.page?.attended() === false) return;
    const due = this.due();
    if (due === void 0 || due === this.#sent) return;
    this.#sent = due;
    this.#pause();
    void this.send();
  }
  #pause() {
    this.#cancelPause = this.#options.clock.after(PAUSE_MS, () => {
      this.#cancelPause = void 0;
      this.check();
    });
  }
};
var Reading = class extends Looking {
  conversationId;
  #client;
  #ignoreClient;
  #upToSeq;
  /** The user has looked at it. A mark that appears later is for the next visit. */
  #seen = false;
  constructor(conversationId, { upToSeq }, options) {
    super(options);
    this.conversationId = conversationId;
    this.#client = options.client;
    this.#upToSeq = shown2(upToSeq);
    this.#ignoreClient = options.client.on("conversation", (changed) => {
      if (changed.conversationId === conversationId) this.check();
    });
    this.check();
  }
  show(upToSeq) {
    this.#upToSeq = shown2(upToSeq);
    this.check();
  }
  close() {
    this.#ignoreClient();
    super.close();
  }
  due() {
    const conversation = this.#client.conversations.get(this.conversationId);
    if (conversation === void 0) return void 0;
    const { unread: unread2, markedUnread, firstUnreadSeq, version } = conversation;
    const upToSeq = this.#visible;
    const endsMark = markedUnread && !this.#seen;
    this.#seen = true;
    if (unread2 > 0 ? firstUnreadSeq > upToSeq : !endsMark) return void 0;
    return `${upToSeq} at ${version}`;
  }
  send() {
    return this.#client.read(this.conversationId, this.#visible);
  }
  get #visible() {
    return this.#upToSeq ?? this.#client.conversations.get(this.conversationId)?.lastSeq ?? 0;
  }
};
var Seeing = class extends Looking {
  #client;
  #category;
  #ignoreClient;
  constructor(category, options) {
    super(options);
    this.#client = options.client;
    this.#category = category;
    this.#ignoreClient = options.client.on("total", () => this.check());
    this.check();
  }
  close() {
    this.#ignoreClient();
    super.close();
  }
  due() {
    const { badge } = this.#client;
    return numbersOf(this.#client, this.#category).unseen > 0 ? `${badge?.epoch} ${badge?.version}` : void 0;
  }
  send() {
    return this.#client.seenAll(this.#category);
  }
};
function shown2(upToSeq) {
  return upToSeq === void 0 ? void 0 : seqOf("upToSeq", upToSeq);
}

// sdk/src/settling.ts
var SETTLE_MS = 3e4;
var Settling = class {
  #clock;
  #onLate;
  #entries = /* @__PURE__ */ new Map();
  /** `onLate` is called when a command is dropped after SETTLE_MS. */
  constructor(clock2, onLate) {
    this.#clock = clock2;
    this.#onLate = onLate;
  }
  get commands() {
    return [...this.#entries.values()].map(({ command }) => command);
  }
  add(command, { badge, conversations }) {
    if (!("conversationId" in command)) return;
    const { t, conversationId } = command;
    const key = t === "seen" ? `${conversationId}
` : conversationId;
    this.#drop(key);
    const cancel = this.#clock.after(SETTLE_MS, () => {
      this.#drop(key);
      this.#onLate();
    });
    const last = conversations.get(conversationId);
    this.#entries.set(key, { command, since: badge?.version ?? 0, last, cancel });
  }
  /**
   * Drops the commands that a state of the server reflects, and those of conversations
   * that the backend has reset since.
   */
  settle({ conversations }) {
    for (const [key, entry] of this.#entries) {
      const conversation = conversations.get(entry.command.conversationId);
      if (conversation === void 0) continue;
      const { command, since, last } = entry;
      if (wentBack(last, conversation) || reflects(conversation, command, since)) this.#drop(key);
      else entry.last = conversation;
    }
  }
  clear() {
    for (const key of [...this.#entries.keys()]) this.#drop(key);
  }
  #drop(key) {
    this.#entries.get(key)?.cancel();
    this.#entries.delete(key);
  }
};
function wentBack(before, after) {
  return before !== void 0 && (after.readSeq < before.readSeq || after.lastSeq < before.lastSeq);
}

// sdk/src/state.ts
var MAX_STORED = 1e3;
var NOTHING = { badge: void 0, conversations: /* @__PURE__ */ new Map(), more: false };
var State = class {
  #view = NOTHING;
  get view() {
    return this.#view;
  }
  /**
   * The state as a frame, with the conversations that a snapshot of the server
   * lists, at most MAX_STORED. Undefined before the first snapshot.
   */
  get snapshot() {
    const { badge, conversations, more } = this.#view;
    if (badge === void 0) return void 0;
    const shown3 = [...conversations.values()].filter(
      ({ unread: unread2, markedUnread, level, left }) => !left && (unread2 > 0 || markedUnread || level !== "default")
    );
    const kept = shown3.length > MAX_STORED ? shown3.sort((a, b) => b.version - a.version).slice(0, MAX_STORED) : shown3;
    return {
      t: "snapshot",
      badge,
      allCategories: true,
      allLevels: true,
      conversations: kept,
      more: more || kept.length < shown3.length,
      pingMs: 0,
      expiresInMs: 0
    };
  }
  /**
   * Applies a snapshot always, and changes if they are newer and of the same
   * epoch.
   */
  apply(frame) {
    const { badge, conversations, more } = this.#view;
    if (frame.t === "snapshot") {
      this.#view = {
        badge: frame.badge,
        conversations: new Map(frame.conversations.map((c) => [c.conversationId, c])),
        more: frame.more
      };
      return "applied";
    }
    if (badge?.epoch !== frame.badge.epoch) return "foreign";
    if (frame.badge.version <= badge.version) return "stale";
    const newest = new Map(conversations);
    for (const conversation of frame.conversations) {
      const { conversationId, version } = conversation;
      if (version > (newest.get(conversationId)?.version ?? -1))
        newest.set(conversationId, conversation);
    }
    this.#view = { badge: completed(frame, badge), conversations: newest, more };
    return "applied";
  }
};
function completed({ badge, allCategories, allLevels }, held) {
  const levels = allLevels ? badge.levels : held.levels;
  if (allCategories) return { ...badge, levels };
  const { moreCategories } = held;
  return {
    ...badge,
    categories: merged(held.categories, Object.entries(badge.categories)),
    ...moreCategories && { moreCategories },
    levels
  };
}
function listed(conversations) {
  const staying = [...conversations].filter(([, { left }]) => !left);
  return staying.length === conversations.size ? conversations : new Map(staying);
}
function difference(before, after) {
  const conversations = /* @__PURE__ */ new Map();
  const changed = [];
  for (const [id, conversation] of after.conversations) {
    const held = before.conversations.get(id);
    const kept = held !== void 0 && same(held, conversation);
    conversations.set(id, kept ? held : conversation);
    if (!kept) changed.push(conversation);
  }
  for (const [id, held] of before.conversations) {
    if (conversations.has(id)) continue;
    const level = after.more ? held.level : "default";
    const { levelUntil, ...rest } = held;
    const empty = {
      ...rest,
      unread: 0,
      mentions: 0,
      firstUnreadSeq: 0,
      seen: 0,
      seenMentions: 0,
      markedUnread: false,
      level,
      ...after.more && levelUntil && { levelUntil }
    };
    if (!same(held, empty)) changed.push(empty);
  }
  const { badge, more } = after;
  const told = badge ?? (before.badge && { ...before.badge, ...NO_NUMBERS, categories: {}, levels: {} });
  const unchanged = before.badge && told && sameNumbers(before.badge, told);
  return {
    view: { badge, conversations, more },
    conversations: changed,
    badge: unchanged ? void 0 : told
  };
}
function sameNumbers(a, b) {
  const { epoch, version } = a;
  return same(a, { ...b, epoch, version });
}

// sdk/src/tabs.ts
var WATCH_MS = 2500;
var MAX_MISSED = 2;
var Tabs = class {
  #name;
  #environment;
  #options;
  #channel;
  #leads = false;
  #missed = 0;
  /** Cancels the request for the lock, or releases it. */
  #turn = new AbortController();
  #cancelWatch = () => {
  };
  /** Without a name, or without locks and channels, every tab leads, also if the browser denies locks. */
  constructor(name, environment, options) {
    this.#name = name;
    this.#environment = environment;
    this.#options = options;
  }
  get leads() {
    return this.#leads;
  }
  join() {
    this.leave();
    const { clock: clock2, locks, BroadcastChannel } = this.#environment;
    if (this.#name === void 0 || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const name = this.#name;
    const channel = new BroadcastChannel(name);
    channel.onmessage = ({ data }) => {
      if (data.m === "watch") clock2.after(0, () => this.#leads && this.post({ m: "alive" }));
      else if (data.m === "alive") this.#missed = 0;
      else {
        if (data.m === "status" && data.elected) {
          this.#missed = 0;
          if (this.#leads) this.#depose(name, locks);
        }
        this.#options.onMessage(data);
      }
    };
    this.#channel = channel;
    this.#request(name, locks, false);
    this.#watch(name, locks);
  }
  /** Lets another tab lead, but still receives messages. */
  yield() {
    this.#leads = false;
    this.#cancelWatch();
    this.#turn.abort();
  }
  /** Lets another tab lead, and receives no more messages. */
  leave() {
    this.yield();
    this.#channel?.close();
    this.#channel = void 0;
  }
  post(message) {
    this.#channel?.postMessage(message);
  }
  #request(name, locks, steal) {
    const turn = new AbortController();
    this.#turn = turn;
    const { signal } = turn;
    let granted = false;
    const until = new Promise((resolve) => signal.addEventListener("abort", () => resolve()));
    locks.request(name, steal ? { steal } : { signal }, () => {
      granted = true;
      if (!signal.aborted) this.#lead();
      return until;
    }).catch(() => {
      if (signal.aborted) return;
      if (!granted) {
        this.leave();
        this.#lead();
        return;
      }
      this.#depose(name, locks);
    });
  }
  /** Another tab has stolen the lock: waits for it again. */
  #depose(name, locks) {
    this.#leads = false;
    this.#turn.abort();
    this.#request(name, locks, false);
    this.#watch(name, locks);
    this.#options.onDepose();
  }
  /** Checks the leader periodically, and takes over if it does not answer. */
  #watch(name, locks) {
    const { clock: clock2, random } = this.#environment;
    this.#missed = 0;
    const ask = () => {
      if (this.#missed >= MAX_MISSED) {
        this.#turn.abort();
        this.#request(name, locks, true);
        return;
      }
      this.#missed++;
      this.post({ m: "watch" });
      wait();
    };
    const wait = () => {
      this.#cancelWatch = clock2.after(WATCH_MS * (1 + random() / 4), ask);
    };
    wait();
  }
  #lead() {
    this.#cancelWatch();
    this.#leads = true;
    this.#options.onLead();
  }
};

// sdk/src/client.ts
var MAX_USER_BYTES = 1e3;
var NONE = { waiting: [], merged: [], settling: [] };
var Badged = class {
  #emitter = new Emitter();
  #environment;
  #storage;
  #outbox;
  #settling;
  #link;
  #tabs;
  /** The server's state. */
  #state = new State();
  /** The pending commands of other tabs or of the last visit. */
  #others = NONE;
  /** The server's state with the pending commands applied. */
  #view = NOTHING;
  /** The view that listeners know. */
  #told = NOTHING;
  /** The ids of the waiting, settling and merged commands that listeners know. */
  #toldPending = ["", "", ""];
  #status = { state: "stopped" };
  #untold = [];
  #telling = false;
  /** Another tab leads, and has answered. */
  #follows = false;
  #ignorePage = () => {
  };
  /** While an asynchronous storage is read. */
  #loading;
  /** The conversations on the screen. */
  #open = /* @__PURE__ */ new Set();
  /** @throws TypeError if an option is invalid. */
  constructor(options) {
    const base = baseURL(options?.url);
    const { token, user, device, minBackoffMs = 500, maxBackoffMs = 3e4 } = options;
    toFunction("token", token);
    if (device !== void 0) toText("device", device);
    if (!(minBackoffMs > 0 && maxBackoffMs > 0)) {
      throw new TypeError("minBackoffMs and maxBackoffMs must be above 0");
    }
    const environment = { ...defaultEnvironment(), ...options };
    const name = user === void 0 ? void 0 : `badged ${base} ${toText("user", user, MAX_USER_BYTES)}`;
    this.#environment = environment;
    this.#storage = new Storage(name, environment, () => this.#state.snapshot);
    this.#settling = new Settling(environment.clock, () => this.#refresh());
    this.#outbox = new Outbox({
      clock: environment.clock,
      onAccept: (command) => {
        if (!this.#follows) this.#settle(command);
      },
      onChange: () => {
        if (this.#tabs.leads) this.#storage.saveCommands(this.#outbox.commands);
        this.#refresh();
      }
    });
    this.#link = new Link({
      environment,
      base,
      token,
      minBackoffMs,
      maxBackoffMs,
      fallback: options.fallback ?? true,
      held: () => this.#state.view.badge,
      device,
      onState: (frame) => this.#receive(frame),
      onAnswer: (answer) => this.#outbox.answer(answer),
      onStatus: (status) => this.#lose(status)
    });
    this.#tabs = new Tabs(name, environment, {
      onLead: () => this.#lead(),
      onDepose: () => this.#depose(),
      onMessage: (message) => this.#hear(message)
    });
    this.#loading = this.#storage.load()?.then(() => {
      this.#loading = void 0;
      this.#restore();
      if (this.#status.state === "connecting") this.#join();
    });
    if (this.#loading === void 0) this.#restore();
  }
  /** Takes over what the last visit has stored. */
  #restore() {
    const kept = this.#storage.loadState();
    if (kept !== void 0) this.#state.apply(kept);
    this.#others = { ...NONE, waiting: this.#storage.loadCommands() };
    this.#look();
  }
  /** The badge with pending commands applied; undefined before the first state. */
  get badge() {
    return this.#view.badge;
  }
  /** By id, the conversations that the server has listed, without those that the user left. */
  get conversations() {
    return listed(this.#view.conversations);
  }
  /**
   * The user has more non-empty conversations than the server sends at once. Page
   * through the HTTP API for them. The total counts them.
   */
  get more() {
    return this.#view.more;
  }
  get status() {
    return this.#status;
  }
  /**
   * The commands of all tabs that are not yet durable on the server, in order. A
   * {@link Badged.readAll} appears as the reads that it stands for, a {@link Badged.seenAll} as `seen`s.
   */
  get waiting() {
    return this.#pending.waiting;
  }
  /** Calls the listener at every such event. The returned function removes it. */
  on(event, listener) {
    toFunction("listener", listener);
    return this.#emitter.on(event, listener);
  }
  /**
   * Connects, and stays connected until `stop` or a refusal. Emits the stored
   * state of the last visit at once. Do not call it in server-side rendering.
   */
  start() {
    const { state } = this.#status;
    if (state !== "stopped" && state !== "refused") return;
    if (this.#loading === void 0) this.#join();
    else this.#setStatus({ state: "connecting" });
  }
  #join() {
    this.#refresh();
    const { page } = this.#environment;
    const ignoreReturn = page?.onReturn(() => this.#tabs.leads && this.#link.hurry());
    const ignoreLeave = page?.onLeave(() => this.#storage.flush());
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
  /** Disconnects. The state and the pending commands stay for the next `start`. */
  stop() {
    if (this.#status.state === "stopped") return;
    this.#link.stop();
    this.#rest();
    this.#tabs.leave();
    this.#setStatus({ state: "stopped" });
  }
  /**
   * Stops all tabs of the user, drops the pending commands, and removes all that
   * is stored in the browser. Call it when the user signs out. Listeners receive
   * a total of 0.
   */
  forget() {
    this.#tabs.post({ m: "forget" });
    this.#forget();
  }
  #forget() {
    this.stop();
    this.#tabs.leave();
    this.#told = this.#view;
    this.#state = new State();
    this.#others = NONE;
    this.#settling.clear();
    this.#outbox.clear();
    this.#storage.forget();
    this.#link.forget();
    this.#refresh();
  }
  /**
   * Marks a conversation as read up to a message. The numbers change at once. The
   * promise resolves once the read is durable on the server. While disconnected
   * it stays pending without limit, unless `options` has a signal.
   *
   * It rejects with a {@link BadgedError} if the server refuses the read or
   * `forget` drops it, which need not be handled, and with a TypeError, which is
   * reported if it is not, if an argument is invalid.
   */
  read(conversationId, upToSeq, options) {
    return heed(options, () => this.#outbox.add(upTo("read", conversationId, upToSeq)));
  }
  /**
   * Marks everything, or everything that a category covers, as read. While
   * disconnected this covers what the client holds: later messages, and
   * conversations that it does not hold (see {@link Badged.more}), stay unread. The
   * promise behaves as in {@link Badged.read}.
   */
  readAll(category, options) {
    const isUnread = ({ unread: unread2, markedUnread }) => unread2 > 0 || markedUnread;
    return this.#all("read", category, isUnread, options);
  }
  /**
   * The user has seen that there is something up to a message, which stays unread:
   * `unseen` falls at once. The promise behaves as in {@link Badged.read}.
   */
  seen(conversationId, upToSeq, options) {
    return heed(options, () => this.#outbox.add(upTo("seen", conversationId, upToSeq)));
  }
  /** Marks everything, or everything that a category covers, as seen; otherwise as {@link Badged.readAll}. */
  seenAll(category, options) {
    return this.#all("seen", category, ({ unread: unread2, seen }) => unread2 > seen, options);
  }
  /**
   * Sets the level of a category, for the conversations that it covers and that have
   * none of their own, also those to come; `default` unsets it. The numbers change once
   * the server has applied it. The promise behaves as in {@link Badged.read}.
   */
  setLevel(category, level, options) {
    return heed(
      options,
      () => this.#outbox.add(toCommand({ t: "level", id: randomId(), category, level }))
    );
  }
  #all(t, category, applies, options) {
    return heed(options, () => {
      const all = toCommand({ t: `${t}_all`, id: randomId(), category });
      const each = [...this.conversations.values()].filter((one) => category === void 0 || covers(category, one.category)).filter(applies).map(({ conversationId, lastSeq }) => upTo(t, conversationId, lastSeq));
      if (this.#status.state !== "online") return this.#outbox.addAll(each);
      return this.#outbox.add(all, each);
    });
  }
  /**
   * What the conversations of the client that pass a filter add to the badge, as for a
   * folder that the user made. Without `complete`, the user has more of them: see
   * {@link Badged.more}.
   */
  count(filter) {
    const { badge, more } = this.#view;
    const shares = [...this.conversations.values()].filter(filter).map((one) => shareOf(one, badge?.levels ?? {}) ?? NO_NUMBERS);
    const numbers2 = shares.reduce((all, share2) => sum(all, share2), NO_NUMBERS);
    return { ...numbers2, complete: badge !== void 0 && !more };
  }
  /**
   * The conversation is on the screen. Until `close`, the client reads it while
   * the page is visible and has the focus, up to the last message delivered or
   * shown; what arrives meanwhile is read when the user is back.
   *
   * {@link Badged.markUnread} in this client ends it too: the user wants to come
   * back to the conversation. A mark set elsewhere ends at the next `open`.
   *
   * @throws TypeError if an argument is invalid.
   */
  open(conversationId, options = {}) {
    const reading = new Reading(toText("conversationId", conversationId), options, {
      client: this,
      page: this.#environment.page,
      clock: this.#environment.clock,
      onClose: () => this.#open.delete(reading)
    });
    this.#open.add(reading);
    return reading;
  }
  /**
   * A list is on the screen, as behind a bell: of a category, or of everything. Until
   * `close`, what arrives in it is seen while the user looks, as {@link Badged.open}
   * reads. It stays unread.
   *
   * @throws TypeError if the category is invalid.
   */
  openCategory(category) {
    const { page, clock: clock2 } = this.#environment;
    if (category !== void 0) toCategory(category);
    return new Seeing(category, { client: this, page, clock: clock2 });
  }
  /**
   * Makes the conversation count at least 1 until the next read. With `seqs`, these
   * messages, which the user has read, count again instead; in a room, with `fromSeq`,
   * those from there on. The numbers then change once the server has applied it. The
   * promise behaves as in {@link Badged.read}. A frame holds 150 seqs, so more than
   * these take several commands.
   */
  markUnread(conversationId, options) {
    return heed(options, () => {
      const { seqs, fromSeq } = options ?? {};
      const left = seqs === void 0 ? [] : toMessages(seqs, 1e3);
      const commands = [];
      do {
        const some = seqs && left.splice(0, MAX_SEQS);
        const mark = { t: "mark_unread", id: randomId(), conversationId, seqs: some, fromSeq };
        commands.push(toCommand(mark));
      } while (left.length > 0);
      for (const reading of this.#open) {
        if (reading.conversationId === conversationId) reading.close();
      }
      return this.#outbox.addAll(commands);
    });
  }
  /** This tab becomes the leader. */
  #lead() {
    this.#follows = false;
    const left = this.#storage.loadCommands(
      (error) => console.warn(`badged: a stored command is dropped: ${error}`)
    );
    this.#outbox.close();
    this.#outbox.addFirst(left);
    for (const command of this.#others.settling) this.#settle(command);
    this.#others = NONE;
    this.#tabs.post({ m: "status", status: { state: "connecting" }, elected: true });
    this.#link.start();
  }
  #settle(command) {
    this.#settling.add(command, this.#state.view);
  }
  /** Another tab has become the leader because this one was frozen. */
  #depose() {
    this.#link.stop();
    this.#outbox.close();
    this.#settling.clear();
    this.#setStatus({ state: "connecting" });
    this.#tabs.post({ m: "hello" });
  }
  /** Undoes `start`, but stays in touch with the other tabs. */
  #rest() {
    this.#storage.flush();
    this.#ignorePage();
    this.#follows = false;
    this.#settling.clear();
    this.#outbox.close();
  }
  /** Applies a state frame of the server; false if it does not apply. */
  #receive(frame) {
    const base = this.#state.view.badge?.version ?? 0;
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;
    if (applied === "applied") {
      this.#storage.saveState();
      this.#tabs.post({ m: "state", frame, base });
    }
    if (this.#status.state === "online") {
      this.#refresh();
    } else {
      this.#outbox.open((command) => this.#link.send(encodeCommand(command)));
      this.#setStatus({ state: "online" });
    }
    return true;
  }
  /** The connection is lost or refused. */
  #lose(status) {
    this.#outbox.close();
    if (status.state === "refused") {
      this.#rest();
      this.#tabs.yield();
    }
    this.#setStatus(status);
  }
  /** Handles a message of another tab. */
  #hear(message) {
    const { leads } = this.#tabs;
    if (message.m === "forget") this.#forget();
    else if (this.#status.state === "refused") return;
    else if (message.m === "hello" || message.m === "command") {
      if (leads) this.#serve(message);
    } else if (!leads) {
      this.#follow(message);
    }
  }
  #serve(message) {
    if (message.m === "command") {
      const { id } = message.command;
      heed(
        void 0,
        () => this.#outbox.add(toCommand(message.command), message.reads.map(toCommand))
      ).then(
        () => this.#tabs.post({ m: "answer", answer: { t: "ok", id, expiresInMs: 0 } }),
        ({ code = "invalid", message: message2 }) => this.#tabs.post({ m: "answer", answer: { t: "error", id, code, message: message2, retryMs: 0 } })
      );
      return;
    }
    const frame = this.#state.snapshot;
    if (frame !== void 0) this.#tabs.post({ m: "state", frame });
    this.#tabs.post({ m: "pending", ...this.#pending });
    this.#tabs.post({ m: "status", status: this.#status, elected: false });
  }
  #follow(message) {
    if (message.m === "answer") {
      this.#outbox.answer(message.answer);
    } else if (message.m === "pending") {
      this.#others = message;
      this.#refresh();
    } else if (message.m === "status") {
      if (message.elected || !this.#follows) {
        this.#follows = true;
        this.#others = NONE;
        this.#outbox.close();
        this.#outbox.open(
          (command, reads) => this.#tabs.post({ m: "command", command, reads }),
          true
        );
      }
      this.#setStatus(message.status);
    } else {
      this.#copy(message);
    }
  }
  /** Applies a state of the leader. */
  #copy({ frame, base }) {
    const held = this.#state.view.badge;
    const sameEpoch = held?.epoch === frame.badge.epoch;
    if (base === void 0 && sameEpoch && frame.badge.version <= held.version) return;
    const complete = frame.t === "snapshot" || sameEpoch && held.version >= (base ?? 0);
    const applied = complete ? this.#state.apply(frame) : "foreign";
    if (applied === "foreign") this.#tabs.post({ m: "hello" });
    else this.#refresh();
  }
  /** The commands known to this tab that the server's state does not reflect. */
  get #pending() {
    const { waiting, merged: merged2, settling } = this.#others;
    const known = /* @__PURE__ */ new Set([...merged2, ...[...waiting, ...settling].map(({ id }) => id)]);
    return {
      merged: [...merged2, ...this.#outbox.merged],
      waiting: [...waiting, ...this.#outbox.commands.filter(({ id }) => !known.has(id))],
      settling: [...settling, ...this.#settling.commands]
    };
  }
  /** Recomputes the view. */
  #look() {
    this.#settling.settle(this.#state.view);
    const { waiting, settling } = this.#pending;
    const next = overlay(this.#state.view, [...settling, ...waiting]);
    this.#view = difference(this.#view, next).view;
  }
  /**
   * Recomputes the view and calls the listeners. Changes that listeners make are
   * emitted afterwards, by the same call.
   */
  #refresh() {
    if (this.#telling) return;
    this.#telling = true;
    let changed = true;
    while (changed) {
      this.#look();
      const statuses = this.#untold.splice(0);
      const { conversations, badge } = difference(this.#told, this.#view);
      this.#told = this.#view;
      for (const status of statuses) this.#emitter.emit("status", status);
      for (const conversation of conversations) this.#emitter.emit("conversation", conversation);
      if (badge !== void 0) this.#emitter.emit("total", badge);
      const moved = this.#tellPending();
      changed = moved || statuses.length + conversations.length > 0 || badge !== void 0;
    }
    this.#telling = false;
  }
  #tellPending() {
    const pending = this.#pending;
    const idsOf = (commands) => commands.map(({ id }) => id).join(" ");
    const [waiting, settling] = [idsOf(pending.waiting), idsOf(pending.settling)];
    const merged2 = pending.merged.join(" ");
    const [toldWaiting, toldSettling, toldMerged] = this.#toldPending;
    if (waiting === toldWaiting && settling === toldSettling && merged2 === toldMerged) return false;
    this.#toldPending = [waiting, settling, merged2];
    if (this.#tabs.leads) this.#tabs.post({ m: "pending", ...pending });
    if (waiting !== toldWaiting) this.#emitter.emit("waiting", pending.waiting);
    return true;
  }
  #setStatus(status) {
    this.#status = status;
    this.#untold.push(status);
    if (this.#tabs.leads) this.#tabs.post({ m: "status", status, elected: false });
    this.#refresh();
  }
};
function upTo(t, conversationId, upToSeq) {
  const seq = seqOf("upToSeq", upToSeq) || 1;
  return toCommand({ t, id: randomId(), conversationId, upToSeq: seq });
}

// sdk/src/display.ts
function countOf(client, { category, conversation, count } = {}) {
  const state = conversation === void 0 ? void 0 : client.conversations.get(conversation);
  const numbers2 = conversation === void 0 ? numbersOf(client, category) : (state && shareOf(state, client.badge?.levels ?? {})) ?? NO_NUMBERS;
  if (count === "conversations") return numbers2.unreadConversations;
  if (count === "muted") return numbers2.muted.total;
  return numbers2[count === void 0 || count === "messages" ? "total" : count];
}
function onCount(client, { conversation }, call) {
  const ignoreBadge = client.on("total", call);
  if (conversation === void 0) return ignoreBadge;
  const ignoreConversation = client.on("conversation", ({ conversationId }) => {
    if (conversationId === conversation) call();
  });
  return () => {
    ignoreBadge();
    ignoreConversation();
  };
}
function formatCount(count, most = 99) {
  if (count <= 0) return "";
  return count > most ? `${most}+` : String(count);
}
function showInTitle(client, part) {
  if (!globalThis.document) return () => {
  };
  const show = (count) => {
    const title = document.title.replace(/^\(\d+\+?\)( |$)/, "");
    document.title = count === "" ? title : `(${count}) ${title}`;
  };
  return follow(client, part, (count) => show(formatCount(count)));
}
function showOnApp(client, part) {
  const { navigator: navigator2 } = globalThis;
  return follow(client, part, (count) => void navigator2?.setAppBadge?.(count).catch(() => {
  }));
}
function showOnFavicon(client, options = {}) {
  if (!globalThis.document) return () => {
  };
  const link2 = document.querySelector('link[rel~="icon"]') ?? document.head.appendChild(Object.assign(document.createElement("link"), { rel: "icon" }));
  const { dataset } = link2;
  dataset.badgedHref ??= link2.getAttribute("href") ?? "";
  dataset.badgedType ??= link2.type;
  const { badgedHref: href, badgedType: type } = dataset;
  const image = new Image();
  image.src = options.icon ?? (href || "/favicon.ico");
  let latest = "";
  const show = async (count) => {
    latest = count;
    if (count === "") {
      link2.type = type;
      link2.setAttribute("href", href);
      return;
    }
    await image.decode().catch(() => {
    });
    if (count !== latest) return;
    link2.type = "image/png";
    link2.href = drawFavicon(image, count, options);
  };
  return follow(client, options, (count) => void show(formatCount(count)));
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
function follow(client, part, show) {
  const update = () => show(countOf(client, part));
  update();
  const stop = onCount(client, part ?? {}, update);
  return () => {
    stop();
    show(0);
  };
}

// page/dom.ts
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === void 0 || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}
function spoken(text = "") {
  return h("span", { class: "spoken" }, text);
}
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function find(selector) {
  const element = document.querySelector(selector);
  if (element === null) throw new Error(`no element matches ${selector}`);
  return element;
}
function oncePerFrame(call) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      call();
    });
  };
}
function animate(element, keyframes, durationMs) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return void 0;
  return element.animate(keyframes, {
    duration: durationMs,
    easing: "cubic-bezier(0.2, 0.8, 0.2, 1)"
  });
}
var time = new Intl.DateTimeFormat(void 0, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23"
});
var timeWithSeconds = new Intl.DateTimeFormat(void 0, { timeStyle: "medium" });
function clock(date) {
  return time.format(date);
}
function clockToTheSecond(date) {
  return timeWithSeconds.format(date);
}
function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

// demo/src/timed.ts
var TimedButton = class {
  #button;
  #text;
  #action;
  #until = 0;
  #timer;
  constructor(button, action) {
    this.#button = button;
    this.#text = button.lastElementChild ?? button;
    this.#action = action;
    button.addEventListener("click", async () => {
      await action.set(this.#until > 0 ? 0 : action.ms).catch(() => {
      });
    });
  }
  /** Shows the time left, and returns whether that starts or ends it. */
  show(ms) {
    const was = this.#until > 0;
    const is = ms > 0;
    this.#until = is ? Date.now() + ms : 0;
    this.#button.dataset.on = String(is);
    if (is && !was) this.#timer = setInterval(() => this.#tick(), 250);
    if (!is) clearInterval(this.#timer);
    this.#draw();
    if (is === was) return void 0;
    return is ? "starts" : "ends";
  }
  #tick() {
    if (Date.now() < this.#until) this.#draw();
    else this.#action.onOver();
  }
  #draw() {
    const { offer, end } = this.#action;
    const seconds = Math.ceil((this.#until - Date.now()) / 1e3);
    setText(this.#text, this.#until > 0 ? `${end} (${seconds} s)` : offer);
  }
};

// demo/src/bus.ts
var CUT_MS = 12e3;
var BusButton = class {
  #button;
  #server;
  #log;
  #onCut;
  #lostBefore = 0;
  constructor(button, server2, log2, onCut) {
    this.#onCut = onCut;
    this.#server = server2;
    this.#log = log2;
    this.#button = new TimedButton(button, {
      offer: "Cut the bus link",
      end: "Restore the bus link",
      ms: CUT_MS,
      set: (ms) => server2.cutLink(ms),
      onOver: () => void this.sync()
    });
  }
  /** Fetches the state of the link. */
  async sync() {
    const state = await this.#server.link().catch(() => void 0);
    if (state !== void 0) this.show(state);
  }
  show({ cut_ms, lost }) {
    const change = this.#button.show(cut_ms);
    if (change === "starts") {
      this.#lostBefore = lost;
      this.#log.note(
        "bus link cut",
        "Updates are lost until it is restored; only reconciliation finds them"
      );
    } else if (change === "ends") {
      const updates = plural(lost - this.#lostBefore, "update");
      this.#log.note("bus link restored", `It has lost ${updates}, but no counts`);
    }
    this.#onCut(cut_ms > 0);
  }
};

// demo/src/chat.ts
var KEPT = 200;
var Chat = class {
  #messages = /* @__PURE__ */ new Map();
  /** In order of seq. The array is immutable: a new message creates a new one. */
  messages(conversationId) {
    return this.#messages.get(conversationId) ?? [];
  }
  /**
   * Adds a message or applies its recall; false if it was known, as after a
   * reconnect.
   */
  add(message) {
    const messages = this.messages(message.conversation_id);
    const known = messages.find(({ seq }) => seq === message.seq);
    if (known !== void 0 && known.recalled === message.recalled) return false;
    const others = messages.filter((other) => other !== known);
    const all = [...others, message].sort((a, b) => a.seq - b.seq);
    this.#messages.set(message.conversation_id, all.slice(-KEPT));
    return true;
  }
};

// demo/src/count.ts
var CountButton = class {
  constructor(button, onChange) {
    const text = button.querySelector("span");
    let count = "messages";
    button.addEventListener("click", () => {
      const before = count;
      count = before === "messages" ? "conversations" : "messages";
      if (text !== null) setText(text, `Count ${before}`);
      onChange(count);
    });
  }
};
function unread(count, kind) {
  return kind === "messages" ? `${count} unread` : `${plural(count, "conversation")} unread`;
}

// demo/src/changes.ts
var RETRY_MS2 = 400;
var Changes = class {
  element = h("div", { class: "changes", "aria-live": "polite" });
  #cast;
  #server;
  #onKnown;
  #timer;
  #closed = false;
  /** `onKnown` receives the users with changed badges. */
  constructor(event, cast2, server2, onKnown) {
    this.#cast = cast2;
    this.#server = server2;
    this.#onKnown = onKnown;
    const users = event.users.filter((id) => cast2.users.some(({ user_id }) => user_id === id));
    if (users.length > 0) {
      this.element.append(h("p", { class: "changes-note" }, "Searching the log…"));
      void this.#ask(event, users);
      return;
    }
    const more = event.others ? ` and ${event.others} others` : "";
    const others = event.users.join(", ") || "no user";
    this.element.append(
      h("p", { class: "changes-note" }, `Concerns ${others}${more}: no phone here.`)
    );
  }
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.element.remove();
  }
  async #ask(event, users) {
    const changes = await this.#server.changes(event, users).catch(() => void 0);
    if (this.#closed) return;
    if (changes === void 0 || changes.length < users.length) {
      this.#timer = setTimeout(() => void this.#ask(event, users), RETRY_MS2);
      return;
    }
    this.element.replaceChildren(...changes.map((change) => this.#draw(change)));
    this.#onKnown(
      changes.filter(({ before, after }) => before !== after).map(({ user_id }) => user_id)
    );
  }
  #draw(change) {
    const user = this.#cast.users.find(({ user_id }) => user_id === change.user_id);
    const { before, after } = change;
    const total = before === after ? h("span", { class: "change-total is-same" }, `stays ${after}`) : h(
      "span",
      { class: "change-total" },
      `${before} `,
      h("span", { "aria-label": "to" }, "→"),
      " ",
      h("strong", {}, String(after))
    );
    const row = h(
      "div",
      { class: "change" },
      h("span", { class: "change-name" }, user?.name ?? change.user_id),
      total,
      ...reasons(change, this.#cast).map((text) => h("span", { class: "change-why" }, text))
    );
    row.style.setProperty("--user", user?.color ?? "var(--quiet)");
    return row;
  }
};
function reasons({ conversations, detail }, cast2) {
  const texts = conversations.map((c) => {
    const known = cast2.conversations.find((other) => other.conversation_id === c.conversation_id);
    const name = known?.name ?? c.conversation_id;
    const unread2 = c.unread_before === c.unread_after ? `${c.unread_after} unread` : `${c.unread_before} → ${c.unread_after} unread`;
    const level = c.level === "none" ? ", muted" : c.level === "mentions" ? ", only mentions count" : "";
    return `${name}: ${unread2}${level}`;
  });
  if (texts.length > 0) return texts;
  return [detail ?? "nothing that counts changed"];
}

// demo/src/log.ts
var KEPT2 = 150;
var EventLog = class {
  #list;
  #count;
  #server;
  #seen = /* @__PURE__ */ new Set();
  #total = 0;
  #cast = { users: [], conversations: [] };
  #onChanged = () => {
  };
  #open;
  constructor(list, count, server2) {
    this.#list = list;
    list.tabIndex = 0;
    this.#count = count;
    this.#server = server2;
  }
  /** Sets the users, and the listener for the users that the open event changed. */
  begin(cast2, onChanged) {
    this.#cast = cast2;
    this.#onChanged = onChanged;
  }
  /** How many events were added. */
  get total() {
    return this.#total;
  }
  /** Adds an event, unless it is known, as after a reconnect. */
  add(event) {
    const name = `${event.position} ${event.source} ${event.id}`;
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    this.#total++;
    this.#put(this.#draw(event));
    setText(this.#count, `${this.#total} events`);
  }
  /** Adds a note that is not an event of the log. */
  note(title, text) {
    this.#put(
      h(
        "li",
        { class: "event", "data-kind": "note" },
        h("span", { class: "event-type" }, title),
        h("span", { class: "event-summary" }, text)
      )
    );
  }
  #put(row) {
    const { scrollTop, scrollHeight } = this.#list;
    this.#list.prepend(row);
    if (this.#open !== void 0 && scrollTop > 0) {
      this.#list.scrollTop = scrollTop + this.#list.scrollHeight - scrollHeight;
    }
    animate(row, [{ opacity: 0, transform: "translateY(-8px)" }, { transform: "none" }], 300);
    while (this.#list.childElementCount > KEPT2) {
      const oldest = this.#list.lastElementChild;
      if (this.#open && oldest?.contains(this.#open.button)) this.#close();
      oldest?.remove();
    }
  }
  #draw(event) {
    const { position, type, source, id, summary, time: time2 } = event;
    const button = h(
      "button",
      { class: "event-button", type: "button", "aria-expanded": "false" },
      h("span", { class: "event-type" }, type || "not decoded"),
      h("span", { class: "event-position" }, position),
      h("span", { class: "event-summary" }, summary)
    );
    const row = h(
      "li",
      {
        class: "event",
        "data-kind": type,
        title: `${clockToTheSecond(new Date(time2))}, ${source} ${id}`
      },
      button
    );
    button.addEventListener("click", () => {
      const wasOpen = this.#open?.button === button;
      this.#close();
      if (wasOpen) return;
      button.setAttribute("aria-expanded", "true");
      const changes = new Changes(event, this.#cast, this.#server, this.#onChanged);
      this.#open = { button, changes };
      row.append(changes.element);
    });
    return row;
  }
  #close() {
    this.#open?.button.setAttribute("aria-expanded", "false");
    this.#open?.changes.close();
    this.#open = void 0;
    this.#onChanged([]);
  }
};

// demo/src/people.ts
var People = class {
  #badges = /* @__PURE__ */ new Map();
  constructor(bar, phones) {
    const buttons = phones.map((phone) => {
      const badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
      const said = spoken();
      this.#badges.set(phone, { badge, said });
      const face = h(
        "span",
        { class: "avatar is-direct", "aria-hidden": "true" },
        phone.user.name.slice(0, 1),
        badge
      );
      face.style.setProperty("--user", phone.user.color);
      const button = h(
        "button",
        { class: "person", type: "button" },
        face,
        h("span", { class: "person-name" }, phone.user.name),
        said
      );
      button.addEventListener(
        "click",
        () => phone.element.scrollIntoView({ inline: "center", block: "nearest" })
      );
      return button;
    });
    bar.replaceChildren(...buttons);
  }
  update() {
    for (const [{ total: count, closed, count: kind }, { badge, said }] of this.#badges) {
      badge.hidden = count === 0;
      setText(badge, formatCount(count));
      setText(said, `, ${unread(count, closed ? "messages" : kind)}`);
    }
  }
};

// sdk/src/worker.ts
function isNewer(push, shown3) {
  return shown3 === void 0 || push.epoch !== shown3.epoch || push.version > shown3.version;
}

// demo/src/icons.ts
var SVG = "http://www.w3.org/2000/svg";
var PATHS = {
  back: "M15 5l-7 7 7 7",
  bell: "M6 9a6 6 0 0 1 12 0c0 5 2 7 2 7H4s2-2 2-7M10 20a2 2 0 0 0 4 0",
  chat: "M21 11.5a8.4 8.4 0 0 1-12.3 7.4L3 21l2.1-5.6A8.4 8.4 0 1 1 21 11.5z",
  down: "M12 5v14M6 13l6 6 6-6",
  feed: "M3 11v2a1 1 0 0 0 1 1h3l7 4V6L7 10H4a1 1 0 0 0-1 1zM18 9a4 4 0 0 1 0 6",
  group: "M5 9h14M5 15h14M10 4L8 20M16 4l-2 16",
  muted: "M6 9a6 6 0 0 1 9-5.2M18 11c0 4 2 5 2 5H8M4 16s2-1 2-5M10 20a2 2 0 0 0 4 0M3 3l18 18",
  mention: "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM16 8v5a2.5 2.5 0 0 0 5 0v-1a9 9 0 1 0-3.6 7.2",
  recall: "M9 14L4 9l5-5M4 9h9a6 6 0 0 1 0 12h-2",
  room: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.2a3.5 3.5 0 0 1 0 6.6M18 14.2a6.5 6.5 0 0 1 3.5 5.8",
  send: "M12 20V5M5 12l7-7 7 7",
  thread: "M5 4v8a4 4 0 0 0 4 4h10M15 12l4 4-4 4",
  unread: "M12 12m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0"
};
function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

// demo/src/home.ts
var STATUS = {
  stopped: "Offline",
  connecting: "Connecting…",
  online: "Live",
  waiting: "Reconnecting…",
  refused: "Refused"
};
var Home = class {
  element;
  #time = h("span", { class: "bar-time" });
  #status = h("span");
  #badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
  #icon = h("div", { class: "app-icon" }, icon("chat"), this.#badge);
  #said = spoken();
  #parts = h("p", { class: "parts", "aria-hidden": "true" });
  #mentions = h("p", { class: "mentions" });
  #behind = h("p", { class: "behind", hidden: true });
  #open = h(
    "button",
    { class: "open-app", type: "button" },
    h("strong", {}, "App closed"),
    h("span", {}, "Only a push reaches the icon. Tap to open.")
  );
  #closed = h("div", { class: "closed", hidden: true }, this.#open);
  /** The user taps the closed app. */
  onOpen = () => {
  };
  #shown;
  constructor(user) {
    this.element = h(
      "header",
      { class: "home" },
      h(
        "div",
        { class: "bar" },
        this.#time,
        h(
          "span",
          { class: "link" },
          h("span", { class: "link-dot", "aria-hidden": "true" }),
          this.#status
        )
      ),
      h(
        "div",
        { class: "home-row" },
        this.#icon,
        h(
          "div",
          { class: "who" },
          h("h2", {}, user.name),
          this.#said,
          this.#parts,
          this.#mentions,
          this.#behind
        )
      ),
      this.#closed
    );
    this.#open.addEventListener("click", () => this.onOpen());
  }
  setClosed(closed) {
    this.#closed.hidden = !closed;
  }
  /** Shows the icon of a closed app, whose number was pushed. */
  showClosed(count, pushes) {
    setText(this.#time, clock(/* @__PURE__ */ new Date()));
    setText(this.#status, "App closed");
    this.showBehind(void 0);
    const came = pushes === 1 ? "1 push" : `${pushes} pushes`;
    this.showBadge(count, unread(count, "messages"), "", true, 0);
    setText(this.#parts, came);
  }
  /** `waiting` is the number of pending commands. */
  update(status, waiting) {
    setText(this.#time, clock(/* @__PURE__ */ new Date()));
    const word = STATUS[status.state];
    setText(this.#status, waiting > 0 ? `${word} · ${waiting} waiting` : word);
    const why = status.state === "waiting" || status.state === "refused" ? status.reason : "";
    if (this.element.title !== why) this.element.title = why;
  }
  /** `said` is the count in words, `what` what it is made of, and `right` whether that fits. */
  showBadge(count, said, what, right, mentions) {
    setText(this.#said, said);
    setText(this.#parts, count === 0 ? "All caught up" : what);
    this.#parts.classList.toggle("is-wrong", !right);
    setText(this.#mentions, mentions > 0 ? plural(mentions, "mention") : "");
    if (count === this.#shown) return;
    const before = this.#shown;
    this.#shown = count;
    this.#badge.hidden = count === 0;
    setText(this.#badge, formatCount(count));
    animate(
      this.#badge,
      [{ transform: "scale(0.6)" }, { transform: "scale(1.25)" }, { transform: "none" }],
      380
    );
    if (before !== void 0) this.#float(count - before);
  }
  /** Shows that the numbers are out of date, with the correct total; undefined removes it. */
  showBehind(total) {
    this.#behind.hidden = total === void 0;
    this.#parts.hidden = this.#mentions.hidden = total !== void 0;
    setText(this.#behind, total === void 0 ? "" : `Stale: now ${total}`);
  }
  /** Animates a ring around the badge. */
  showCaughtUp() {
    const ring = h("span", { class: "caught-up", "aria-hidden": "true" });
    this.#icon.append(ring);
    const grow = animate(
      ring,
      [
        { transform: "scale(0.8)", opacity: 1 },
        { transform: "scale(1.5)", opacity: 0 }
      ],
      1400
    );
    if (grow === void 0) ring.remove();
    else grow.onfinish = () => ring.remove();
  }
  /** Animates the change of the total above the badge. */
  #float(difference2) {
    const sign = difference2 > 0 ? "+" : "−";
    const delta = h(
      "span",
      { class: "delta", "aria-hidden": "true" },
      `${sign}${Math.abs(difference2)}`
    );
    this.#icon.append(delta);
    const rise = animate(
      delta,
      [
        { transform: "translateY(0)", opacity: 0 },
        { opacity: 1, offset: 0.2 },
        { transform: "translateY(-14px)", opacity: 0 }
      ],
      1100
    );
    if (rise === void 0) delta.remove();
    else rise.onfinish = () => delta.remove();
  }
};

// demo/src/list.ts
var BELL = "bell";
var ConversationList = class {
  element;
  #rows = /* @__PURE__ */ new Map();
  #channels = [];
  #topics;
  #tabs;
  #chosen;
  /** `onChoose` is called with a workspace, with the bell, or with undefined for all. */
  constructor(topics, owner, onOpen, onChoose) {
    this.#topics = topics;
    const list = h("ul", { class: "rows", "aria-label": `Conversations of ${owner}` });
    for (const topic of topics) {
      if (this.#channels.at(-1)?.category !== topic.category) {
        const channel = new Channel(topic.category);
        this.#channels.push(channel);
        list.append(channel.element);
      }
      const row = new Row(topic, () => onOpen(topic));
      this.#rows.set(topic.id, row);
      list.append(row.element);
    }
    const tops = topics.map(({ category }) => category.replace(/\/.*/, ""));
    this.#tabs = new Tabs2([...new Set(tops)], (category) => {
      this.#chosen = category;
      this.#filter();
      onChoose(category);
    });
    this.element = h("div", { class: "list" }, list, this.#tabs.element);
  }
  update(count, state) {
    for (const topic of this.#topics) this.#rows.get(topic.id)?.update(state(topic));
    for (const channel of this.#channels) channel.update(count);
    this.#filter();
    this.#tabs.update(count);
  }
  /** Focuses a row, for example after its conversation was closed. */
  focus(topic) {
    this.#rows.get(topic.id)?.button.focus();
  }
  #filter() {
    const chosen = this.#chosen;
    for (const { category, element } of this.#channels) {
      element.hidden = chosen === void 0 || !covers(chosen, category);
    }
    for (const { id, category, late } of this.#topics) {
      const row = this.#rows.get(id);
      if (row === void 0) continue;
      const shown3 = chosen === void 0 || covers(chosen, category);
      row.element.hidden = !shown3 || late && !row.hasMessages;
    }
  }
};
var Pair = class {
  element = h("span", { class: "pair" });
  #category;
  #drawn = "";
  constructor(category) {
    this.#category = category;
  }
  update(count) {
    const red = count(this.#category, this.#category === BELL ? "unseen" : void 0);
    const grey = count(this.#category, "muted");
    if (this.#drawn === `${red},${grey}`) return;
    this.#drawn = `${red},${grey}`;
    this.element.replaceChildren(
      h("span", { class: "pair-counted" }, formatCount(red)),
      h("span", { class: "pair-muted", "aria-hidden": "true" }, formatCount(grey))
    );
    if (grey > 0) this.element.append(spoken(`, ${grey} muted`));
  }
};
var Channel = class {
  element;
  #pair;
  category;
  constructor(category) {
    this.category = category;
    this.#pair = new Pair(category);
    const name = category.slice(category.indexOf("/") + 1);
    this.element = h("li", { class: "channel", hidden: true }, `# ${name}`, this.#pair.element);
  }
  update(count) {
    this.#pair.update(count);
  }
};
var Row = class {
  element;
  button;
  hasMessages = false;
  #preview = h("span", { class: "row-preview" });
  #time = h("span", { class: "row-time" });
  #marks = h("span", { class: "row-marks" });
  #level = h("span", { class: "row-level" });
  #drawn = "";
  constructor(topic, onOpen) {
    const title = h(
      "span",
      { class: "row-title" },
      h("span", { class: "row-name" }, topic.title),
      this.#level
    );
    this.button = h(
      "button",
      { class: "row", type: "button" },
      avatar(topic),
      h(
        "span",
        { class: "row-lines" },
        h("span", { class: "row-line" }, title, this.#time),
        h("span", { class: "row-line" }, this.#preview, this.#marks)
      )
    );
    this.button.addEventListener("click", onOpen);
    this.element = h("li", topic.kind === "thread" ? { class: "thread-row" } : {}, this.button);
  }
  update({ conversation, levels, last, preview }) {
    this.hasMessages = conversation !== void 0;
    setText(this.#preview, preview);
    setText(this.#time, last ? ago(new Date(last.time)) : "");
    const { unread: unread2 = 0, mentions = 0, markedUnread = false } = conversation ?? {};
    const level = (conversation && levelOf(conversation, levels)) ?? "all";
    const marks = [unread2, mentions, level, markedUnread].join();
    if (marks === this.#drawn) return;
    this.#drawn = marks;
    this.button.classList.toggle("is-unread", unread2 > 0 || markedUnread);
    this.#level.replaceChildren(...levelMark(level));
    this.#marks.replaceChildren();
    if (mentions > 0) {
      this.#marks.append(
        h(
          "span",
          { class: level === "none" ? "pill is-quiet" : "pill", "aria-hidden": "true" },
          "@"
        ),
        spoken(`, ${plural(mentions, "mention")}`)
      );
    }
    if (unread2 > 0 || markedUnread) {
      const share2 = conversation && shareOf(conversation, levels);
      const counts = (share2?.total ?? 0) >= Math.max(unread2, 1);
      this.#marks.append(
        h(
          "span",
          { class: counts ? "pill" : "pill is-quiet", "aria-hidden": "true" },
          formatCount(unread2) || " "
        ),
        spoken(unread2 > 0 ? `, ${unread2} unread` : ", marked unread")
      );
    }
  }
};
function levelMark(level) {
  if (level === "none") return [icon("muted"), spoken(", muted")];
  if (level === "mentions")
    return [h("span", { "aria-hidden": "true" }, "@ only"), spoken(", only mentions count")];
  return [];
}
function avatar({ kind, title, color }) {
  const picture = h("span", { class: `avatar is-${kind}`, "aria-hidden": "true" });
  if (kind === "direct") picture.append(title.slice(0, 1));
  else picture.append(icon(kind));
  if (color !== void 0) picture.style.setProperty("--user", color);
  return picture;
}
var Tabs2 = class {
  element;
  #pairs = [];
  constructor(categories, onChoose) {
    const buttons = [];
    this.element = h("div", { class: "tabs", role: "group", "aria-label": "Workspaces" });
    for (const category of [void 0, ...categories]) {
      const name = category ?? "all";
      const pair = new Pair(category);
      const button = h(
        "button",
        { class: "tab", type: "button", "aria-pressed": String(category === void 0) },
        ...category === BELL ? [icon("bell"), spoken("Bell")] : [capital(name)],
        pair.element
      );
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        onChoose(category);
      });
      buttons.push(button);
      this.#pairs.push(pair);
    }
    this.element.append(...buttons);
  }
  update(count) {
    for (const pair of this.#pairs) pair.update(count);
  }
};
function capital(name) {
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}
function ago(then) {
  const seconds = Math.max(0, (Date.now() - then.getTime()) / 1e3);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

// demo/src/parts.ts
function sum2(badge, conversations) {
  const parts = [...conversations].map((one) => shareOf(one, badge.levels)?.total ?? 0).filter((part) => part > 0);
  return { parts, holds: parts.reduce((total, part) => total + part, 0) === badge.total };
}

// demo/src/server.ts
function nameOf(userId, users) {
  return users.get(userId)?.name ?? userId.replace(/^guest-/, "Guest ");
}
var RETRY_MS3 = 2e3;
var DemoServer = class {
  #cast;
  /** The last request to each path that changed something. */
  #posted = /* @__PURE__ */ new Map();
  /** The users and their conversations. Concurrent calls share an answer. */
  cast() {
    this.#cast ??= request("GET", "demo/users").finally(() => {
      this.#cast = void 0;
    });
    return this.#cast;
  }
  /** A fresh token of a user. */
  async token(userId) {
    const { users } = await this.cast();
    const user = users.find(({ user_id }) => user_id === userId);
    if (user === void 0)
      throw new Error(`the demo no longer has the user ${userId}: reload the page`);
    return user.token;
  }
  async send(conversationId, senderId, text) {
    await this.#post("demo/messages", {
      conversation_id: conversationId,
      sender_id: senderId,
      text
    });
  }
  async recall({ conversation_id, sender_id, seq }) {
    await this.#post("demo/recalls", { conversation_id, sender_id, seq });
  }
  async setLevel(conversationId, userId, level) {
    await this.#post("demo/levels", {
      conversation_id: conversationId,
      user_id: userId,
      level
    });
  }
  /** What an event changed. Users whose partition has not folded it yet are missing. */
  async changes(event, users) {
    const query = new URLSearchParams([
      ["source", event.source],
      ["id", event.id],
      ["transaction", event.position.split("/")[0] ?? ""],
      ...users.map((user) => ["user", user])
    ]);
    return (await request("GET", `demo/changes?${query}`)).changes;
  }
  /** The badge of a user in the tables, read without the bus. */
  badge(user) {
    return request("GET", `v1/users/${user.user_id}/badge`, void 0, user.token);
  }
  link() {
    return request("GET", "demo/bus");
  }
  /** Cuts the bus link for a while; 0 restores it. */
  cutLink(cutMs) {
    return this.#post("demo/bus", { cut_ms: cutMs });
  }
  transaction() {
    return request("GET", "demo/transaction");
  }
  /** Opens a transaction and leaves it open for a while; 0 ends it. */
  openTransaction(openMs) {
    return this.#post("demo/transaction", { open_ms: openMs });
  }
  crowd() {
    return request("GET", "demo/room");
  }
  /** Lets guests join or leave until the room has that many members. */
  setMembers(members) {
    return this.#post("demo/room", { members });
  }
  /** Sends messages to the room, or to a group of the same users. */
  sendToAll(conversationId, messages) {
    return this.#post("demo/room/messages", { conversation_id: conversationId, messages });
  }
  async phones() {
    return (await request("GET", "demo/phones")).phones;
  }
  /** Registers the device of a phone at badged, as an app does when it starts. */
  async register({ token, user_id }, { device, app, subscription }) {
    const path = `v1/users/${user_id}/devices/${device}`;
    await request("PUT", path, { platform: "unifiedpush", app, subscription }, token);
  }
  /** Opens or closes the app of a phone, on all pages. */
  setClosed(userId, closed) {
    return this.#post("demo/phones", { user_id: userId, closed });
  }
  async isRunning() {
    return (await request("GET", "demo/simulation")).running;
  }
  async setRunning(running) {
    return (await this.#post("demo/simulation", { running })).running;
  }
  /** Follows the chat and the log while the page is open. */
  follow(listener) {
    const source = new EventSource("demo/feed");
    source.onopen = () => listener.onOpen();
    source.onerror = () => {
      listener.onLost();
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.follow(listener), RETRY_MS3);
    };
    source.addEventListener("message", ({ data }) => listener.onMessage(JSON.parse(data)));
    source.addEventListener("log", ({ data }) => listener.onLogged(JSON.parse(data)));
    source.addEventListener("link", ({ data }) => listener.onLink(JSON.parse(data)));
    source.addEventListener("transaction", ({ data }) => listener.onTransaction(JSON.parse(data)));
    source.addEventListener("phone", ({ data }) => listener.onPhone(JSON.parse(data)));
    source.addEventListener("room", ({ data }) => listener.onCrowd(JSON.parse(data)));
  }
  /** One request to a path at a time: the next could overtake it. */
  #post(path, body) {
    const before = this.#posted.get(path) ?? Promise.resolve();
    const answer = before.then(() => request("POST", path, body));
    this.#posted.set(
      path,
      answer.catch(() => void 0)
    );
    return answer;
  }
};
async function request(method, path, body, token) {
  const response = await fetch(path, {
    method,
    ...body && { body: JSON.stringify(body) },
    headers: {
      ...body && { "Content-Type": "application/json" },
      ...token && { Authorization: `Bearer ${token}` }
    }
  });
  if (!response.ok) throw new Error(`${method} ${path}: status ${response.status}`);
  return response.json();
}

// demo/src/thread.ts
var LEVELS2 = [
  { level: "all", icon: "bell", name: "everything counts" },
  { level: "mentions", icon: "mention", name: "only mentions count" },
  { level: "none", icon: "muted", name: "muted" }
];
var END_PX = 24;
var Thread = class {
  element;
  #options;
  #messages;
  #empty = h("p", { class: "thread-empty" }, "No messages on this page yet.");
  #below;
  #belowCount = h("span");
  #compose;
  #back;
  #level = h("button", { class: "thread-button", type: "button" });
  #levelAt = -1;
  #drawn = [];
  constructor(options) {
    this.#options = options;
    const { topic, owner } = options;
    this.#back = h(
      "button",
      {
        class: "thread-button",
        type: "button",
        "aria-label": `Back to ${owner.name}'s conversations`
      },
      icon("back")
    );
    this.#back.addEventListener("click", options.onClose);
    const unread2 = h(
      "button",
      { class: "thread-button", type: "button", "aria-label": "Mark unread", title: "Mark unread" },
      icon("unread")
    );
    unread2.addEventListener("click", options.onMarkUnread);
    this.#level.addEventListener("click", () => {
      const next = LEVELS2[(this.#levelAt + 1) % LEVELS2.length];
      if (next) options.onLevel(next.level);
    });
    this.#messages = h("div", {
      class: "messages",
      role: "log",
      tabindex: "0",
      "aria-label": `Messages in ${topic.title}`
    });
    this.#below = h(
      "button",
      { class: "below", type: "button", hidden: true },
      icon("down"),
      this.#belowCount
    );
    this.#below.addEventListener("click", () => this.#scrollToEnd());
    this.element = h(
      "section",
      { class: "thread", "aria-label": `${topic.title}, opened by ${owner.name}` },
      h(
        "header",
        { class: "thread-head" },
        this.#back,
        h("h3", {}, topic.title),
        this.#level,
        unread2
      ),
      h("div", { class: "thread-body" }, this.#messages, this.#below)
    );
    if (topic.kind !== "feed") {
      this.#compose = new Compose(topic, options.onSend);
      this.element.append(this.#compose.element);
    }
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") options.onClose();
    });
    this.#messages.addEventListener(
      "scroll",
      oncePerFrame(() => {
        this.#updateBelow();
        options.onScroll();
      }),
      { passive: true }
    );
  }
  get topic() {
    return this.#options.topic;
  }
  /** Call it once the thread is attached to the page. */
  opened() {
    this.#back.focus({ preventScroll: true });
    const divider = this.#messages.querySelector(".divider");
    if (divider) this.#messages.scrollTop = divider.offsetTop - 8;
    else this.#scrollToEnd();
  }
  /** Shows the messages, and what the conversation adds to the total. */
  update(messages, level, online) {
    this.#compose?.setOnline(online);
    this.#showLevel(level);
    this.#level.disabled = !online;
    this.element.classList.toggle("is-offline", !online);
    if (messages === this.#drawn) return;
    const atEnd = this.#atEnd;
    const { scrollTop } = this.#messages;
    const known = new Set(this.#drawn);
    const grown = this.#drawn.every((message, i) => messages[i] === message);
    if (!grown) {
      known.clear();
      this.#messages.replaceChildren();
    }
    if (messages.length === 0) this.#messages.append(this.#empty);
    else this.#empty.remove();
    messages.forEach((message, i) => {
      if (!known.has(message)) this.#messages.append(...this.#draw(message, messages[i - 1]));
    });
    this.#drawn = messages;
    if (atEnd) this.#scrollToEnd();
    else if (!grown) this.#messages.scrollTop = scrollTop;
    this.#updateBelow();
  }
  /**
   * The newest message on the screen; undefined if the page has no messages of
   * the conversation.
   */
  get newestShown() {
    if (this.#atEnd) return this.#drawn.at(-1)?.seq;
    const bottom = this.#messages.scrollTop + this.#messages.clientHeight;
    const shown3 = this.#bubbles.reverse().find((bubble) => bubble.offsetTop + bubble.offsetHeight <= bottom);
    return shown3 === void 0 ? void 0 : Number(shown3.dataset.seq);
  }
  get #bubbles() {
    return [...this.#messages.querySelectorAll(".message")];
  }
  get #atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.#messages;
    return scrollTop + clientHeight >= scrollHeight - END_PX;
  }
  #showLevel(level) {
    const at2 = LEVELS2.findIndex((known) => known.level === level);
    const shown3 = LEVELS2[at2];
    const next = LEVELS2[(at2 + 1) % LEVELS2.length];
    if (at2 === this.#levelAt || !shown3 || !next) return;
    this.#levelAt = at2;
    this.#level.replaceChildren(icon(shown3.icon));
    const label = `Now ${shown3.name}. Change to: ${next.name}`;
    this.#level.title = label;
    this.#level.setAttribute("aria-label", label);
  }
  #scrollToEnd() {
    this.#messages.scrollTop = this.#messages.scrollHeight;
  }
  #updateBelow() {
    const shown3 = this.newestShown ?? 0;
    const below = this.#drawn.filter(({ seq }) => seq > shown3).length;
    this.#below.hidden = below === 0 || this.#atEnd;
    setText(this.#belowCount, String(below));
    this.#below.setAttribute("aria-label", `Go to the newest message, ${below} further down`);
  }
  #draw(message, before) {
    const { owner, users, topic, firstUnreadSeq } = this.#options;
    const sender = users.get(message.sender_id);
    const own = message.sender_id === owner.user_id;
    const name = nameOf(message.sender_id, users);
    const starts = before?.sender_id !== message.sender_id;
    const bubble = h("div", {
      class: `message${own ? " is-own" : ""}${starts ? " is-first" : ""}`,
      "data-seq": String(message.seq),
      title: `#${message.seq}, ${clock(new Date(message.time))}`
    });
    bubble.style.setProperty("--user", sender?.color ?? "var(--quiet)");
    if (starts && !own && topic.kind !== "direct") {
      bubble.append(h("span", { class: "message-sender" }, name), spoken(": "));
    } else {
      bubble.append(spoken(`${own ? "You" : name}: `));
    }
    if (message.recalled) {
      bubble.classList.add("is-recalled");
      bubble.append(h("span", { class: "message-text" }, "Message recalled"));
    } else {
      bubble.append(h("span", { class: "message-text" }, ...this.#withMentions(message.text)));
      if (own) bubble.append(this.#recallButton(message));
      else bubble.append(this.#markButton(message));
    }
    const firstUnread = firstUnreadSeq > 0 && message.seq >= firstUnreadSeq && (before === void 0 || before.seq < firstUnreadSeq);
    return firstUnread ? [h("div", { class: "divider" }, "New"), bubble] : [bubble];
  }
  #recallButton(message) {
    const button = h(
      "button",
      {
        class: "recall",
        type: "button",
        title: "Recall",
        "aria-label": `Recall the message ${message.text}`
      },
      icon("recall")
    );
    button.addEventListener("click", () => {
      button.disabled = true;
      this.#messages.focus({ preventScroll: true });
      this.#options.onRecall(message);
    });
    return button;
  }
  /** The button that makes a message count again, and those of others after it. */
  #markButton({ seq, text }) {
    const title = "Unread from here";
    const button = h(
      "button",
      { class: "mark", type: "button", title, "aria-label": `${title}: ${text}` },
      icon("unread")
    );
    button.addEventListener("click", () => {
      const from = this.#drawn.filter(
        (message) => message.seq >= seq && message.sender_id !== this.#options.owner.user_id && !message.recalled
      );
      this.#options.onMarkFrom(
        seq,
        from.slice(-1e3).map((message) => message.seq)
      );
    });
    return button;
  }
  /** The text with mentions highlighted. */
  #withMentions(text) {
    const names = new Set([...this.#options.users.values()].map(({ name }) => `@${name}`));
    return text.split(/(@[\p{L}\p{N}_-]+)/u).map((part) => {
      if (!names.has(part)) return part;
      const me = part === `@${this.#options.owner.name}`;
      return h("span", { class: me ? "mention is-me" : "mention" }, part);
    });
  }
};
var Compose = class {
  element;
  #field;
  #button;
  #failed = h(
    "p",
    { class: "compose-failed", role: "alert", hidden: true },
    "Not sent. Try again."
  );
  constructor(topic, onSend) {
    this.#field = h("input", {
      type: "text",
      name: "text",
      maxlength: "300",
      autocomplete: "off",
      enterkeyhint: "send",
      placeholder: "Message",
      "aria-label": `Message to ${topic.title}`
    });
    this.#button = h("button", { type: "submit", "aria-label": "Send" }, icon("send"));
    this.element = h("form", { class: "compose" }, this.#failed, this.#field, this.#button);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#submit(onSend);
    });
  }
  setOnline(online) {
    this.#button.disabled = !online;
    this.#field.disabled = !online;
    this.#field.placeholder = online ? "Message" : "Offline";
  }
  async #submit(onSend) {
    const text = this.#field.value.trim();
    if (text === "") return;
    this.#field.value = "";
    this.#failed.hidden = true;
    try {
      await onSend(text);
    } catch {
      this.#failed.hidden = false;
      this.#field.value ||= text;
    }
  }
};

// demo/src/phone.ts
var ANNOUNCE_MS = 1e4;
var HURRY_MS = 1e3;
var THIN_PLUS = " + ";
var Phone = class {
  element;
  client;
  user;
  #options;
  #users;
  #topics;
  #list;
  #screen;
  #home;
  #switch;
  #readAllButton;
  #closeButton;
  #announcer = new Announcer();
  #count = "messages";
  #thread;
  /** Reads the conversation of the thread. */
  #reading;
  #bell;
  #closed = false;
  #pushes = 0;
  #pushed;
  /** The push that was the newest when the app was closed: the app knew more. */
  #known;
  /** The total in the tables, if the phone does not have it yet. */
  #behind;
  /** The chat that the phone shows while it is offline. */
  #frozen;
  constructor(options) {
    this.#options = options;
    const { user, cast: cast2, server: server2 } = options;
    this.user = user;
    this.#users = new Map(cast2.users.map((other) => [other.user_id, other]));
    this.#topics = topicsOf(user, cast2);
    this.client = new Badged({
      url: location.href,
      user: user.user_id,
      token: () => server2.token(user.user_id),
      ...options.device !== void 0 && { device: options.device }
    });
    this.#list = new ConversationList(
      this.#topics,
      user.name,
      (topic) => this.#open(topic),
      (category) => this.#choose(category)
    );
    this.#screen = h("div", { class: "app" }, this.#list.element);
    this.#home = new Home(user);
    this.#switch = h("input", { type: "checkbox", role: "switch", checked: true });
    this.#switch.addEventListener("change", () => this.#setOnline(this.#switch.checked));
    this.#readAllButton = h(
      "button",
      { class: "quiet-button", type: "button" },
      "Read all",
      spoken(` of ${user.name}`)
    );
    this.#readAllButton.addEventListener("click", () => this.#readAll());
    this.#closeButton = h("button", { class: "quiet-button", type: "button" });
    this.#closeButton.addEventListener("click", () => this.#ask(!this.#closed));
    this.#home.onOpen = () => this.#ask(false);
    this.element = h(
      "article",
      { class: "phone", id: `phone-${user.user_id}`, "aria-label": `${user.name}'s phone` },
      h("div", { class: "device" }, this.#home.element, this.#screen),
      h(
        "div",
        { class: "controls" },
        h(
          "label",
          { class: "switch" },
          this.#switch,
          h("span", { class: "switch-track", "aria-hidden": "true" }),
          h("span", {}, "Online"),
          spoken(`, ${user.name}'s phone`)
        ),
        this.#closeButton,
        this.#readAllButton
      ),
      this.#announcer.element
    );
    this.element.style.setProperty("--user", user.color);
    this.client.on("total", () => this.refresh());
    this.client.on("conversation", () => this.refresh());
    this.client.on("status", ({ state }) => {
      if (state === "refused") this.#switch.checked = false;
      this.refresh();
    });
  }
  /** Connects the app, or leaves it closed. */
  start(state) {
    if (state !== void 0) this.setState(state);
    if (!this.#closed) this.client.start();
    this.refresh();
  }
  /** Draws the changes before the next paint. */
  refresh = oncePerFrame(() => {
    this.#updateThread();
    if (!this.#closed) this.#read();
    this.#showControls();
    if (this.#closed) {
      this.#home.showClosed(this.total, this.#pushes);
      this.#announcer.say(`${this.user.name}: app closed, ${unread(this.total, "messages")}`);
      this.#options.onChange();
      return;
    }
    const { badge, conversations, status, more, waiting } = this.client;
    this.element.dataset.status = status.state;
    this.#home.update(status, status.state === "online" ? 0 : waiting.length);
    if (badge !== void 0) {
      const count = countOf(this.client, { count: this.#count });
      const said = unread(count, this.#count);
      const { parts, holds } = sum2(badge, conversations.values());
      const right = this.#count === "messages" ? holds : parts.length === count;
      const what = this.#count === "messages" ? `= ${parts.join(THIN_PLUS)}` : `with ${plural(badge.total, "message")}`;
      this.#home.showBadge(count, said, what, right || more, badge.mentions);
      const behind = this.#behind === void 0 ? "" : `, stale: now ${this.#behind}`;
      this.#announcer.say(
        `${this.user.name}: ${said}, ${plural(badge.mentions, "mention")}${behind}`
      );
    }
    this.#list.update(
      (category, count = this.#count) => countOf(this.client, { category, count }),
      (topic) => this.#row(topic)
    );
    this.#options.onChange();
  });
  /** The number on the icon. */
  get total() {
    const { badge } = this.client;
    if (!this.#closed) return countOf(this.client, { count: this.#count });
    const pushed = this.#pushed;
    const isNews = pushed !== void 0 && !(pushed.epoch === this.#known?.epoch && pushed.version === this.#known.version) && isNewer(pushed, badge);
    return isNews ? pushed.number : badge?.total ?? 0;
  }
  /** Whether the app is closed. */
  get closed() {
    return this.#closed;
  }
  /** Shows what the push service knows of the phone, and opens or closes the app. */
  setState({ closed, pushes, pushed }) {
    const changes = closed !== this.#closed;
    if (changes && closed) {
      this.#known = this.client.status.state === "online" ? this.#pushed : void 0;
    }
    this.#pushes = pushes;
    this.#pushed = pushed;
    this.#closed = closed;
    if (!changes) {
      if (closed) this.refresh();
      return;
    }
    this.#announcer.hurry();
    this.element.classList.toggle("is-closed", closed);
    this.#screen.inert = closed;
    this.#home.setClosed(closed);
    if (closed) {
      this.#leaveThread();
      this.client.stop();
    } else if (this.#switch.checked) {
      this.client.start();
    }
    this.refresh();
  }
  /** Asks the demo to open or close the app: other pages show the same phone. */
  #ask(closed) {
    this.#announcer.hurry();
    this.#options.server.setClosed(this.user.user_id, closed).then((state) => this.setState(state)).catch(() => {
    });
  }
  #showControls() {
    const { name } = this.user;
    const offers = this.#closed ? "Open app" : "Close app";
    if (this.#closeButton.dataset.offers !== offers) {
      this.#closeButton.dataset.offers = offers;
      this.#closeButton.replaceChildren(offers, spoken(` of ${name}`));
    }
    this.#closeButton.disabled = !this.#closed && !this.#switch.checked;
    this.#readAllButton.disabled = this.#switch.disabled = this.#closed;
  }
  /** What the badges count. */
  get count() {
    return this.#count;
  }
  set count(count) {
    this.#count = count;
    this.refresh();
  }
  /** Marks the numbers as out of date, with the correct total; undefined removes the mark. */
  setBehind(total) {
    if (total === this.#behind) return;
    this.#behind = total;
    this.element.classList.toggle("is-behind", total !== void 0);
    this.#home.showBehind(total);
    this.refresh();
  }
  /** Shows that the numbers have recovered. */
  showCaughtUp() {
    this.#home.showCaughtUp();
  }
  /** Marks the phone if the selected event changed its badge. */
  setChanged(changed) {
    this.element.classList.toggle("is-changed", changed);
  }
  #updateThread() {
    if (this.#thread === void 0) return;
    const { id } = this.#thread.topic;
    const { conversations, status } = this.client;
    const conversation = conversations.get(id);
    const level = conversation ? levelOf(conversation, this.#levels) : "all";
    this.#thread.update(this.#messages(id), level, status.state === "online");
  }
  /** The levels of categories. */
  get #levels() {
    return this.client.badge?.levels ?? {};
  }
  #messages(conversationId) {
    if (this.#frozen !== void 0) return this.#frozen.get(conversationId) ?? [];
    return this.#options.chat.messages(conversationId);
  }
  #row(topic) {
    const conversation = this.client.conversations.get(topic.id);
    const last = this.#messages(topic.id).at(-1);
    const none = conversation === void 0 ? "No messages yet" : "";
    return {
      conversation,
      levels: this.#levels,
      last,
      preview: last ? this.#preview(topic, last) : none
    };
  }
  #preview({ kind }, { sender_id, text, recalled }) {
    if (recalled) return "Message recalled";
    if (sender_id === this.user.user_id) return `You: ${text}`;
    if (kind === "direct" || kind === "feed") return text;
    return `${nameOf(sender_id, this.#users)}: ${text}`;
  }
  #setOnline(online) {
    this.#announcer.hurry();
    if (online) {
      this.#frozen = void 0;
      this.client.start();
    } else {
      this.#frozen = new Map(this.#topics.map(({ id }) => [id, this.#options.chat.messages(id)]));
      this.client.stop();
    }
    this.refresh();
  }
  #readAll() {
    this.#announcer.hurry();
    void this.client.readAll();
    this.refresh();
  }
  /** While the bell is open, its notifications are seen. They stay unread. */
  #choose(category) {
    this.#bell?.close();
    this.#bell = category === BELL ? this.client.openCategory(BELL) : void 0;
    this.refresh();
  }
  #open(topic) {
    this.#announcer.hurry();
    this.#thread = new Thread({
      topic,
      owner: this.user,
      users: this.#users,
      firstUnreadSeq: this.client.conversations.get(topic.id)?.firstUnreadSeq ?? 0,
      onClose: () => this.#close(topic),
      onSend: (text) => this.#options.server.send(topic.id, this.user.user_id, text),
      onRecall: (message) => void this.#options.server.recall(message).catch(() => {
      }),
      onLevel: (level) => void this.#options.server.setLevel(topic.id, this.user.user_id, level).catch(() => {
      }),
      onMarkUnread: () => this.#markUnread(topic),
      onMarkFrom: (fromSeq, seqs) => this.#markUnread(topic, topic.kind === "room" ? { fromSeq } : { seqs }),
      onScroll: () => this.#read()
    });
    this.#updateThread();
    this.#list.element.inert = true;
    this.#screen.append(this.#thread.element);
    this.#thread.opened();
    animate(
      this.#thread.element,
      [{ transform: "translateX(30%)", opacity: 0 }, { transform: "none" }],
      240
    );
    this.refresh();
  }
  #close(topic) {
    this.#leaveThread();
    this.#list.focus(topic);
  }
  #leaveThread() {
    this.#reading?.close();
    this.#reading = void 0;
    this.#thread?.element.remove();
    this.#thread = void 0;
    this.#list.element.inert = false;
  }
  /** Also closes the conversation, because an open one is read. */
  #markUnread(topic, messages) {
    this.#announcer.hurry();
    this.#close(topic);
    this.client.markUnread(topic.id, messages).catch(() => {
    });
    this.refresh();
  }
  /** Tells the client how far the open conversation is on the screen. */
  #read() {
    if (this.#thread === void 0) return;
    const { id } = this.#thread.topic;
    let seq = this.#thread.newestShown;
    if (seq === void 0 && this.#messages(id).length === 0) {
      seq = this.client.conversations.get(id)?.lastSeq;
    }
    if (seq === void 0) return;
    if (this.#reading === void 0) this.#reading = this.client.open(id, { upToSeq: seq });
    else this.#reading.show(seq);
  }
};
var Announcer = class {
  element = h("p", { class: "spoken", "aria-live": "polite" });
  #next = "";
  #timer;
  /** Sets the next announcement; a later call replaces it. */
  say(text) {
    this.#next = text;
    if (text === this.element.textContent) return;
    this.#timer ??= setTimeout(() => this.#speak(), ANNOUNCE_MS);
  }
  /** The user causes the next change: announce it soon. */
  hurry() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#speak(), HURRY_MS);
  }
  #speak() {
    this.#timer = void 0;
    setText(this.element, this.#next);
  }
};
function topicsOf(user, { users, conversations }) {
  return conversations.filter(({ members }) => members.includes(user.user_id)).map(({ conversation_id, name, kind, members, category, late }) => {
    const other = kind === "direct" ? users.find(({ user_id }) => user_id !== user.user_id && members.includes(user_id)) : void 0;
    return {
      id: conversation_id,
      title: other?.name ?? name,
      kind,
      category,
      late: late ?? false,
      color: other?.color
    };
  });
}

// demo/src/arrivals.ts
var KEPT3 = 100;
var Arrivals = class {
  #known = /* @__PURE__ */ new Map();
  #waiting = /* @__PURE__ */ new Set();
  /** Notes that a phone has a conversation up to a message. */
  note(conversationId, seq, at2) {
    const known = this.#known.get(conversationId) ?? [];
    if (seq <= (known.at(-1)?.seq ?? 0)) return;
    this.#known.set(conversationId, [...known, { seq, at: at2 }].slice(-KEPT3));
    for (const look of this.#waiting) look();
  }
  /** When a message or a later one arrived; undefined if none does in time. */
  async of(conversationId, seq, patienceMs) {
    const find2 = () => this.#known.get(conversationId)?.find((arrival) => arrival.seq >= seq)?.at;
    return find2() ?? await this.#wait(find2, patienceMs);
  }
  #wait(find2, patienceMs) {
    return new Promise((resolve) => {
      const look = () => {
        const at2 = find2();
        if (at2 !== void 0) end(at2);
      };
      const end = (at2) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(at2);
      };
      const timer = setTimeout(() => end(void 0), patienceMs);
      this.#waiting.add(look);
    });
  }
};

// demo/src/sizes.ts
var SIZES = [
  5,
  10,
  20,
  50,
  100,
  200,
  500,
  1e3,
  2e3,
  5e3,
  1e4,
  2e4,
  5e4,
  1e5
];
var MOST = SIZES.length - 1;
function sizeAt(place) {
  return SIZES[Math.min(Math.max(Math.round(place), 0), MOST)];
}
function placeOf(members) {
  const above2 = SIZES.findIndex((size) => size >= members);
  if (above2 < 0) return MOST;
  const [low, high] = [SIZES[above2 - 1], SIZES[above2]];
  if (low === void 0 || high === void 0) return 0;
  return above2 - 1 + Math.log(members / low) / Math.log(high / low);
}
var numbers = new Intl.NumberFormat("en");
function thousands(n) {
  return numbers.format(n);
}
function duration(ms) {
  if (ms >= 1e4) return `${(ms / 1e3).toFixed(1)} s`;
  return `${ms < 1 ? ms.toFixed(1) : thousands(Math.round(ms))} ms`;
}
function share(n, most) {
  return n <= 1 ? 0.02 : Math.min(1, Math.max(0.02, Math.log(n) / Math.log(most)));
}

// demo/src/room.ts
var ROOM = "town-hall";
var GROUP = "town-hall-copy";
var BURST = 20;
var PATIENCE_MS = 2e4;
var MOST2 = 3e5;
var UNREACHABLE = "The demo does not answer. The page tries again.";
var RoomPanel = class {
  #element;
  #server;
  #phones;
  #arrivals = new Arrivals();
  #members = h("strong", { class: "room-members" }, "–");
  #slider = h("input", {
    type: "range",
    class: "room-slider",
    min: "0",
    max: String(SIZES.length - 1),
    step: "1",
    "aria-label": "Members of the town hall",
    disabled: true
  });
  #status = h("p", { class: "room-status", role: "status" });
  #room = new Column();
  #group = new Column();
  #buttons;
  #state;
  #lost = true;
  #sending = false;
  /** What the last action has to say. */
  #told;
  /** The slider is being moved: it shows what it would set. */
  #moving = false;
  /** The size that was asked for last, until the server has confirmed it. */
  #asked;
  constructor(element, cast2, phones, server2) {
    this.#element = element;
    this.#server = server2;
    const inIt = cast2.conversations.find((c) => c.conversation_id === ROOM)?.members ?? [];
    this.#phones = phones.filter(({ user }) => inIt.includes(user.user_id));
    for (const { client } of this.#phones) {
      client.on(
        "conversation",
        ({ conversationId, lastSeq }) => this.#arrivals.note(conversationId, lastSeq, performance.now())
      );
    }
    this.#slider.addEventListener("input", () => {
      this.#moving = true;
      this.#draw();
    });
    this.#slider.addEventListener("change", () => void this.#resize());
    const button = (text, action) => {
      const element2 = h("button", { class: "room-button", type: "button" }, text);
      element2.addEventListener("click", () => void this.#run(action));
      return element2;
    };
    this.#buttons = [
      button("Post", () => this.#measure(ROOM, this.#room)),
      button(`Post ${BURST}`, () => this.#sendMany()),
      button("Send to a group", () => {
        this.#tell("Delivering the message to each member…");
        return this.#measure(GROUP, this.#group);
      })
    ];
    element.querySelector("h2")?.after(
      h("p", { class: "room-count" }, this.#members, " members"),
      this.#slider,
      this.#status,
      h("div", { class: "room-buttons" }, ...this.#buttons),
      h(
        "table",
        { class: "cost" },
        h("caption", {}, "What a message costs"),
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            h("td"),
            h("th", { scope: "col" }, "Room", this.#room.members),
            h("th", { scope: "col" }, "Group", this.#group.members)
          )
        ),
        h(
          "tbody",
          {},
          ...["rows", "time"].map(
            (what) => h(
              "tr",
              {},
              h("th", { scope: "row" }, what === "rows" ? "Rows written" : "Click to phone"),
              this.#room[what].element,
              this.#group[what].element
            )
          )
        )
      )
    );
    element.removeAttribute("aria-busy");
    this.#draw();
  }
  /** Fetches the state of the room. */
  async sync() {
    const state = await this.#server.crowd().catch(() => void 0);
    if (state !== void 0) this.show(state);
  }
  show(state) {
    if (this.#lost) this.#told = void 0;
    this.#lost = false;
    this.#state = state;
    if (state.target === this.#asked) this.#asked = void 0;
    this.#draw();
  }
  /** Shows that the server cannot be reached. */
  showLost() {
    this.#lost = true;
    this.#moving = false;
    this.#draw();
  }
  #draw() {
    const state = this.#state;
    if (state !== void 0) {
      setText(this.#members, thousands(state.members));
      const target = this.#asked ?? state.target;
      if (!this.#moving) this.#slider.value = String(Math.round(placeOf(target)));
      const filled = placeOf(state.members) / (SIZES.length - 1);
      this.#slider.style.setProperty("--filled", filled.toFixed(4));
    }
    this.#slider.setAttribute("aria-valuetext", `${thousands(this.#wanted)} members`);
    if (state !== void 0) this.#slider.disabled = false;
    for (const button of this.#buttons) button.disabled = this.#lost || this.#sending;
    const trouble = this.#lost && state !== void 0 ? UNREACHABLE : state?.trouble;
    this.#element.classList.toggle("is-troubled", trouble !== void 0);
    setText(this.#status, trouble ?? this.#describe());
  }
  /** The size that the slider shows. */
  get #wanted() {
    return sizeAt(this.#slider.valueAsNumber);
  }
  #describe() {
    if (this.#state === void 0) return "";
    const { members, target } = this.#state;
    if (this.#moving) return `Release for ${thousands(this.#wanted)} members`;
    if (members < target) return `${thousands(target - members)} guests are joining`;
    if (members > target) return `${thousands(members - target)} guests are leaving`;
    if (this.#told !== void 0) return this.#told;
    const names = this.#phones.map(({ user }) => user.name);
    return `${names.join(", ")} and ${thousands(members - names.length)} guests`;
  }
  async #resize() {
    const members = this.#wanted;
    this.#moving = false;
    this.#asked = members;
    this.#told = void 0;
    try {
      const state = await this.#server.setMembers(members);
      if (this.#asked === members) this.show(state);
    } catch {
      if (this.#asked === members) this.#asked = void 0;
      this.#tell("The demo did not take the new size. Move the slider again.");
    }
  }
  /** Runs the action of a button, one at a time, and shows the text that it returns. */
  async #run(action) {
    this.#sending = true;
    this.#tell("Sending…");
    let text;
    try {
      text = await action();
    } catch {
      text = "Not sent, or not counted yet: the database does not answer. Try again.";
    }
    this.#sending = false;
    this.#tell(text);
  }
  #tell(text) {
    this.#told = text;
    this.#draw();
  }
  /** Sends a message and shows what it cost. */
  async #measure(conversationId, column) {
    const began = performance.now();
    const { seq, members, rows } = await this.#server.sendToAll(conversationId, 1);
    const arrived = await this.#arrival(conversationId, seq);
    column.show(members, rows, arrived === void 0 ? void 0 : arrived - began);
    return arrived === void 0 ? this.#noPhone : void 0;
  }
  async #sendMany() {
    const began = performance.now();
    const { seq } = await this.#server.sendToAll(ROOM, BURST);
    const arrived = await this.#arrival(ROOM, seq);
    if (arrived === void 0) return this.#noPhone;
    return `The last of ${BURST} messages was on a phone after ${duration(arrived - began)}`;
  }
  /** When a message was on one of the phones of the room; undefined if it does not come. */
  async #arrival(conversationId, seq) {
    const isOnline = this.#phones.some(({ client }) => client.status.state === "online");
    return isOnline ? this.#arrivals.of(conversationId, seq, PATIENCE_MS) : void 0;
  }
  get #noPhone() {
    const names = this.#phones.map(({ user }) => user.name);
    return `Sent, and no phone got it: take that of ${names.join(" or ")} online`;
  }
};
var Column = class {
  /** The number of members when it was measured. */
  members = h("span", { class: "cost-members" }, "not measured");
  rows = new Cell();
  time = new Cell();
  show(members, rows, ms) {
    setText(this.members, `of ${thousands(members)}`);
    this.rows.show(thousands(rows), rows);
    if (ms === void 0) this.time.show("–", 0);
    else this.time.show(duration(ms), ms);
  }
};
var Cell = class {
  #number = h("span", {}, "–");
  element = h("td", {}, this.#number);
  show(text, size) {
    setText(this.#number, text);
    this.element.style.setProperty("--share", share(size, MOST2).toFixed(3));
  }
};

// demo/src/stale.ts
var LOOK_MS = 300;
var StaleWatch = class {
  #phones;
  #server;
  #log;
  /** By phone, the total that it showed when it fell behind. */
  #behind = /* @__PURE__ */ new Map();
  #cut = false;
  #looking = false;
  constructor(phones, server2, log2) {
    this.#phones = phones;
    this.#server = server2;
    this.#log = log2;
  }
  setCut(cut) {
    this.#cut = cut;
    if (cut && !this.#looking) void this.#look();
  }
  async #look() {
    this.#looking = true;
    while (this.#cut || this.#behind.size > 0) {
      await Promise.all(this.#phones.map((phone) => this.#compare(phone)));
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    this.#looking = false;
  }
  async #compare(phone) {
    const truth = await this.#server.badge(phone.user).catch(() => void 0);
    const { badge, status } = phone.client;
    if (truth === void 0 || badge === void 0) return;
    const behind = status.state === "online" && (truth.epoch !== badge.epoch || truth.version > badge.version);
    phone.setBehind(behind ? truth.total : void 0);
    const before = this.#behind.get(phone);
    if (behind && before === void 0) this.#behind.set(phone, badge.total);
    if (behind || before === void 0) return;
    this.#behind.delete(phone);
    if (status.state !== "online") return;
    phone.showCaughtUp();
    const numbers2 = before === badge.total ? `at ${before}` : `${before} → ${badge.total}`;
    this.#log.note(
      `${phone.user.name} caught up`,
      `${numbers2}, by reconciliation: no update had come`
    );
  }
};

// demo/src/transaction.ts
var OPEN_MS = 12e4;
var TransactionButton = class {
  #button;
  #server;
  #log;
  #eventsBefore = 0;
  constructor(button, server2, log2) {
    this.#server = server2;
    this.#log = log2;
    this.#button = new TimedButton(button, {
      offer: "Open a long transaction",
      end: "End the transaction",
      ms: OPEN_MS,
      set: (ms) => server2.openTransaction(ms),
      onOver: () => void this.sync()
    });
  }
  /** Fetches the state of the transaction. */
  async sync() {
    const state = await this.#server.transaction().catch(() => void 0);
    if (state !== void 0) this.show(state);
  }
  show({ open_ms, transaction_id }) {
    const change = this.#button.show(open_ms);
    if (change === "starts") {
      this.#eventsBefore = this.#log.total;
      this.#log.note(
        "long transaction opened",
        `Transaction ${transaction_id} has written and stays open; no badge waits for it`
      );
    } else if (change === "ends") {
      this.#log.note(
        "long transaction ended",
        `Meanwhile ${plural(this.#log.total - this.#eventsBefore, "event")} went into the log`
      );
    }
  }
};

// demo/src/main.ts
var RETRY_MS4 = 1500;
var REDRAW_MS = 15e3;
var server = new DemoServer();
var chat = new Chat();
var log = new EventLog(find("#events"), find("#event-count"), server);
var link = find("#link");
var linkText = find("#link-text");
var play = find("#play");
var playText = find("#play-text");
var stale;
var bus = new BusButton(
  find("#bus"),
  server,
  log,
  (cut) => stale?.setCut(cut)
);
var transaction = new TransactionButton(find("#transaction"), server, log);
var feedIsOpen = false;
async function firstCast() {
  for (; ; ) {
    try {
      return await server.cast();
    } catch {
      showLink("lost", "Reconnecting…");
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS4));
    }
  }
}
async function register(cast2) {
  try {
    const phones = await server.phones();
    for (const phone of phones) {
      const user = cast2.users.find(({ user_id }) => user_id === phone.user_id);
      if (user !== void 0) await server.register(user, phone);
    }
    return phones;
  } catch (error) {
    console.warn(error);
    return [];
  }
}
function start(cast2, registered) {
  const onChange = oncePerFrame(() => {
    people.update();
    showLive(phones);
  });
  const stateOf = ({ user_id }) => registered.find((phone) => phone.user_id === user_id);
  const phones = cast2.users.map((user) => {
    const device = stateOf(user)?.device;
    return new Phone({ user, cast: cast2, chat, server, device, onChange });
  });
  for (const phone of phones) phone.start(stateOf(phone.user));
  stale = new StaleWatch(phones, server, log);
  log.begin(cast2, (users) => {
    for (const phone of phones) phone.setChanged(users.includes(phone.user.user_id));
  });
  const showAgain = showOnPage(phones);
  new CountButton(find("#count"), (count) => {
    for (const phone of phones) phone.count = count;
    showAgain();
  });
  const room = new RoomPanel(find("#room"), cast2, phones, server);
  const people = new People(find("#people"), phones);
  const stage = find("#phones");
  stage.replaceChildren(...phones.map(({ element }) => element));
  stage.removeAttribute("aria-busy");
  const showPhone = (state) => {
    const phone = phones.find(({ user }) => user.user_id === state.user_id);
    const was = phone?.closed;
    phone?.setState(state);
    if (phone?.closed !== was) showAgain();
  };
  let lost = false;
  server.follow({
    onOpen() {
      feedIsOpen = true;
      showLive(phones);
      void syncSimulation();
      void bus.sync();
      void transaction.sync();
      void room.sync();
      if (lost) {
        void reloadIfRecast(cast2);
        void register(cast2).then((states) => states.forEach(showPhone));
      }
      lost = false;
    },
    onLost() {
      feedIsOpen = false;
      lost = true;
      play.disabled = true;
      room.showLost();
      showLive(phones);
    },
    onMessage(message) {
      if (chat.add(message)) for (const phone of phones) phone.refresh();
    },
    onLogged: (event) => log.add(event),
    onLink: (state) => bus.show(state),
    onTransaction: (state) => transaction.show(state),
    onCrowd: (state) => room.show(state),
    onPhone: showPhone
  });
  setInterval(() => {
    for (const phone of phones) phone.refresh();
  }, REDRAW_MS);
}
function showOnPage(phones) {
  let shown3;
  let stop = () => {
  };
  const show = (phone) => {
    shown3 = phone;
    stop();
    if (phone === void 0 || phone.closed) return;
    const { client, count } = phone;
    const all = [
      showInTitle(client, { count }),
      showOnFavicon(client, { count }),
      showOnApp(client, { count })
    ];
    stop = () => {
      for (const each of all) each();
    };
  };
  for (const phone of phones) {
    phone.element.addEventListener("focusin", () => {
      if (phone !== shown3) show(phone);
    });
  }
  show(phones[0]);
  return () => show(shown3);
}
function showLive(phones) {
  if (!feedIsOpen) {
    showLink("lost", "Reconnecting…");
    return;
  }
  const online = phones.filter(({ client }) => client.status.state === "online").length;
  const closed = phones.filter((phone) => phone.closed).length;
  const more = closed > 0 ? `, ${closed} closed` : "";
  showLink("live", `${online} of ${phones.length} phones online${more}`);
}
function showLink(state, text) {
  link.dataset.state = state;
  setText(linkText, text);
}
async function reloadIfRecast(cast2) {
  const ids = ({ users, conversations }) => JSON.stringify([users.map((u) => u.user_id), conversations.map((c) => c.conversation_id)]);
  const now = await server.cast().catch(() => cast2);
  if (ids(now) !== ids(cast2)) location.reload();
}
async function syncSimulation() {
  showSimulation(await server.isRunning().catch(() => void 0));
}
function showSimulation(running) {
  if (running === void 0) return;
  play.disabled = false;
  play.dataset.running = String(running);
  setText(playText, running ? "Pause the chat" : "Let them chat");
}
play.addEventListener("click", async () => {
  const wanted = play.dataset.running !== "true";
  showSimulation(await server.setRunning(wanted).catch(() => void 0));
});
void navigator.serviceWorker?.register("badged-worker.js").catch(console.warn);
var cast = await firstCast();
start(cast, await register(cast));
