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
  const draw = async (div) => {
    div.source ??= await content(div.querySelector("script"));
    div.figure = JSON.parse(div.source);
    fit(div);
    const { data, layout } = themed(div.figure);
    const target = div.querySelector(".drawing");
    if (!target.data) target.replaceChildren();
    return Plotly.react(target, data, layout, config);
  };
  const load = async () => {
    const packed = document.getElementById("plotly");
    const script = document.createElement("script");
    script.textContent = await unpacked(packed.textContent);
    packed.remove();
    document.head.append(script);
  };
  const drawAll = async () => {
    for (const div of figures) {
      await draw(div);
      await new Promise((next) => setTimeout(next));
    }
    document.documentElement.dataset.drawn = "yes";
  };
  const keepDrawn = () => {
    dark.addEventListener("change", drawAll);
    let width = innerWidth;
    let waiting;
    addEventListener("resize", () => {
      if (innerWidth === width) return;
      width = innerWidth;
      clearTimeout(waiting);
      waiting = setTimeout(drawAll, 150);
    });
    return drawAll();
  };
  const undrawn = () => {
    document.getElementById("undrawn").hidden = false;
    figures.forEach((div) => { div.style.height = "auto"; });
    document.documentElement.dataset.drawn = "no";
  };
  if (typeof DecompressionStream === "undefined") undrawn();
  else load().then(keepDrawn);
})();
