import type { Server } from "./server.js";

/** One of the views of the page. */
export interface View {
  readonly name: string;
  readonly title: string;
  readonly element: HTMLElement;
  /** Fetches what is shown and shows it; called every few seconds while the view is open. */
  refresh(server: Server): Promise<void>;
}

/** What views ask of the page around them. */
export interface Page {
  readonly server: Server;
  /** Has a screen reader say something, and shows it where it is bad. */
  say(text: string): void;
  /** Does something on the server; what is refused is shown in a dialog. */
  act(doing: () => Promise<unknown>, done: string): Promise<boolean>;
  open(view: string): void;
  /** Fetches what the open view shows, now. */
  refresh(): void;
}
