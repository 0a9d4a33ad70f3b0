// What changes by itself. The server sends HTML whose outer elements have ids; each is morphed into the element that has
// its id, so that focus, scrolling, open <details> and what somebody types stay.
//
//   <main data-stream="…" data-patience="5">  the page's one stream, and after how many seconds without news it is silent
//   <p class="seen" data-part="…">            says when the part with that id was seen last, and that nothing answers
//   <div id="…" data-next="…" data-after="30">  asks for what follows it after that many seconds, as long as it has data-next
//   <form data-live="id" data-from="…">       renews the element with that id from there, with its fields, when typing pauses
//   <input type="checkbox" data-ticks="name"> ticks all boxes of that name in its form
//   <a data-swap="…">                         asks for the element around it that has an id, instead of leaving the page
//   <button data-copy="…">                    copies that text; with data-copy-of="…", the text of the element with that id
(() => {
  "use strict";

  const byId = (id) => document.getElementById(id);
  const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
  const shown = () =>
    new Promise((done) => (document.hidden ? document.addEventListener("visibilitychange", done, { once: true }) : done()));
  const lost = (is) => { byId("lost").hidden = !is; };

  // What the dashboard is asked for: only that says whether it is lost, and no error of this script does.
  class NoAnswer extends Error {}
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
    if (answer.status === 401) location.reload(); // which asks for a login
    if (!answer.ok) throw new NoAnswer();
    return answer;
  };

  const key = (node) => `${node.nodeName}#${node.id ?? ""}`;

  const morph = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return;
    }
    for (const { name } of [...old.attributes]) {
      if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name); // who has opened <details> closes them
    }
    for (const { name, value } of fresh.attributes) {
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    if (old.nodeName === "OUTPUT") return; // what the pages write themselves, such as the reading of a chart
    const left = {};
    for (const child of old.childNodes) (left[key(child)] ??= []).push(child);
    const pairs = [...fresh.childNodes].map((child) => [left[key(child)]?.shift(), child]);
    Object.values(left).flat().forEach((gone) => gone.remove());
    let at = old.firstChild;
    for (const [kept, child] of pairs) {
      if (kept && kept === at) at = at.nextSibling;
      else old.insertBefore(kept ?? child, at); // what is moved loses the focus: only what has changed its place is
      if (kept) morph(kept, child);
    }
  };

  // Without an element of its id, it goes before `place`, which goes itself when nothing replaces it.
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
  let since = Date.now(); // before that, nobody has listened
  document.addEventListener("visibilitychange", () => { since = Date.now(); });

  const write = (element, text) => {
    if (element.textContent !== text) element.textContent = text; // a status that is written again is read out again
  };

  const tell = () => {
    for (const line of document.querySelectorAll(".seen")) {
      const at = seen.get(line.dataset.part);
      const [ago, silent] = line.children;
      const isSilent = Date.now() - Math.max(at ?? 0, since) > main.dataset.patience * 1000;
      write(ago, at ? `Seen ${Math.round((Date.now() - at) / 1000)} s ago` : "");
      write(silent, isSilent ? "No answer: what you see may be old." : "");
    }
  };

  const take = (event) => {
    const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (event.startsWith("event: seen\n")) seen.set(data, Date.now());
    else apply(data);
  };

  // The page's stream, asked for again when it ends: at once if it has lasted, else after pauses of up to a minute. A tab
  // that is hidden has none, for a browser has six connections to a host.
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
      }
      document.removeEventListener("visibilitychange", leave);
      if (!document.hidden) await sleep(pause * (1 + Math.random()) - (Date.now() - began) / 1000);
    }
  };

  const asking = new Map();

  // Asks for what replaces an element: the given URL at once, then for what each answer names as its next one.
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

  // Buttons that copy are shown where the browser has a clipboard: over HTTPS and on this machine.
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
