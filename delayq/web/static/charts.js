// Reads the values of a chart. A chart is a figure with an svg and, for people who cannot see it, a table of the same
// values. The row nearest to the pointer, or the one that the arrow keys have reached, is shown in words below.
(() => {
  "use strict";

  const rowsOf = (figure) => [...figure.querySelectorAll("tbody tr")];

  const show = (figure, row) => {
    const line = figure.querySelector(".cross");
    line.setAttribute("x1", row.dataset.x);
    line.setAttribute("x2", row.dataset.x);
    line.setAttribute("visibility", "visible");
    const names = [...figure.querySelectorAll("thead th")].slice(1);
    const cells = [...row.querySelectorAll("td")].map((cell, i) => `${names[i].textContent} ${cell.textContent}`);
    const output = figure.querySelector("output");
    const text = [row.querySelector("th").textContent, ...cells].join(" · ");
    if (output.textContent !== text) output.textContent = text; // rewriting it would make screen readers repeat it
    figure.read = row.querySelector("th").textContent;
  };

  const hide = (figure) => {
    figure.querySelector(".cross").setAttribute("visibility", "hidden");
    figure.querySelector("output").textContent = "";
    figure.read = undefined;
  };

  const rowRead = (figure) => rowsOf(figure).find((row) => row.querySelector("th").textContent === figure.read);

  const figureOf = (event) => event.target.closest?.("figure.chart svg[tabindex]")?.closest("figure");

  document.addEventListener("pointermove", (event) => {
    const figure = figureOf(event);
    const rows = figure ? rowsOf(figure) : [];
    if (!rows.length) return;
    const svg = figure.querySelector("svg[tabindex]");
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
    const read = rowRead(figure);
    const at = read ? rows.indexOf(read) : step > 0 ? -1 : rows.length; // start from the side that the arrow comes from
    show(figure, rows[Math.min(rows.length - 1, Math.max(0, at + step))]);
  });

  // A redrawn chart shows the values of the same time as before, if it still has them.
  document.addEventListener("morphed", () => {
    for (const figure of document.querySelectorAll("figure.chart")) {
      const row = rowRead(figure);
      if (row) show(figure, row);
    }
  });
})();
