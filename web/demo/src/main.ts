import { showInTitle, showOnApp, showOnFavicon } from "@badged/sdk";
import { find, oncePerFrame, setText } from "../../page/dom.js";
import { BusButton } from "./bus.js";
import { Chat } from "./chat.js";
import { CountButton } from "./count.js";
import { EventLog } from "./log.js";
import { People } from "./people.js";
import { Phone } from "./phone.js";
import { RoomPanel } from "./room.js";
import { type Cast, DemoServer, type PhoneState, type Subscribed, type User } from "./server.js";
import { StaleWatch } from "./stale.js";
import { TransactionButton } from "./transaction.js";

const RETRY_MS = 1_500;
// Updates ages such as "5m".
const REDRAW_MS = 15_000;

const server = new DemoServer();
const chat = new Chat();
const log = new EventLog(find("#events"), find("#event-count"), server);
const link = find("#link");
const linkText = find("#link-text");
const play = find<HTMLButtonElement>("#play");
const playText = find("#play-text");
let stale: StaleWatch | undefined;
const bus = new BusButton(find<HTMLButtonElement>("#bus"), server, log, (cut) =>
  stale?.setCut(cut),
);
const transaction = new TransactionButton(find<HTMLButtonElement>("#transaction"), server, log);
let feedIsOpen = false;

/** Fetches the users, and retries until the server answers. */
async function firstCast(): Promise<Cast> {
  for (;;) {
    try {
      return await server.cast();
    } catch {
      showLink("lost", "Reconnecting…");
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

/** Registers all phones at badged, as an app does when it starts, and returns them. */
async function register(cast: Cast): Promise<readonly Subscribed[]> {
  try {
    const phones = await server.phones();
    for (const phone of phones) {
      const user = cast.users.find(({ user_id }) => user_id === phone.user_id);
      if (user !== undefined) await server.register(user, phone);
    }
    return phones;
  } catch (error) {
    console.warn(error); // again when the feed opens
    return [];
  }
}

function start(cast: Cast, registered: readonly Subscribed[]): void {
  const onChange = oncePerFrame(() => {
    people.update();
    showLive(phones);
  });
  const stateOf = ({ user_id }: User) => registered.find((phone) => phone.user_id === user_id);
  const phones = cast.users.map((user) => {
    const device = stateOf(user)?.device;
    return new Phone({ user, cast, chat, server, device, onChange });
  });
  for (const phone of phones) phone.start(stateOf(phone.user));
  stale = new StaleWatch(phones, server, log);
  log.begin(cast, (users) => {
    for (const phone of phones) phone.setChanged(users.includes(phone.user.user_id));
  });
  const showAgain = showOnPage(phones);
  new CountButton(find<HTMLButtonElement>("#count"), (count) => {
    for (const phone of phones) phone.count = count;
    showAgain();
  });
  const room = new RoomPanel(find("#room"), cast, phones, server);
  const people = new People(find("#people"), phones);
  const stage = find("#phones");
  stage.replaceChildren(...phones.map(({ element }) => element));
  stage.removeAttribute("aria-busy");

  const showPhone = (state: PhoneState) => {
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
        void reloadIfRecast(cast);
        void register(cast).then((states) => states.forEach(showPhone));
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
    onPhone: showPhone,
  });
  setInterval(() => {
    for (const phone of phones) phone.refresh();
  }, REDRAW_MS);
}

/**
 * Shows the badge of the last used phone on the page itself; at first that of the first phone.
 * The returned function follows a change of what the badges count.
 */
function showOnPage(phones: readonly Phone[]): () => void {
  let shown: Phone | undefined;
  let stop = () => {};
  const show = (phone: Phone | undefined) => {
    shown = phone;
    stop();
    if (phone === undefined || phone.closed) return;
    const { client, count } = phone;
    const all = [
      showInTitle(client, { count }),
      showOnFavicon(client, { count }),
      showOnApp(client, { count }),
    ];
    stop = () => {
      for (const each of all) each();
    };
  };
  for (const phone of phones) {
    phone.element.addEventListener("focusin", () => {
      if (phone !== shown) show(phone);
    });
  }
  show(phones[0]);
  return () => show(shown);
}

function showLive(phones: readonly Phone[]): void {
  if (!feedIsOpen) {
    showLink("lost", "Reconnecting…");
    return;
  }
  const online = phones.filter(({ client }) => client.status.state === "online").length;
  const closed = phones.filter((phone) => phone.closed).length;
  const more = closed > 0 ? `, ${closed} closed` : "";
  showLink("live", `${online} of ${phones.length} phones online${more}`);
}

function showLink(state: "live" | "lost", text: string): void {
  link.dataset.state = state;
  setText(linkText, text);
}

/** After a restart the server may have other users: then the page must reload. */
async function reloadIfRecast(cast: Cast): Promise<void> {
  const ids = ({ users, conversations }: Cast) =>
    JSON.stringify([users.map((u) => u.user_id), conversations.map((c) => c.conversation_id)]);
  const now = await server.cast().catch(() => cast);
  if (ids(now) !== ids(cast)) location.reload();
}

async function syncSimulation(): Promise<void> {
  showSimulation(await server.isRunning().catch(() => undefined));
}

function showSimulation(running: boolean | undefined): void {
  if (running === undefined) return;
  play.disabled = false;
  play.dataset.running = String(running);
  setText(playText, running ? "Pause the chat" : "Let them chat");
}

play.addEventListener("click", async () => {
  const wanted = play.dataset.running !== "true";
  showSimulation(await server.setRunning(wanted).catch(() => undefined));
});

// Without one, as on plain http, the icon changes only while the page is open.
void navigator.serviceWorker?.register("badged-worker.js").catch(console.warn);

const cast = await firstCast();
start(cast, await register(cast));
