(() => {
  // Tables: sorted by a button in each head, and searched.
  const key = (text) => {
    const number = Number(text);
    return text === "" || Number.isNaN(number) ? [1, text.toLowerCase()] : [0, number];
  };
  const compare = (a, b) => (a[0] - b[0]) || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
  const enliven = (table) => {
    const body = table.tBodies[0];
    const shown = body.rows.length;
    const more = document.getElementById(`${table.id}-all`);
    let rows = [...body.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
    if (more) rows = JSON.parse(more.textContent);
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
      status.textContent = `${some.length} of ${rows.length.toLocaleString("en")} client${rows.length === 1 ? "" : "s"} shown`;
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
  };
  document.querySelectorAll("table[data-sortable]").forEach(enliven);

  // What is wider than its place says so, and shows at which edges there is more.
  for (const box of document.querySelectorAll(".wide")) {
    const frame = box.parentElement;
    const look = () => {
      const more = box.scrollWidth - box.clientWidth;
      const first = box.querySelector("th");
      frame.parentElement.classList.toggle("scrolls", more > 1);
      frame.classList.toggle("left", box.scrollLeft > 1);
      frame.classList.toggle("right", box.scrollLeft < more - 1);
      if (first) frame.style.setProperty("--first", `${first.offsetWidth}px`);
    };
    box.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(box);
    new ResizeObserver(look).observe(box.firstElementChild);
    look();
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
