// Questions: a dialog with fields, which shows what the agent says if it does not do it.

import { el } from "./dom.js";

/**
 * Asks, and does. `fields`: `{name, label, value, type, hint, required}`; `act(values)` may throw, and then its words are
 * shown and the dialog stays. Resolves with what `act` gave, or undefined if it was given up.
 */
export function ask({ title, text, fields = [], button, danger = false, closable = true, act }) {
  return new Promise((resolve) => {
    const error = el("p", { class: "error", role: "alert" });
    const inputs = fields.map(input);
    const submit = el("button", { class: danger ? "danger" : "primary", type: "submit" }, button);
    const cancel = closable && el("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    const form = el("form", { method: "dialog" }, el("h2", {}, title), text && el("p", { class: "muted" }, text),
      inputs.map(({ label }) => label), error, el("div", { class: "buttons" }, cancel, submit));
    const dialog = el("dialog", { "aria-label": title }, form);
    let result;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      submit.disabled = true;
      error.textContent = "";
      try {
        result = await act(Object.fromEntries(inputs.map(({ name, value }) => [name, value()])));
        dialog.close();
      } catch (problem) {
        error.textContent = problem.message;
        submit.disabled = false;
        // What was wrong is typed over: one cannot see what is in a password's field.
        inputs[0]?.element.focus();
        inputs[0]?.element.select();
      }
    });
    if (!closable) dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    (inputs[0]?.element ?? submit).focus();
  });
}

function input({ name, label, value = "", type = "text", hint, required = false }) {
  if (type === "checkbox") {
    const box = el("input", { type, name });
    return { name, element: box, value: () => box.checked, label: el("label", { class: "check" }, box, label) };
  }
  const field = el("input", { type, name, required, autocomplete: "off", spellcheck: "false", maxlength: 4000 });
  field.value = value;
  return {
    name,
    element: field,
    value: () => field.value.trim(),
    label: el("label", {}, el("span", {}, label), field, hint && el("small", {}, hint)),
  };
}

/** Shows the keys. */
export function showKeys(keys) {
  const rows = keys.map(([key, what]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, what)));
  const dialog = el("dialog", { "aria-label": "Keys", onclose: () => dialog.remove() },
    el("form", { method: "dialog" }, el("h2", {}, "Keys"), el("table", {}, rows),
      el("div", { class: "buttons" }, el("button", { class: "primary" }, "Close"))));
  document.body.append(dialog);
  dialog.showModal();
}
