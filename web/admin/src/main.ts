import { find, h, setText } from "../../page/dom.js";
import { Audit } from "./audit.js";
import { DeadLetters } from "./deadletters.js";
import { tell } from "./dialog.js";
import { Jobs } from "./jobs.js";
import { Overview } from "./overview.js";
import { placeOf } from "./place.js";
import { Away, Refused, Server } from "./server.js";
import { signIn } from "./signin.js";
import { Users } from "./users.js";
import type { Page, View } from "./view.js";
import { Webhooks } from "./webhooks.js";

const POLL_MS = 3_000;
// Stored in sessionStorage: it ends with the tab and never gets into a URL.
const KEY = "badged-admin-key";

const main = find("#main");
const nav = find("#views");
const pill = find("#link");
const pillText = find("#link-text");
const signOut = find<HTMLButtonElement>("#sign-out");
const said = find("#said");

/** The page after the sign-in. */
class Operations implements Page {
  readonly server: Server;
  readonly #views: readonly View[];
  readonly #links = new Map<string, { link: HTMLAnchorElement; badge: HTMLElement }>();
  readonly #onKeyRefused: (why: string) => void;
  #open: View;
  #polling = false;
  #again = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(server: Server, onKeyRefused: (why: string) => void) {
    this.server = server;
    this.#onKeyRefused = onKeyRefused;
    this.#views = [
      new Overview(),
      new DeadLetters(this, (n) => this.#mark("dead-letters", n, "waiting")),
      new Users(this),
      new Jobs(this, (n) => this.#mark("jobs", n, "running")),
      new Webhooks(this, (n) => this.#mark("webhooks", n, "failing")),
      new Audit(this),
    ];
    nav.replaceChildren(
      ...this.#views.map(({ name, title }) => {
        const badge = h("span", { class: "nav-badge", hidden: true });
        const link = h("a", { href: `#${name}` }, title, badge);
        this.#links.set(name, { link, badge });
        return link;
      }),
    );
    for (const element of [nav, pill, signOut]) element.hidden = false;
    this.#open = this.#chosen();
    this.#show();
    addEventListener("hashchange", this.#onHash);
    document.addEventListener("visibilitychange", this.#onVisible);
    void this.#countAll();
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    removeEventListener("hashchange", this.#onHash);
    document.removeEventListener("visibilitychange", this.#onVisible);
    for (const element of [nav, pill, signOut]) element.hidden = true;
  }

  say(text: string): void {
    setText(said, text);
  }

  async act(doing: () => Promise<unknown>, done: string): Promise<boolean> {
    try {
      await doing();
      this.say(done);
      this.refresh();
      return true;
    } catch (error) {
      if (!this.#isOut(error)) await tell("The action failed", messageOf(error));
      this.refresh();
      return false;
    }
  }

  open(hash: string): void {
    if (location.hash === hash) this.#arrive();
    else location.hash = hash;
  }

  replace(hash: string): void {
    history.replaceState(null, "", hash);
    this.#remember();
  }

  refresh(): void {
    if (this.#closed || document.hidden) return;
    if (this.#polling) this.#again = true;
    else void this.#poll();
  }

  readonly #onHash = () => {
    const before = this.#open;
    this.#open = this.#chosen();
    if (this.#open !== before) this.#show();
    else this.#arrive();
    // Within a view the focus stays.
    if (this.#open !== before || placeOf(location.hash).params.size === 0) main.focus();
  };

  /** A hidden page does not poll. */
  readonly #onVisible = () => {
    clearTimeout(this.#timer);
    this.refresh();
  };

  #chosen(): View {
    const { view: name } = placeOf(location.hash);
    const view = this.#views.find((v) => v.name === name) ?? this.#views[0];
    if (view === undefined) throw new Error("no view is defined");
    return view;
  }

  #show(): void {
    for (const [name, { link }] of this.#links) {
      if (name === this.#open.name) {
        link.setAttribute("aria-current", "page");
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else {
        link.removeAttribute("aria-current");
      }
    }
    document.title = `${this.#open.title} · badged operations`;
    main.replaceChildren(this.#open.element);
    this.#arrive();
    this.refresh();
  }

  #arrive(): void {
    this.#remember();
    this.#open.arrive?.(placeOf(location.hash).params);
  }

  /** Makes the link of a view lead to what it showed last. */
  #remember(): void {
    const link = this.#links.get(this.#open.name)?.link;
    if (link && placeOf(location.hash).view === this.#open.name) link.href = location.hash;
  }

  #mark(name: string, n: number, what: string): void {
    const badge = this.#links.get(name)?.badge;
    if (badge === undefined) return;
    badge.hidden = n === 0;
    setText(badge, String(n));
    badge.setAttribute("aria-label", `${n} ${what}`);
  }

  /** Loads the counts in the links before their views are opened. */
  async #countAll(): Promise<void> {
    await Promise.all(
      this.#views
        .filter(({ name }) => ["dead-letters", "jobs", "webhooks"].includes(name))
        .map((v) => v.refresh(this.server)),
    ).catch(() => {});
  }

  async #poll(): Promise<void> {
    clearTimeout(this.#timer);
    this.#polling = true;
    const view = this.#open;
    try {
      await view.refresh(this.server);
      this.#link("live", "Live");
    } catch (error) {
      if (this.#isOut(error)) return;
      if (error instanceof Away) this.#link("lost", "Server unreachable, retrying");
      else if (error instanceof Refused) this.#link("lost", error.message);
      else throw error;
    } finally {
      this.#polling = false;
    }
    const again = this.#again;
    this.#again = false;
    if (this.#closed || document.hidden) return;
    if (again) void this.#poll();
    else this.#timer = setTimeout(() => this.refresh(), POLL_MS);
  }

  #isOut(error: unknown): boolean {
    if (!(error instanceof Refused) || error.status !== 401) return false;
    this.#onKeyRefused(error.message);
    return true;
  }

  #link(state: "live" | "lost", text: string): void {
    pill.dataset.state = state;
    main.classList.toggle("is-stale", state === "lost");
    setText(pillText, text);
  }
}

function messageOf(error: unknown): string {
  if (error instanceof Refused) return error.message;
  return "The server cannot be reached. Check whether the action took effect before you try again.";
}

/** Asks for a key until the server accepts one. */
async function askForKey(why: string): Promise<void> {
  sessionStorage.removeItem(KEY);
  document.title = "Sign in · badged operations";
  const key = await signIn(main, why);
  sessionStorage.setItem(KEY, key);
  begin(key);
}

function begin(key: string): void {
  const leave = (why: string) => {
    page.close();
    signOut.onclick = null;
    void askForKey(why);
  };
  const page = new Operations(new Server(key), leave);
  signOut.onclick = () => leave("");
}

const kept = sessionStorage.getItem(KEY);
if (kept === null) void askForKey("");
else begin(kept);
