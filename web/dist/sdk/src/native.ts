import type { Page } from "./environment.js";

/** The part of React Native's `AppState` that this client uses. */
export interface AppStateLike {
  readonly currentState: string | null;
  addEventListener(type: "change", listener: (state: string) => void): { remove(): void };
}

/**
 * The option `page` for React Native: an app that is active is visible and has
 * the focus.
 */
export function appStatePage(appState: AppStateLike): Page {
  const on = (active: boolean, call: () => void) => {
    const subscription = appState.addEventListener("change", (state) => {
      if ((state === "active") === active) call();
    });
    return () => subscription.remove();
  };
  return {
    onReturn: (call) => on(true, call),
    onLeave: (call) => on(false, call),
    attended: () => appState.currentState === "active",
    onAttend: (call) => on(true, call),
  };
}
