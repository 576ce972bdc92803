import type { EventLog } from "./log.js";
import type { Phone } from "./phone.js";
import type { DemoServer } from "./server.js";

const LOOK_MS = 300;

/**
 * While the bus is cut, and until all phones agree with the tables again, compares each phone with
 * the tables. A phone that is behind is marked, with the correct total.
 */
export class StaleWatch {
  readonly #phones: readonly Phone[];
  readonly #server: DemoServer;
  readonly #log: EventLog;
  /** By phone, the total that it showed when it fell behind. */
  readonly #behind = new Map<Phone, number>();
  #cut = false;
  #looking = false;

  constructor(phones: readonly Phone[], server: DemoServer, log: EventLog) {
    this.#phones = phones;
    this.#server = server;
    this.#log = log;
  }

  setCut(cut: boolean): void {
    this.#cut = cut;
    if (cut && !this.#looking) void this.#look();
  }

  async #look(): Promise<void> {
    this.#looking = true;
    while (this.#cut || this.#behind.size > 0) {
      await Promise.all(this.#phones.map((phone) => this.#compare(phone)));
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
    this.#looking = false;
  }

  async #compare(phone: Phone): Promise<void> {
    const truth = await this.#server.badge(phone.user).catch(() => undefined);
    const { badge, status } = phone.client;
    if (truth === undefined || badge === undefined) return;
    // A phone that is offline shows that already.
    const behind =
      status.state === "online" && (truth.epoch !== badge.epoch || truth.version > badge.version);
    phone.setBehind(behind ? truth.total : undefined);
    const before = this.#behind.get(phone);
    if (behind && before === undefined) this.#behind.set(phone, badge.total);
    if (behind || before === undefined) return;
    this.#behind.delete(phone);
    if (status.state !== "online") return;
    phone.showCaughtUp();
    const numbers = before === badge.total ? `at ${before}` : `${before} → ${badge.total}`;
    this.#log.note(
      `${phone.user.name} caught up`,
      `${numbers}, by reconciliation: no update had come`,
    );
  }
}
