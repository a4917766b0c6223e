/** The page that asks for the token. */

import { html, render } from "./lit-html.js";
import { tr } from "./i18n.js";
import { logIn } from "./api.js";
import { failure, titled } from "./parts.js";

/** @param {HTMLElement} root @param {(found: any) => void} entered */
export function open(root, entered) {
  /** @type {any} */
  let problem = null;
  let busy = false;

  /** @param {SubmitEvent} event */
  async function submit(event) {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (root.querySelector("#token"));
    busy = true;
    draw();
    try {
      entered(await logIn(field.value.trim()));
    } catch (e) {
      problem = e;
      busy = false;
      draw();
      field.select();
    }
  }

  function draw() {
    render(
      html`<h1>${tr({ t: "Log in" })}</h1>
        <form class="form" @submit=${submit}>
          <label for="token">${tr({ t: "Token" })}</label>
          <input id="token" type="password" autocomplete="current-password" required aria-describedby="token-help" maxlength="512">
          <p class="help" id="token-help">${tr({ t: "It is printed where `netdyno web` was started." })}</p>
          ${failure(problem)}
          <p><button class="press main" ?disabled=${busy}>${tr({ t: "Log in" })}</button></p>
        </form>`,
      root,
    );
  }
  titled({ t: "Log in" });
  draw();
  /** @type {HTMLElement} */ (root.querySelector("#token")).focus();
  return { render: draw };
}
