"use strict";
const LOOK = {
  font: { family: 'system-ui, "Segoe UI", Roboto, sans-serif', size: 12, color: "#1b1f24" },
  margin: { l: 64, r: 16, t: 12, b: 48 },
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  hoverlabel: { namelength: -1 },
  legend: { orientation: "h", y: -0.24, x: 0 },
};
const AXIS = { gridcolor: "#e6eaee", zerolinecolor: "#b6bec6", linecolor: "#b6bec6", ticks: "outside", automargin: true };
const OPTIONS = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };

function draw(number, view) {
  const figure = PLOTS[number].find((one) => one.view === view) ?? PLOTS[number][0];
  const layout = { ...LOOK, ...figure.layout };
  for (const name of Object.keys(layout)) {
    if (/^[xy]axis/.test(name)) layout[name] = { ...AXIS, ...layout[name] };
  }
  Plotly.react(`plot-${number}`, figure.data, layout, OPTIONS);
}

PLOTS.forEach((_, number) => draw(number));

for (const chooser of document.querySelectorAll("select.view")) {
  chooser.addEventListener("change", () => {
    for (const plot of chooser.closest("section, details").querySelectorAll(".plot")) {
      draw(Number(plot.id.slice("plot-".length)), chooser.value);
    }
  });
}

// A plot inside a folded part has no width until that is opened.
for (const part of document.querySelectorAll("main > details")) {
  part.addEventListener("toggle", () => {
    for (const plot of part.querySelectorAll(".plot")) Plotly.Plots.resize(plot);
  });
}

for (const heading of document.querySelectorAll("th")) {
  heading.addEventListener("click", () => {
    const body = heading.closest("table").tBodies[0];
    const way = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    for (const other of heading.parentElement.children) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", way);
    const key = (row) => {
      const cell = row.cells[heading.cellIndex];
      const value = cell.dataset.value;
      return value === undefined ? cell.textContent : value === "" ? -Infinity : Number(value);
    };
    const rows = [...body.rows].sort((a, b) => {
      const [left, right] = [key(a), key(b)];
      return (left < right ? -1 : left > right ? 1 : 0) * (way === "ascending" ? 1 : -1);
    });
    body.append(...rows);
  });
}
