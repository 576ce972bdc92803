import type { Server } from "./server.js";

/** One of the views of the page. */
export interface View {
  readonly name: string;
  readonly title: string;
  readonly element: HTMLElement;
  /** Fetches and renders the data. Called every few seconds while the view is open. */
  refresh(server: Server): Promise<void>;
  /** Shows the parameters of a URL. Called whenever a URL opens the view. */
  arrive?(params: URLSearchParams): void;
}

/** The page, as its views use it. */
export interface Page {
  readonly server: Server;
  /** Announces a text to screen readers, and shows it if it is an error. */
  say(text: string): void;
  /** Runs an action on the server. Shows an error in a dialog. */
  act(doing: () => Promise<unknown>, done: string): Promise<boolean>;
  /** Opens a hash such as `#jobs`; shows it again if it is open already. */
  open(hash: string): void;
  /** Replaces the URL without changing what is shown. */
  replace(hash: string): void;
  /** Refreshes the open view now. */
  refresh(): void;
}
