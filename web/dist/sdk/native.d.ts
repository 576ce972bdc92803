import type { Page } from "./environment.js";
/** The part of React Native's `AppState` that this client uses. */
export interface AppStateLike {
    readonly currentState: string | null;
    addEventListener(type: "change", listener: (state: string) => void): {
        remove(): void;
    };
}
/**
 * The option `page` for React Native: an app that is active is visible and has
 * the focus.
 */
export declare function appStatePage(appState: AppStateLike): Page;
