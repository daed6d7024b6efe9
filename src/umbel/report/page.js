"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)").matches;
  const figures = [...document.querySelectorAll(".plot")];

  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    return { paper: of("--paper"), raised: of("--raised"), ink: of("--ink"), quiet: of("--quiet"), grid: of("--grid") };
  };

  // The words that stand for colours of the page, and black, which dark pages swallow.
  const tinted = (value, c) => {
    if (Array.isArray(value)) return value.map((each) => tinted(each, c));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, each]) => {
        const isColour = key === "color" || key === "fillcolor";
        return [key, isColour && typeof each === "string" ? tint(each, c) : tinted(each, c)];
      }));
    }
    return value;
  };
  const tint = (colour, c) => {
    if (colour === "paper") return c.paper;
    if (colour === "mark" || colour === "currentColor") return c.quiet;
    if (colour.startsWith("#000000")) return c.ink + colour.slice(7);
    return colour;
  };

  const themed = (figure) => {
    const c = colours();
    const data = tinted(figure.data, c);
    const layout = tinted(figure.layout, c);
    const cells = layout.meta && layout.meta.heatmap;
    if (cells) {
      data[0].text = cells.rows.map((row) => cells.columns.map((column) => `${row}<br>${column}`));
      data[0].colorbar.tickfont = { color: c.ink };
    }
    for (const axis of ["xaxis", "yaxis", "xaxis2"]) {
      if (!layout[axis]) continue;
      layout[axis] = { gridcolor: c.grid, linecolor: c.grid, zerolinecolor: c.grid, ...layout[axis] };
    }
    for (const note of layout.annotations || []) note.font = { color: c.quiet, ...note.font };
    return {
      data,
      layout: {
        paper_bgcolor: "rgba(0,0,0,0)",
        plot_bgcolor: "rgba(0,0,0,0)",
        font: { color: c.ink, family: "system-ui, sans-serif", size: 12 },
        hoverlabel: { bgcolor: c.raised, bordercolor: c.quiet, font: { color: c.ink }, align: "left", namelength: -1 },
        margin: { l: 52, r: 14, t: (layout.annotations || []).length > 1 && layout.shapes ? 36 : 24, b: 44 },
        dragmode: coarse ? false : "zoom",
        autosize: true,
        ...layout,
        legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 11 }, ...layout.legend },
      },
    };
  };

  // Dots of a map are as large as there is room for, heat maps as high as they are wide.
  const fit = (div) => {
    const { layout } = div.figure;
    const meta = layout.meta || {};
    const width = div.clientWidth;
    if (meta.map) {
      const scale = Math.min(60, (width - 20) / meta.map.width);
      div.style.height = `${Math.max(160, scale * meta.map.height + (layout.showlegend ? 60 : 22))}px`;
      div.figure.data.forEach((trace) => {
        trace.marker.size = trace.meta.relative.map((each) => Math.max(4, Math.min(40, 0.86 * scale * each)));
      });
      // "cluster 3: 12" takes more room than there is on a phone.
      if (width < 500) layout.annotations.forEach((note) => { note.text = note.text.replace("cluster ", ""); });
      layout.margin = { l: 10, r: 10, t: 6, b: layout.showlegend ? 54 : 16 };
    }
    if (meta.heatmap) layout.xaxis.showticklabels = layout.xaxis.showticklabels !== false && 14 * meta.heatmap.columns.length < 0.6 * width;
    if (meta.heatmap && meta.heatmap.square) div.style.height = `${Math.max(260, Math.min(620, 0.8 * width))}px`;
    if (meta.heatmap && !meta.heatmap.square) div.style.height = `${Math.max(300, Math.min(620, 60 + 14 * meta.heatmap.rows.length))}px`;
  };

  const config = { responsive: false, displaylogo: false, displayModeBar: false };
  const draw = (div) => {
    div.figure = JSON.parse(div.querySelector("script").textContent);
    fit(div);
    const { data, layout } = themed(div.figure);
    const target = div.querySelector(".drawing");
    return Plotly.react(target, data, layout, config);
  };
  const drawAll = async () => {
    for (const div of figures) {
      await draw(div);
      await new Promise((next) => setTimeout(next));
    }
    document.documentElement.dataset.drawn = "yes";
  };
  drawAll();
  dark.addEventListener("change", drawAll);
  let width = innerWidth;
  let waiting;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });

  // Tables: sorted by a button in each head, and searched.
  const key = (text) => {
    const number = Number(text);
    return text === "" || Number.isNaN(number) ? [1, text.toLowerCase()] : [0, number];
  };
  const compare = (a, b) => (a[0] - b[0]) || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    const body = table.tBodies[0];
    const shown = body.rows.length;
    const more = document.getElementById(`${table.id}-all`);
    let rows = more ? JSON.parse(more.textContent) : [...body.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    const total = rows.length;
    const numeric = [...table.tHead.rows[0].cells].map((cell) => cell.classList.contains("number"));
    const search = document.getElementById(`${table.id}-search`);
    const status = document.getElementById(`${table.id}-status`);
    const refresh = () => {
      const wanted = search.value.trim().toLowerCase();
      const found = wanted ? rows.filter((row) => row.some((cell) => cell.toLowerCase().includes(wanted))) : rows;
      const some = found.slice(0, shown);
      body.replaceChildren(...some.map((row) => {
        const line = document.createElement("tr");
        row.forEach((text, place) => {
          const cell = document.createElement(place ? "td" : "th");
          if (!place) cell.scope = "row";
          if (numeric[place]) cell.className = "number";
          cell.textContent = text;
          line.append(cell);
        });
        return line;
      }));
      status.textContent = `${some.length} of ${total} clients shown`;
    };
    search.addEventListener("input", refresh);
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        rows = rows.map((row) => [key(row[place]), row]).sort((a, b) => (up ? 1 : -1) * compare(a[0], b[0])).map((each) => each[1]);
        refresh();
      });
    });
  }

  // Copying: where the browser forbids it, the text is shown and marked.
  for (const button of document.querySelectorAll("button[data-copy]")) {
    const source = document.getElementById(button.dataset.copy);
    const words = button.textContent;
    button.addEventListener("click", async () => {
      const text = source.value === undefined ? source.textContent : source.value;
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "copied";
      } catch {
        const details = source.closest("details");
        if (details) details.open = true;
        getSelection().selectAllChildren(source);
        if (source.select) source.select();
        button.textContent = document.execCommand("copy") ? "copied" : "marked: press Ctrl+C";
      }
      setTimeout(() => { button.textContent = words; }, 2500);
    });
  }
})();
