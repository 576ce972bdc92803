// demo/src/chat.ts
var KEPT = 200;
var Chat = class {
  #messages = /* @__PURE__ */ new Map();
  /** In order of seq. The array is never changed: a new message makes a new one. */
  messages(conversationId) {
    return this.#messages.get(conversationId) ?? [];
  }
  /** Takes in a message; false where it was known, as after a reconnect. */
  add(message) {
    const messages = this.messages(message.conversation_id);
    if (messages.some(({ seq }) => seq === message.seq)) return false;
    const more = [...messages, message].sort((a, b) => a.seq - b.seq);
    this.#messages.set(message.conversation_id, more.slice(-KEPT));
    return true;
  }
};

// demo/src/dom.ts
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
  if (element === null) throw new Error(`the page has no ${selector}`);
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

// demo/src/log.ts
var KEPT2 = 150;
var EventLog = class {
  #list;
  #count;
  #seen = /* @__PURE__ */ new Set();
  #total = 0;
  constructor(list, count) {
    this.#list = list;
    list.tabIndex = 0;
    this.#count = count;
  }
  /** Takes in an event, unless it is known, as after a reconnect. */
  add(event) {
    const name = `${event.position} ${event.source} ${event.id}`;
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    this.#total++;
    const row = draw(event);
    this.#list.prepend(row);
    animate(row, [{ opacity: 0, transform: "translateY(-8px)" }, { transform: "none" }], 300);
    while (this.#list.childElementCount > KEPT2) this.#list.lastElementChild?.remove();
    setText(this.#count, `${this.#total} events`);
  }
};
function draw({ position, type, source, id, summary, time: time2 }) {
  return h(
    "li",
    {
      class: "event",
      "data-kind": type,
      title: `${clockToTheSecond(new Date(time2))}, ${source} ${id}`
    },
    h("span", { class: "event-type" }, type),
    h("span", { class: "event-position" }, position),
    h("span", { class: "event-summary" }, summary)
  );
}

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
    for (const [{ client }, { badge, said }] of this.#badges) {
      const total = client.badge?.total ?? 0;
      badge.hidden = total === 0;
      setText(badge, String(total));
      setText(said, `, ${total} unread`);
    }
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
    const { clock: clock2 } = this.#options;
    this.#cancelPing = clock2.after(this.#pingMs, () => {
      this.send(PING);
      this.#cancelDeadline = clock2.after(
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

// demo/src/icons.ts
var SVG = "http://www.w3.org/2000/svg";
var PATHS = {
  back: "M15 5l-7 7 7 7",
  chat: "M21 11.5a8.4 8.4 0 0 1-12.3 7.4L3 21l2.1-5.6A8.4 8.4 0 1 1 21 11.5z",
  down: "M12 5v14M6 13l6 6 6-6",
  feed: "M3 11v2a1 1 0 0 0 1 1h3l7 4V6L7 10H4a1 1 0 0 0-1 1zM18 9a4 4 0 0 1 0 6",
  group: "M5 9h14M5 15h14M10 4L8 20M16 4l-2 16",
  muted: "M6 9a6 6 0 0 1 9-5.2M18 11c0 4 2 5 2 5H8M4 16s2-1 2-5M10 20a2 2 0 0 0 4 0M3 3l18 18",
  send: "M12 20V5M5 12l7-7 7 7"
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

// demo/src/parts.ts
function adds({ level, unread, mentions, markedUnread }) {
  switch (level) {
    case "none":
      return 0;
    case "mentions":
      return mentions;
    default:
      return markedUnread ? Math.max(unread, 1) : unread;
  }
}
function sum(badge, conversations) {
  const parts = [...conversations].map(adds).filter((part) => part > 0);
  return { parts, holds: parts.reduce((total, part) => total + part, 0) === badge.total };
}

// demo/src/list.ts
var ConversationList = class {
  element;
  #rows = /* @__PURE__ */ new Map();
  #topics;
  #tabs;
  #category;
  constructor(topics, owner, onOpen) {
    this.#topics = topics;
    const list = h("ul", { class: "rows", "aria-label": `Conversations of ${owner}` });
    for (const topic of topics) {
      const row = new Row(topic, () => onOpen(topic));
      this.#rows.set(topic.id, row);
      list.append(row.element);
    }
    this.element = h("div", { class: "list" }, list);
    const categories = [...new Set(topics.map(({ category }) => category))];
    if (categories.length > 1) {
      this.#tabs = new Tabs(categories, (category) => {
        this.#category = category;
        this.#filter();
      });
      this.element.append(this.#tabs.element);
    }
  }
  update(total, categories, state) {
    for (const topic of this.#topics) this.#rows.get(topic.id)?.update(state(topic));
    this.#tabs?.update(total, categories);
  }
  /** Puts the focus on a row, as after its conversation was closed. */
  focus(topic) {
    this.#rows.get(topic.id)?.button.focus();
  }
  #filter() {
    for (const { id, category } of this.#topics) {
      const row = this.#rows.get(id);
      if (row) row.element.hidden = this.#category !== void 0 && category !== this.#category;
    }
  }
};
var Row = class {
  element;
  button;
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
    this.element = h("li", {}, this.button);
  }
  update({ conversation, last, preview }) {
    setText(this.#preview, preview);
    setText(this.#time, last ? ago(new Date(last.time)) : "");
    const { unread = 0, mentions = 0, level = "all", markedUnread = false } = conversation ?? {};
    const marks = [unread, mentions, level, markedUnread].join();
    if (marks === this.#drawn) return;
    this.#drawn = marks;
    this.button.classList.toggle("is-unread", unread > 0 || markedUnread);
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
    if (unread > 0 || markedUnread) {
      const counts = conversation !== void 0 && adds(conversation) >= Math.max(unread, 1);
      this.#marks.append(
        h(
          "span",
          { class: counts ? "pill" : "pill is-quiet", "aria-hidden": "true" },
          unread > 0 ? String(unread) : " "
        ),
        spoken(unread > 0 ? `, ${unread} unread` : ", marked unread")
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
var Tabs = class {
  element;
  #counts = /* @__PURE__ */ new Map();
  constructor(categories, onChoose) {
    const buttons = [];
    this.element = h("div", { class: "tabs", role: "group", "aria-label": "Categories" });
    for (const category of [void 0, ...categories]) {
      const name = category ?? "all";
      const count = h("span", { class: "tab-count" });
      const button = h(
        "button",
        { class: "tab", type: "button", "aria-pressed": String(category === void 0) },
        name.slice(0, 1).toUpperCase() + name.slice(1),
        count
      );
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        onChoose(category);
      });
      buttons.push(button);
      this.#counts.set(category, count);
    }
    this.element.append(...buttons);
  }
  update(total, categories) {
    for (const [category, element] of this.#counts) {
      const count = category === void 0 ? total : categories[category] ?? 0;
      setText(element, count > 0 ? String(count) : "");
    }
  }
};
function ago(then) {
  const seconds = Math.max(0, (Date.now() - then.getTime()) / 1e3);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

// demo/src/reader.ts
var Reader = class {
  #client;
  #after;
  #shown;
  #sending = false;
  /** The last read that the server answered, and the state it was sent for. */
  #settled;
  constructor(client, after = (ms, call) => setTimeout(call, ms)) {
    this.#client = client;
    this.#after = after;
  }
  /** Says what is on the screen now; undefined where no conversation is open. */
  show(shown) {
    this.#shown = shown;
    this.check();
  }
  /** Looks again; to be called whenever the client's state may have changed. */
  check() {
    if (this.#shown === void 0 || this.#sending) return;
    const { conversationId, seq } = this.#shown;
    const conversation = this.#client.conversations.get(conversationId);
    if (conversation === void 0) return;
    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    if (unread > 0 ? firstUnreadSeq > seq : !markedUnread) return;
    const last = this.#settled;
    if (last?.conversationId === conversationId && last.seq === seq && last.version === version) {
      return;
    }
    void this.#send(conversationId, seq, version);
  }
  async #send(conversationId, seq, version) {
    this.#sending = true;
    try {
      await this.#client.read(conversationId, seq);
    } catch (error) {
      this.#sending = false;
      if (!(error instanceof BadgedError)) throw error;
      if (error.code === "offline") return;
      if (error.retryMs > 0) {
        this.#after(error.retryMs, () => this.check());
        return;
      }
    }
    this.#sending = false;
    this.#settled = { conversationId, seq, version };
    this.check();
  }
};

// demo/src/thread.ts
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
  #drawn = [];
  constructor(options) {
    this.#options = options;
    const { topic, owner } = options;
    this.#back = h(
      "button",
      {
        class: "thread-back",
        type: "button",
        "aria-label": `Back to ${owner.name}'s conversations`
      },
      icon("back")
    );
    this.#back.addEventListener("click", options.onClose);
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
      h("header", { class: "thread-head" }, this.#back, h("h3", {}, topic.title)),
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
  /** To be called once the thread is on the page. */
  opened() {
    this.#back.focus({ preventScroll: true });
    const divider = this.#messages.querySelector(".divider");
    if (divider) this.#messages.scrollTop = divider.offsetTop - 8;
    else this.#scrollToEnd();
  }
  /** Shows these messages, at most adding to those of the last call. */
  update(messages, online) {
    this.#compose?.setOnline(online);
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
   * The newest message on the screen; undefined where there is none because
   * the page knows no messages of the conversation.
   */
  get newestShown() {
    if (this.#atEnd) return this.#drawn.at(-1)?.seq;
    const bottom = this.#messages.scrollTop + this.#messages.clientHeight;
    const shown = this.#bubbles.reverse().find((bubble) => bubble.offsetTop + bubble.offsetHeight <= bottom);
    return shown === void 0 ? void 0 : Number(shown.dataset.seq);
  }
  get #bubbles() {
    return [...this.#messages.querySelectorAll(".message")];
  }
  get #atEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.#messages;
    return scrollTop + clientHeight >= scrollHeight - END_PX;
  }
  #scrollToEnd() {
    this.#messages.scrollTop = this.#messages.scrollHeight;
  }
  #updateBelow() {
    const shown = this.newestShown ?? 0;
    const below = this.#drawn.filter(({ seq }) => seq > shown).length;
    this.#below.hidden = below === 0 || this.#atEnd;
    setText(this.#belowCount, String(below));
    this.#below.setAttribute("aria-label", `Go to the newest message, ${below} further down`);
  }
  #draw(message, before) {
    const { owner, users, topic, firstUnreadSeq } = this.#options;
    const sender = users.get(message.sender_id);
    const own = message.sender_id === owner.user_id;
    const name = sender?.name ?? message.sender_id;
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
    bubble.append(h("span", { class: "message-text" }, ...this.#withMentions(message.text)));
    const firstUnread = firstUnreadSeq > 0 && message.seq >= firstUnreadSeq && (before === void 0 || before.seq < firstUnreadSeq);
    return firstUnread ? [h("div", { class: "divider" }, "New"), bubble] : [bubble];
  }
  /** The text with the names of users marked. */
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
var STATUS = {
  stopped: "Offline",
  connecting: "Connecting…",
  online: "Live",
  waiting: "Reconnecting…",
  refused: "Refused"
};
var Phone = class {
  element;
  client;
  user;
  #options;
  #users;
  #topics;
  #reader;
  #list;
  #screen;
  #home;
  #switch;
  #announcer = new Announcer();
  #thread;
  /** What the phone last saw of the chat, while it is offline. */
  #frozen;
  constructor(options) {
    this.#options = options;
    const { user, cast, server: server2 } = options;
    this.user = user;
    this.#users = new Map(cast.users.map((other) => [other.user_id, other]));
    this.#topics = topicsOf(user, cast);
    this.client = new Badged({ url: location.href, token: () => server2.token(user.user_id) });
    this.#reader = new Reader(this.client);
    this.#list = new ConversationList(this.#topics, user.name, (topic) => this.#open(topic));
    this.#screen = h("div", { class: "app" }, this.#list.element);
    this.#home = new Home(user);
    this.#switch = h("input", { type: "checkbox", role: "switch", checked: true });
    this.#switch.addEventListener("change", () => this.#setOnline(this.#switch.checked));
    this.element = h(
      "article",
      { class: "phone", id: `phone-${user.user_id}`, "aria-label": `${user.name}'s phone` },
      h("div", { class: "device" }, this.#home.element, this.#screen),
      h(
        "label",
        { class: "switch" },
        this.#switch,
        h("span", { class: "switch-track", "aria-hidden": "true" }),
        h("span", {}, "Online"),
        h("span", { class: "spoken" }, `, ${user.name}'s phone`)
      ),
      this.#announcer.element
    );
    this.element.style.setProperty("--user", user.color);
    this.client.on("total", () => this.refresh());
    this.client.on("conversation", () => {
      this.#reader.check();
      this.refresh();
    });
    this.client.on("status", ({ state }) => {
      if (state === "refused") this.#switch.checked = false;
      if (state === "online") this.#reader.check();
      this.refresh();
    });
    this.client.start();
  }
  /** Draws what changed, before the next frame is painted. */
  refresh = oncePerFrame(() => {
    const { badge, conversations, status, more } = this.client;
    this.element.dataset.status = status.state;
    this.#home.update(status);
    if (badge !== void 0) {
      this.#home.showBadge(badge.total, badge.mentions, sum(badge, conversations.values()), more);
      this.#announcer.say(
        `${this.user.name}: ${badge.total} unread, ${plural(badge.mentions, "mention")}`
      );
    }
    this.#list.update(badge?.total ?? 0, badge?.categories ?? {}, (topic) => this.#row(topic));
    this.#thread?.update(this.#messages(this.#thread.topic.id), status.state === "online");
    this.#showToReader();
    this.#options.onChange();
  });
  #messages(conversationId) {
    if (this.#frozen !== void 0) return this.#frozen.get(conversationId) ?? [];
    return this.#options.chat.messages(conversationId);
  }
  #row(topic) {
    const conversation = this.client.conversations.get(topic.id);
    const last = this.#messages(topic.id).at(-1);
    const none = conversation === void 0 ? "No messages yet" : "";
    return { conversation, last, preview: last ? this.#preview(topic, last) : none };
  }
  #preview({ kind }, { sender_id, text }) {
    if (sender_id === this.user.user_id) return `You: ${text}`;
    if (kind === "direct") return text;
    return `${this.#users.get(sender_id)?.name ?? sender_id}: ${text}`;
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
  #open(topic) {
    this.#announcer.hurry();
    this.#thread = new Thread({
      topic,
      owner: this.user,
      users: this.#users,
      firstUnreadSeq: this.client.conversations.get(topic.id)?.firstUnreadSeq ?? 0,
      onClose: () => this.#close(topic),
      onSend: (text) => this.#options.server.send(topic.id, this.user.user_id, text),
      onScroll: () => this.#showToReader()
    });
    this.#thread.update(this.#messages(topic.id), this.client.status.state === "online");
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
    this.#reader.show(void 0);
    this.#thread?.element.remove();
    this.#thread = void 0;
    this.#list.element.inert = false;
    this.#list.focus(topic);
  }
  #showToReader() {
    if (this.#thread === void 0) return;
    const { id } = this.#thread.topic;
    let seq = this.#thread.newestShown;
    if (seq === void 0 && this.#messages(id).length === 0) {
      seq = this.client.conversations.get(id)?.lastSeq;
    }
    this.#reader.show(seq === void 0 ? void 0 : { conversationId: id, seq });
  }
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
  #total;
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
        h("div", { class: "who" }, h("h2", {}, user.name), this.#said, this.#parts, this.#mentions)
      )
    );
  }
  update(status) {
    setText(this.#time, clock(/* @__PURE__ */ new Date()));
    setText(this.#status, STATUS[status.state]);
    const why = status.state === "waiting" || status.state === "refused" ? status.reason : "";
    if (this.element.title !== why) this.element.title = why;
  }
  showBadge(total, mentions, { parts, holds }, more) {
    setText(this.#said, `${total} unread`);
    setText(this.#parts, total === 0 ? "All caught up" : `= ${parts.join(THIN_PLUS)}`);
    this.#parts.classList.toggle("is-wrong", !holds && !more);
    setText(this.#mentions, mentions > 0 ? plural(mentions, "mention") : "");
    if (total === this.#total) return;
    const before = this.#total;
    this.#total = total;
    this.#badge.hidden = total === 0;
    setText(this.#badge, String(total));
    animate(
      this.#badge,
      [{ transform: "scale(0.6)" }, { transform: "scale(1.25)" }, { transform: "none" }],
      380
    );
    if (before !== void 0) this.#float(total - before);
  }
  /** Lets what was added or taken away rise from the badge. */
  #float(difference) {
    const sign = difference > 0 ? "+" : "−";
    const delta = h(
      "span",
      { class: "delta", "aria-hidden": "true" },
      `${sign}${Math.abs(difference)}`
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
var Announcer = class {
  element = h("p", { class: "spoken", "aria-live": "polite" });
  #next = "";
  #timer;
  /** What is to be said next; a later call replaces it. */
  say(text) {
    this.#next = text;
    if (text === this.element.textContent) return;
    this.#timer ??= setTimeout(() => this.#speak(), ANNOUNCE_MS);
  }
  /** The next change is the user's doing: say it soon. */
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
  return conversations.filter(({ members }) => members.includes(user.user_id)).map(({ conversation_id, name, kind, members, category }) => {
    const other = kind === "direct" ? users.find(({ user_id }) => user_id !== user.user_id && members.includes(user_id)) : void 0;
    return {
      id: conversation_id,
      title: other?.name ?? name,
      kind,
      category,
      color: other?.color
    };
  });
}

// demo/src/server.ts
var RETRY_MS = 2e3;
var DemoServer = class {
  #cast;
  /** The users and their conversations. Calls made while one is under way share its answer. */
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
    if (user === void 0) throw new Error(`the demo no longer has a user ${userId}`);
    return user.token;
  }
  async send(conversationId, senderId, text) {
    await request("POST", "demo/messages", {
      conversation_id: conversationId,
      sender_id: senderId,
      text
    });
  }
  async isRunning() {
    return (await request("GET", "demo/simulation")).running;
  }
  async setRunning(running) {
    return (await request("POST", "demo/simulation", { running })).running;
  }
  /** Follows the chat and the log for as long as the page lives. */
  follow(listener) {
    const source = new EventSource("demo/feed");
    source.onopen = () => listener.onOpen();
    source.onerror = () => {
      listener.onLost();
      if (source.readyState !== EventSource.CLOSED) return;
      setTimeout(() => this.follow(listener), RETRY_MS);
    };
    source.addEventListener("message", ({ data }) => listener.onMessage(JSON.parse(data)));
    source.addEventListener("log", ({ data }) => listener.onLogged(JSON.parse(data)));
  }
};
async function request(method, path, body) {
  const response = await fetch(path, {
    method,
    ...body && { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }
  });
  if (!response.ok) throw new Error(`${method} ${path}: status ${response.status}`);
  return response.json();
}

// demo/src/main.ts
var RETRY_MS2 = 1500;
var REDRAW_MS = 15e3;
var server = new DemoServer();
var chat = new Chat();
var log = new EventLog(find("#events"), find("#event-count"));
var link = find("#link");
var linkText = find("#link-text");
var play = find("#play");
var playText = find("#play-text");
var feedIsOpen = false;
async function firstCast() {
  for (; ; ) {
    try {
      return await server.cast();
    } catch {
      showLink("lost", "Reconnecting…");
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS2));
    }
  }
}
function start(cast) {
  const onChange = oncePerFrame(() => {
    people.update();
    showLive(phones);
  });
  const phones = cast.users.map((user) => new Phone({ user, cast, chat, server, onChange }));
  const people = new People(find("#people"), phones);
  const stage = find("#phones");
  stage.replaceChildren(...phones.map(({ element }) => element));
  stage.removeAttribute("aria-busy");
  let lost = false;
  server.follow({
    onOpen() {
      feedIsOpen = true;
      showLive(phones);
      void syncSimulation();
      if (lost) void reloadIfRecast(cast);
      lost = false;
    },
    onLost() {
      feedIsOpen = false;
      lost = true;
      play.disabled = true;
      showLive(phones);
    },
    onMessage(message) {
      if (chat.add(message)) for (const phone of phones) phone.refresh();
    },
    onLogged: (event) => log.add(event)
  });
  setInterval(() => {
    for (const phone of phones) phone.refresh();
  }, REDRAW_MS);
}
function showLive(phones) {
  if (!feedIsOpen) {
    showLink("lost", "Reconnecting…");
    return;
  }
  const online = phones.filter(({ client }) => client.status.state === "online").length;
  showLink("live", `${online} of ${phones.length} phones online`);
}
function showLink(state, text) {
  link.dataset.state = state;
  setText(linkText, text);
}
async function reloadIfRecast(cast) {
  const ids = ({ users, conversations }) => JSON.stringify([users.map((u) => u.user_id), conversations.map((c) => c.conversation_id)]);
  const now = await server.cast().catch(() => cast);
  if (ids(now) !== ids(cast)) location.reload();
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
start(await firstCast());
