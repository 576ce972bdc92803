/**
 * The custom element `<badged-count>`: the live unread badge of one user.
 *
 * @packageDocumentation
 */
import { type Badged } from "@badged/sdk";
declare const Base: {
    new (): HTMLElement;
    prototype: HTMLElement;
};
/**
 * Shows a count, and is hidden at 0. Attributes: `category`, with those below it, or
 * `conversation` limits what it counts. With `count` it counts instead of messages
 * `conversations`, `mentions`, what is `unseen`, `muted` or `marked`. While it has the
 * attribute `open`, a list of the category, or of everything, is on the screen: what
 * arrives is seen. `most` (default 99) is the largest count shown as it is, and in
 * `label` (default `{count} unread`) is what screen readers say.
 */
export declare class BadgedCount extends Base {
    #private;
    static readonly observedAttributes: string[];
    /** The client; default that of {@link defineBadgedCount}. */
    get client(): Badged | undefined;
    set client(client: Badged | undefined);
    connectedCallback(): void;
    disconnectedCallback(): void;
    attributeChangedCallback(): void;
}
/**
 * Defines `<badged-count>`, and gives its elements a client. Call it again with
 * another client after the user has changed. It does nothing on a server.
 */
export declare function defineBadgedCount(client?: Badged): void;
declare global {
    interface HTMLElementTagNameMap {
        "badged-count": BadgedCount;
    }
}
export {};
