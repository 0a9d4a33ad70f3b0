// Live updates. The server sends HTML whose outer elements have ids; each is morphed into the element with the same id, so
// that focus, scrolling, open <details> and typed text stay.
//
//   <main data-stream="…" data-patience="5">  the page's one stream, and the seconds without news after which it is silent
//   <p class="seen" data-part="…">            says when the part with that id was last updated, or that nothing answers
//   <div id="…" data-next="…" data-after="30">  replaces itself from data-next after that many seconds, as long as it has it
//   <form data-live="id" data-from="…">       reloads the element with that id, with the form's fields, when typing pauses
//   <input type="checkbox" data-ticks="name"> ticks all checkboxes with that name in its form
//   <a data-swap="…">                         reloads the element around it that has an id, instead of leaving the page
//   <button data-copy="…">                    copies that text; with data-copy-of="…", the text of the element with that id
(() => {
  "use strict";

  const byId = (id) => document.getElementById(id);
  const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
  const shown = () =>
    new Promise((done) => (document.hidden ? document.addEventListener("visibilitychange", done, { once: true }) : done()));
  const lost = (is) => { byId("lost").hidden = !is; };

  // Requests to the dashboard: only they decide whether the connection is lost, not errors of this script.
  class NoAnswer extends Error {
    constructor(seconds) {
      super();
      this.seconds = seconds || 0; // until it may be tried again
    }
  }
  const reached = async (asked) => {
    try {
      const answer = await asked;
      lost(false);
      return answer;
    } catch (error) {
      if (error.name !== "AbortError") lost(true);
      throw new NoAnswer();
    }
  };
  const complain = (error) => { if (!(error instanceof NoAnswer)) console.error(error); };

  const get = async (url, signal) => {
    const answer = await reached(fetch(url, { signal, headers: { "x-requested-with": "fetch" } }));
    if (answer.status === 401) location.reload(); // shows the login
    if (!answer.ok) throw new NoAnswer(Number(answer.headers.get("retry-after")));
    return answer;
  };

  const key = (node) => `${node.nodeName}#${node.id ?? ""}`;

  const morph = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name); // only the user opens and closes <details>
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.nodeName === "OUTPUT") return; // written by scripts, such as the values of a chart
    const left = {};
    for (const child of old.childNodes) (left[key(child)] ??= []).push(child);
    const pairs = [...fresh.childNodes].map((child) => [left[key(child)]?.shift(), child]);
    Object.values(left).flat().forEach((gone) => gone.remove());
    let at = old.firstChild;
    for (const [kept, child] of pairs) {
      if (kept && kept === at) at = at.nextSibling;
      else old.insertBefore(kept ?? child, at); // a moved element loses the focus: move only what has changed its place
      if (kept) morph(kept, child);
    }
  };

  // HTML without an existing element goes before `place`, which is removed if nothing replaces it.
  const apply = (html, place) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    const fresh = [...template.content.children];
    const focused = document.activeElement;
    for (const each of fresh) {
      const old = byId(each.id);
      if (old) morph(old, each);
      else place?.before(each);
    }
    if (place && !fresh.some((each) => each.id === place.id)) place.remove();
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // it was moved
    document.dispatchEvent(new Event("morphed"));
  };

  const main = document.querySelector("main");
  const seen = new Map();
  let since = Date.now(); // before that, nobody was listening
  document.addEventListener("visibilitychange", () => { since = Date.now(); });

  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text; // rewriting a status would make screen readers repeat it
  };

  const tell = () => {
    for (const line of document.querySelectorAll(".seen")) {
      const at = seen.get(line.dataset.part);
      const [ago, silent] = line.children;
      const isSilent = Date.now() - Math.max(at ?? 0, since) > main.dataset.patience * 1000;
      write(ago, at ? `Updated ${Math.round((Date.now() - at) / 1000)} s ago` : "");
      write(silent, isSilent ? "No answer: this may be out of date." : "");
    }
  };

  const take = (event) => {
    const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (event.startsWith("event: seen\n")) seen.set(data, Date.now());
    else apply(data);
  };

  // Without a stream, because too many are open, the page itself is loaded again and again.
  const poll = async (until) => {
    while (Date.now() < until && !document.hidden) {
      try {
        const fresh = new DOMParser().parseFromString(await reached((await get(location.href)).text()), "text/html");
        for (const { dataset } of document.querySelectorAll(".seen")) {
          const part = fresh.getElementById(dataset.part);
          if (!part || !byId(dataset.part)) continue;
          morph(byId(dataset.part), part);
          if (fresh.querySelector(`.seen[data-fresh][data-part="${CSS.escape(dataset.part)}"]`)) seen.set(dataset.part, Date.now());
        }
        document.dispatchEvent(new Event("morphed"));
        tell();
      } catch (error) {
        complain(error);
      }
      await sleep(main.dataset.patience / 2);
    }
  };

  // The page's stream is reopened when it ends: at once if it has lasted, else after pauses of up to a minute. Hidden tabs
  // have none, since a browser has only six connections to a host.
  const follow = async (url) => {
    for (let pause = 1; ; pause = Math.min(2 * pause, 30)) {
      await shown();
      const began = Date.now();
      const leaving = new AbortController();
      const leave = () => leaving.abort();
      document.addEventListener("visibilitychange", leave);
      try {
        const answer = await get(url, leaving.signal);
        if (answer.status === 204) { // it is over
          document.querySelectorAll(".seen").forEach((line) => line.remove());
          return;
        }
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        let text = "";
        for (let part; !(part = await reached(reader.read())).done; pause = 0.5) {
          const events = (text + part.value).split("\n\n");
          text = events.pop();
          events.forEach(take);
          tell();
        }
      } catch (error) {
        complain(error);
        if (error.seconds) await poll(Date.now() + error.seconds * 1000);
      }
      document.removeEventListener("visibilitychange", leave);
      if (!document.hidden) await sleep(pause * (1 + Math.random()) - (Date.now() - began) / 1000);
    }
  };

  const asking = new Map();

  // Loads the successors of an element: the given URL at once, then the next URL that each answer names.
  const renew = async (id, url) => {
    asking.get(id)?.abort();
    const { signal } = asking.set(id, new AbortController()).get(id);
    for (let place; (place = byId(id)) && (url || place.dataset.next);) {
      try {
        if (!url) await sleep(place.dataset.after);
        await shown();
        const html = await reached((await get(url ?? place.dataset.next, signal)).text());
        if (!signal.aborted) apply(html, place);
        url = null;
      } catch (error) {
        complain(error);
        await sleep(5);
      }
      if (signal.aborted) return;
    }
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    renew(link.closest("[id]").id, link.dataset.swap);
  });

  // Copy buttons are shown only if the browser allows the clipboard: over HTTPS and on the same machine.
  if (navigator.clipboard) {
    document.documentElement.classList.add("copies");
    const said = document.createElement("p");
    said.className = "unseen";
    said.setAttribute("role", "status");
    document.body.append(said);
    let timer = 0;
    document.addEventListener("click", async (event) => {
      const button = event.target.closest("[data-copy], [data-copy-of]");
      if (!button) return;
      try {
        await navigator.clipboard.writeText(button.dataset.copy ?? byId(button.dataset.copyOf).textContent);
      } catch {
        write(said, "Not copied: the browser refused.");
        return;
      }
      document.querySelector(".copied")?.classList.remove("copied");
      button.classList.add("copied");
      write(said, "Copied.");
      clearTimeout(timer);
      timer = setTimeout(() => { button.classList.remove("copied"); write(said, ""); }, 2000);
    });
  }

  for (const each of document.querySelectorAll("[data-ticks]")) {
    each.hidden = false;
    each.addEventListener("change", () => {
      for (const tick of each.form.querySelectorAll(`[name="${each.dataset.ticks}"]`)) tick.checked = each.checked;
    });
  }

  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-live]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => renew(form.dataset.live, `${form.dataset.from}?${new URLSearchParams(new FormData(form))}`), 400);
  });

  for (const each of document.querySelectorAll("[data-next]")) renew(each.id);
  if (main.dataset.stream) {
    for (const each of document.querySelectorAll(".seen[data-fresh]")) seen.set(each.dataset.part, since);
    tell();
    setInterval(tell, 1000);
    follow(main.dataset.stream);
  }
})();
