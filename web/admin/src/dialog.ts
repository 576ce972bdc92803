import { h } from "../../page/dom.js";

/** Asks for a confirmation; `refusal` is the label of the other button. */
export function confirm(
  title: string,
  text: string,
  action: string,
  refusal: string,
): Promise<boolean> {
  const yes = h("button", { class: "button is-danger", type: "button" }, action);
  const no = h("button", { class: "button", type: "button", autofocus: true }, refusal);
  return ask(title, text, [no, yes], yes);
}

/** Shows an error. */
export async function tell(title: string, text: string): Promise<void> {
  const ok = h("button", { class: "button is-main", type: "button", autofocus: true }, "Close");
  await ask(title, text, [ok], ok);
}

function ask(
  title: string,
  text: string,
  buttons: HTMLButtonElement[],
  yes: HTMLButtonElement,
): Promise<boolean> {
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-labelledby": "dialog-title", "aria-describedby": "dialog-text" },
    h("h2", { id: "dialog-title" }, title),
    h("p", { id: "dialog-text" }, text),
    h("div", { class: "dialog-buttons" }, ...buttons),
  );
  const before = document.activeElement;
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    for (const button of buttons) {
      button.addEventListener("click", () => dialog.close(button === yes ? "yes" : ""));
    }
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
      resolve(dialog.returnValue === "yes");
    });
  });
}
