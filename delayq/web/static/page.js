// What the pages need beyond htmx: to tell that what is live has stopped, to ask for a login that has run out, and to
// read a chart at a point.
(() => {
  "use strict";

  const lost = (is) => { document.getElementById("lost").hidden = !is; };
  const failed = (status) => {
    if (status === 401) location.reload(); // which asks for a login
    lost(true);
  };
  document.addEventListener("htmx:sse:error", (event) => failed(event.detail.status));
  document.addEventListener("htmx:response:error", (event) => failed(event.detail.ctx.response.status));
  document.addEventListener("htmx:error", () => lost(true));
  document.addEventListener("htmx:sse:after:connection", (event) => lost(event.detail.connection.status >= 400));

  // A chart is a figure with an svg and, for those who cannot see it, a table of the same. The row that is nearest to
  // the pointer, or that the arrow keys have reached, is shown in words below.
  const rowsOf = (figure) => [...figure.querySelectorAll("tbody tr")];

  const show = (figure, row) => {
    const line = figure.querySelector(".cross");
    line.setAttribute("x1", row.dataset.x);
    line.setAttribute("x2", row.dataset.x);
    line.setAttribute("visibility", "visible");
    const names = [...figure.querySelectorAll("thead th")].slice(1);
    const cells = [...row.querySelectorAll("td")].map((cell, i) => `${names[i].textContent} ${cell.textContent}`);
    figure.querySelector("output").textContent = [row.querySelector("th").textContent, ...cells].join(" · ");
    figure.dataset.row = String(rowsOf(figure).indexOf(row));
  };

  const hide = (figure) => {
    figure.querySelector(".cross").setAttribute("visibility", "hidden");
    figure.querySelector("output").textContent = "";
    delete figure.dataset.row;
  };

  const figureOf = (event) => event.target.closest?.("figure.chart svg")?.closest("figure");

  document.addEventListener("pointermove", (event) => {
    const figure = figureOf(event);
    const rows = figure ? rowsOf(figure) : [];
    if (!rows.length) return;
    const svg = figure.querySelector("svg");
    const box = svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const away = (row) => Math.abs(row.dataset.x - x);
    show(figure, rows.reduce((a, b) => (away(b) < away(a) ? b : a)));
  });
  document.addEventListener("pointerout", (event) => {
    const figure = figureOf(event);
    if (figure) hide(figure);
  });
  document.addEventListener("focusout", (event) => {
    const figure = figureOf(event);
    if (figure) hide(figure);
  });
  document.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const figure = step && figureOf(event);
    const rows = figure ? rowsOf(figure) : [];
    if (!rows.length) return;
    event.preventDefault();
    const at = figure.dataset.row === undefined ? rows.length : Number(figure.dataset.row);
    show(figure, rows[Math.min(rows.length - 1, Math.max(0, at + step))]);
  });
})();
