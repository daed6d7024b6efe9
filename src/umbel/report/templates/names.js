// Names beside what they name: at the ends of lines, near dots, and no wider than there is room for.
const names = (() => {
  const SIZE = 11, HIGH = 14;
  const pen = document.createElement("canvas").getContext("2d");
  const plain = (text) => new DOMParser().parseFromString(text, "text/html").body.textContent;
  const safe = (text) => text.replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const wide = (text, size = SIZE) => {
    pen.font = `${size}px system-ui, sans-serif`;
    return pen.measureText(plain(text)).width;
  };
  const widest = (texts, size) => Math.max(0, ...texts.map((text) => wide(text, size)));
  const shortened = (text, room, size) => {
    if (wide(text, size) <= room) return text;
    let letters = [...plain(text)];
    while (letters.length > 1 && wide(safe(`${letters.join("")}…`), size) > room) letters = letters.slice(0, -1);
    return safe(`${letters.join("")}…`);
  };

  // Places on a line, each as near to where it was as others allow, `HIGH` apart.
  const spread = (wanted, length) => {
    const order = wanted.map((_, n) => n).sort((a, b) => wanted[a] - wanted[b]);
    const found = [...wanted];
    let before = -HIGH / 2;
    for (const n of order) before = found[n] = Math.max(found[n], before + HIGH);
    let after = length + HIGH / 2;
    for (const n of order.reverse()) after = found[n] = Math.min(found[n], after - HIGH);
    return found;
  };
  const note = (place, ink) => ({
    x: place.x, y: place.y, text: place.name, showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: place.color,
    standoff: 5, font: { size: SIZE, color: ink }, borderpad: 1, captureevents: false,
  });
  const ends = (places, xaxis, yaxis, ink) => {
    const heights = places.map((place) => yaxis.l2p(place.y));
    const apart = spread(heights, yaxis._length);
    return places.map((place, n) => ({
      ...note(place, ink), xanchor: "left", ax: xaxis._length - xaxis.l2p(place.x) + 16, ay: apart[n] - heights[n],
    }));
  };

  const near = (places, xaxis, yaxis, ink, dots) => {
    const taken = dots.map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
    const hidden = ([left, top, right, low]) => taken.filter((t) => left < t[2] && t[0] < right && top < t[3] && t[1] < low).length;
    return places.map((place) => {
      const x = xaxis.l2p(place.x), y = yaxis.l2p(place.y), half = wide(place.name) / 2 + 3;
      let best;
      for (const far of [10, 18, 28, 40, 54, 70, 90, 112]) {
        for (const turn of [0, 4, 2, 6, 1, 3, 7, 5]) {
          const angle = turn * Math.PI / 4;
          const across = Math.cos(angle) * (far + half), down = Math.sin(angle) * (far + HIGH / 2);
          const box = [x + across - half, y + down - HIGH / 2, x + across + half, y + down + HIGH / 2];
          const outside = box[0] < 0 || box[1] < 0 || box[2] > xaxis._length || box[3] > yaxis._length;
          const cost = hidden(box) + (outside ? 100 : 0);
          if (!best || cost < best.cost) best = { cost, across, down, box };
          if (best.cost === 0) break;
        }
        if (best.cost === 0) break;
      }
      taken.push(best.box);
      return { ...note(place, ink), ax: best.across, ay: best.down };
    });
  };

  // After a figure is drawn its axes are known: the names are put beside what they name.
  const put = (target, kind, places, ink) => {
    const { xaxis, yaxis } = target._fullLayout;
    const dots = target.data.flatMap((trace) => trace.x.map((x, n) => [xaxis.d2p(x), yaxis.d2p(trace.y[n])]));
    const found = kind === "ends" ? ends(places, xaxis, yaxis, ink) : near(places, xaxis, yaxis, ink, dots);
    return Plotly.relayout(target, {
      annotations: [...(target.layout.annotations || []), ...found],
      "xaxis.range": [...xaxis.range], "yaxis.range": [...yaxis.range],
    });
  };
  return { HIGH, widest, shortened, put };
})();
