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
    if (colour === "paper" || colour === "ink") return c[colour];
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
        dragmode: coarse ? false : "zoom",
        autosize: true,
        ...layout,
        margin: { l: 52, r: 14, t: (layout.annotations || []).length > 1 && layout.shapes ? 36 : 24, b: 44, ...layout.margin },
        legend: { orientation: "h", x: 0, y: 0, yref: "container", yanchor: "bottom", font: { size: 11 }, ...layout.legend },
      },
    };
  };

  // How high a figure is, and what has room in it.
  const fit = (div) => {
    const { data, layout } = div.figure;
    const meta = layout.meta || {};
    const width = div.clientWidth;
    if (meta.map) fitMap(div, data, layout, width);
    if (meta.heatmap) fitHeatmap(div, layout, width);
    if (meta.rows) fitRows(div, layout, width);
    if (meta.names) fitNames(div, layout, width);
  };

  // Dots of a map are as large as there is room for.
  const fitMap = (div, data, layout, width) => {
    const { map } = layout.meta;
    const scale = Math.min(60, (width - 20) / map.width);
    div.style.height = `${Math.max(160, scale * map.height + (layout.showlegend ? 60 : 22))}px`;
    data.forEach((trace) => {
      trace.marker.size = trace.meta.relative.map((each) => Math.max(4, Math.min(40, 0.86 * scale * each)));
      trace.text = trace.text.map((name, n) => (names.widest([name], 10) < 0.7 * trace.marker.size[n] ? name : ""));
    });
    // "cluster 3: 12" takes more room than there is on a phone.
    if (width < 500) layout.annotations.forEach((note) => { note.text = note.text.replace("cluster ", ""); });
    layout.margin = { l: 10, r: 10, t: 6, b: layout.showlegend ? 54 : 16 };
  };

  // Heat maps are about as high as they are wide, and their rows high enough for names if there are few.
  const fitHeatmap = (div, layout, width) => {
    const { square, rows, columns } = layout.meta.heatmap;
    const { xaxis, yaxis } = layout;
    for (const axis of [xaxis, yaxis]) if (axis.ticktext) axis.ticktext = axis.ticktext.map((name) => names.shortened(name, 0.2 * width, 10));
    xaxis.showticklabels = xaxis.showticklabels !== false && 14 * columns.length < 0.6 * width;
    const below = xaxis.showticklabels ? names.widest(xaxis.ticktext, 10) : 0;
    const least = yaxis.ticktext ? 13 * rows.length + 110 + below : 0;
    const high = square ? Math.max(260, Math.min(620, 0.8 * width), least) : Math.max(300, Math.min(620, 110 + 14 * rows.length));
    div.style.height = `${high}px`;
    const row = (high - 110 - below) / rows.length;
    layout.annotations = layout.annotations.filter((note) => row * Number(note.name) >= names.HIGH);
    const side = names.widest(layout.annotations.map((note) => note.text)) + 16;
    layout.margin = { t: 10, ...(square ? { l: side, r: 14 } : { r: side }) };
  };

  const fitRows = (div, layout, width) => {
    const { rows, lone } = layout.meta;
    div.style.height = `${rows.length * (lone ? 20 : 40) + 64 + (layout.showlegend ? 30 : 0) + (layout.annotations.length ? 8 : 0)}px`;
    layout.yaxis.ticktext = layout.yaxis.ticktext.map((name, n) => names.shortened(name, 0.38 * width - names.widest([rows[n]], 12), 12) + rows[n]);
    layout.margin = { l: 12, b: layout.showlegend ? 74 : 44 };
  };

  // Where names have no room there is a legend.
  const fitNames = (div, layout, width) => {
    const { kind, places } = layout.meta.names;
    const room = names.widest(places.map((place) => place.name));
    const many = places.length * names.HIGH > 0.8 * (div.clientHeight - 70);
    if (many || room > 0.38 * width) {
      delete layout.meta.names;
      return;
    }
    layout.showlegend = false;
    layout.margin = { r: kind === "ends" ? room + 26 : 14 };
  };

  const config = { responsive: false, displaylogo: false, displayModeBar: false, doubleClick: "reset" };
  const draw = async (div) => {
    div.source ??= await content(div.querySelector("script"));
    div.figure = JSON.parse(div.source);
    fit(div);
    const { data, layout } = themed(div.figure);
    const target = div.querySelector(".drawing");
    if (!target.data) target.replaceChildren();
    await Plotly.react(target, data, layout, config);
    const named = layout.meta && layout.meta.names;
    if (named) await names.put(target, named.kind, named.places, colours().ink);
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
