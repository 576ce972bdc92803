import { h, setText } from "../../page/dom.js";
import { Refused, Server } from "./server.js";

/** Shows a form until the server accepts the key, and returns it. */
export function signIn(main: HTMLElement, why: string): Promise<string> {
  const key = h("input", {
    id: "key",
    type: "password",
    autocomplete: "current-password",
    required: true,
    "aria-describedby": "sign-in-error",
  });
  const error = h("p", { class: "bad", id: "sign-in-error", role: "alert" }, why);
  const button = h("button", { class: "button is-main", type: "submit" }, "Sign in");
  const form = h(
    "form",
    { class: "panel sign-in" },
    h("h2", {}, "Sign in"),
    h("p", { class: "soft" }, "Use a key of --admin-keys. It is stored in this tab only."),
    h("label", { for: "key" }, "Operator key"),
    key,
    error,
    button,
  );
  main.replaceChildren(form);
  main.classList.remove("is-stale");
  key.focus();
  return new Promise((resolve) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      button.disabled = true;
      setText(error, "");
      try {
        await new Server(key.value.trim()).audit(undefined);
        resolve(key.value.trim());
      } catch (refusal) {
        setText(
          error,
          refusal instanceof Refused
            ? sentence(refusal.message)
            : "The server cannot be reached. Try again.",
        );
        key.select();
      } finally {
        button.disabled = false;
      }
    });
  });
}

function sentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;
}
