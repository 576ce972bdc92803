// dist/sdk/src/category.ts
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
function treeOf({ categories, levels }) {
  const roots = [];
  const below = /* @__PURE__ */ new Map([["", roots]]);
  const add = (path) => {
    const known = below.get(path);
    if (known !== void 0) return known;
    const children = [];
    below.set(path, children);
    add(above(path)).push({
      path,
      name: path.slice(path.lastIndexOf("/") + 1),
      numbers: at(categories, path) ?? NO_NUMBERS,
      level: levelOf({ level: "default", category: path }, levels),
      children
    });
    return children;
  };
  for (const path of Object.keys({ ...categories, ...levels }).sort()) add(path);
  return roots;
}
function shareOf(conversation, levels) {
  const { unread, mentions, seen, seenMentions, markedUnread, left } = conversation;
  if (left) return NO_NUMBERS;
  const full = markedUnread ? Math.max(1, unread) : unread;
  const muted = (total) => ({ total, conversations: Math.sign(total) });
  switch (levelOf(conversation, levels)) {
    case "all":
      return {
        total: full,
        mentions,
        unreadConversations: Math.sign(full),
        unseen: unread - seen,
        muted: muted(0),
        marked: full - unread
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
  for (const [path, numbers] of changes) {
    if (same(numbers, NO_NUMBERS)) delete categories[path];
    else categories[path] = numbers;
  }
  return categories;
}
function same(a, b) {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => same(a[name], b[name]));
}

// dist/sdk/src/refuse.ts
function refuse(name, wanted, value) {
  throw new TypeError(`${name} must be ${wanted}, is ${shown(value)}`);
}
function shown(value) {
  if (typeof value === "string") return JSON.stringify(value.replace(/^(.{40}).+/s, "$1…"));
  return typeof value === "number" || typeof value === "bigint" ? value : typeof value;
}

// dist/sdk/src/seq.ts
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

// dist/sdk/src/arguments.ts
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

// dist/sdk/src/emitter.ts
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

// dist/sdk/src/environment.ts
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

// dist/sdk/src/frames.ts
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
        Object.entries(categories).map(([path, numbers]) => [path, named(numbers)])
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

// dist/sdk/src/backoff.ts
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

// dist/sdk/src/closing.ts
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

// dist/sdk/src/connection.ts
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
    const { clock, random, token, pings } = this.#options;
    if (leftMs === 0 || !pings) return;
    const delayMs = Math.max(leastMs, leftMs * (0.75 + random() / 10));
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

// dist/sdk/src/eventstream.ts
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
  constructor(fetcher, base, token, clock) {
    this.#fetch = fetcher;
    this.#base = base;
    this.#authorization = `Bearer ${token}`;
    this.#clock = clock;
    queueMicrotask(() => this.onopen?.({}));
  }
  send(data) {
    const frame = JSON.parse(data);
    if (frame.t === "hello") void this.#listen(frame);
    else if (frame.id !== void 0 && frame.t !== "auth") void this.#post(frame.id, data);
  }
  close() {
    for (const request of [this.#abort, ...this.#posts]) request.abort();
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
    const request = new AbortController();
    this.#posts.add(request);
    const cancel = this.#clock.after(ANSWER_MS, () => request.abort());
    try {
      const response = await this.#fetch(`${this.#base}v1/commands`, {
        method: "POST",
        headers: { Authorization: this.#authorization, "Content-Type": "application/json" },
        body,
        signal: request.signal
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
      this.#posts.delete(request);
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

// dist/sdk/src/storage.ts
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

// dist/sdk/src/link.ts
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
    const { clock, fetch, WebSocket } = environment;
    this.#mayHurry = false;
    const fallsBack = fallback && fetch !== null;
    const streams = fallsBack && (!WebSocket || this.#prefersStreams);
    this.#open(streams);
    if (fallsBack && WebSocket) {
      this.#tryOther = () => {
        this.#cancelRival();
        this.#tryOther = void 0;
        this.#open(!streams);
      };
      const delayMs = this.#proven ? RIVAL_PROVEN_MS : RIVAL_MS;
      this.#cancelRival = clock.after(delayMs, this.#tryOther);
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
    const { WebSocket, fetch, clock, random } = environment;
    const connection = new Connection({
      open: (credential) => {
        if (streams && fetch !== null) return new EventStream(fetch, base, credential, clock);
        if (WebSocket === null) throw new TypeError("no WebSocket: set the option WebSocket");
        return new WebSocket(`${base.replace(/^http/, "ws")}v1/ws`, [
          PROTOCOL,
          `bearer.${credential}`
        ]);
      },
      pings: !streams,
      clock,
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

// dist/sdk/src/outbox.ts
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

// dist/sdk/src/options.ts
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

// dist/sdk/src/overlay.ts
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
  const { unread, mentions, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
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
  if (unread === 0 || upToSeq < firstUnreadSeq) return read;
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
  const { unread, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
  const position = upToSeq < lastSeq ? upToSeq : lastSeq;
  if (position <= readSeq || position <= seenSeq) return conversation;
  const seen = { ...conversation, seenSeq: position };
  if (position >= lastSeq) return withSeen(seen, unread);
  if (position < firstUnreadSeq) return seen;
  return hasGaps(conversation) ? conversation : withSeen(seen, unread - distance(position, lastSeq));
}
function withSeen(conversation, seen) {
  const { unread, mentions, seenMentions } = conversation;
  const [least, most] = [Math.max(0, mentions - (unread - seen)), Math.min(seen, mentions)];
  return { ...conversation, seen, seenMentions: Math.min(most, Math.max(least, seenMentions)) };
}
function hasGaps({ unread, firstUnreadSeq, lastSeq }) {
  return distance(firstUnreadSeq, lastSeq) + 1 !== unread;
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
  const { readSeq, seenSeq, markedUnread, unread, firstUnreadSeq } = conversation;
  if (command.t === "seen") return readSeq >= command.upToSeq || seenSeq >= command.upToSeq;
  if (command.t !== "read") return true;
  const marked2 = markedUnread || unread > 0 && firstUnreadSeq <= readSeq;
  return readSeq >= command.upToSeq && (!marked2 || later);
}

// dist/sdk/src/reading.ts
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
    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    const upToSeq = this.#visible;
    const endsMark = markedUnread && !this.#seen;
    this.#seen = true;
    if (unread > 0 ? firstUnreadSeq > upToSeq : !endsMark) return void 0;
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

// dist/sdk/src/settling.ts
var SETTLE_MS = 3e4;
var Settling = class {
  #clock;
  #onLate;
  #entries = /* @__PURE__ */ new Map();
  /** `onLate` is called when a command is dropped after SETTLE_MS. */
  constructor(clock, onLate) {
    this.#clock = clock;
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

// dist/sdk/src/state.ts
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
      ({ unread, markedUnread, level, left }) => !left && (unread > 0 || markedUnread || level !== "default")
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

// dist/sdk/src/tabs.ts
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
    const { clock, locks, BroadcastChannel } = this.#environment;
    if (this.#name === void 0 || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const name = this.#name;
    const channel = new BroadcastChannel(name);
    channel.onmessage = ({ data }) => {
      if (data.m === "watch") clock.after(0, () => this.#leads && this.post({ m: "alive" }));
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
    const { clock, random } = this.#environment;
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
      this.#cancelWatch = clock.after(WATCH_MS * (1 + random() / 4), ask);
    };
    wait();
  }
  #lead() {
    this.#cancelWatch();
    this.#leads = true;
    this.#options.onLead();
  }
};

// dist/sdk/src/client.ts
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
    const isUnread = ({ unread, markedUnread }) => unread > 0 || markedUnread;
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
    return this.#all("seen", category, ({ unread, seen }) => unread > seen, options);
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
    const numbers = shares.reduce((all, share) => sum(all, share), NO_NUMBERS);
    return { ...numbers, complete: badge !== void 0 && !more };
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
    const { page, clock } = this.#environment;
    if (category !== void 0) toCategory(category);
    return new Seeing(category, { client: this, page, clock });
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

// dist/sdk/src/display.ts
function countOf(client, { category, conversation, count } = {}) {
  const state = conversation === void 0 ? void 0 : client.conversations.get(conversation);
  const numbers = conversation === void 0 ? numbersOf(client, category) : (state && shareOf(state, client.badge?.levels ?? {})) ?? NO_NUMBERS;
  if (count === "conversations") return numbers.unreadConversations;
  if (count === "muted") return numbers.muted.total;
  return numbers[count === void 0 || count === "messages" ? "total" : count];
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
function conversationsOf(client, category) {
  return [...client.conversations.values()].filter((c) => category === void 0 || covers(category, c.category)).sort((a, b) => b.version - a.version);
}
function onConversations(client, call) {
  let waiting = false;
  return client.on("conversation", () => {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      call();
    });
  });
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
  const { navigator } = globalThis;
  return follow(client, part, (count) => void navigator?.setAppBadge?.(count).catch(() => {
  }));
}
function showOnFavicon(client, options = {}) {
  if (!globalThis.document) return () => {
  };
  const link = document.querySelector('link[rel~="icon"]') ?? document.head.appendChild(Object.assign(document.createElement("link"), { rel: "icon" }));
  const { dataset } = link;
  dataset.badgedHref ??= link.getAttribute("href") ?? "";
  dataset.badgedType ??= link.type;
  const { badgedHref: href, badgedType: type } = dataset;
  const image = new Image();
  image.src = options.icon ?? (href || "/favicon.ico");
  let latest = "";
  const show = async (count) => {
    latest = count;
    if (count === "") {
      link.type = type;
      link.setAttribute("href", href);
      return;
    }
    await image.decode().catch(() => {
    });
    if (count !== latest) return;
    link.type = "image/png";
    link.href = drawFavicon(image, count, options);
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

// dist/sdk/src/native.ts
function appStatePage(appState) {
  const on = (active, call) => {
    const subscription = appState.addEventListener("change", (state) => {
      if (state === "active" === active) call();
    });
    return () => subscription.remove();
  };
  return {
    onReturn: (call) => on(true, call),
    onLeave: (call) => on(false, call),
    attended: () => appState.currentState === "active",
    onAttend: (call) => on(true, call)
  };
}
export {
  Badged,
  BadgedError,
  CloseCode,
  appStatePage,
  conversationsOf,
  countOf,
  covers,
  formatCount,
  levelOf,
  numbersOf,
  onConversations,
  onCount,
  shareOf,
  showInTitle,
  showOnApp,
  showOnFavicon,
  toSeq,
  treeOf
};
//# sourceMappingURL=index.js.map
