// Draws the figures in the colours of the page, and again if these or the width change.
const dark = matchMedia("(prefers-color-scheme: dark)");
const looks = JSON.parse(document.getElementById("looks").textContent);

const draw = async () => {
  const style = getComputedStyle(document.documentElement);
  const [ink, quiet, grid] = ["--ink", "--quiet", "--grid"].map((name) => style.getPropertyValue(name).trim());
  for (const plot of document.querySelectorAll(".plot")) {
    const wide = plot.clientWidth;
    const lines = { labelColor: quiet, titleColor: quiet, gridColor: grid, domainColor: grid, tickColor: grid };
    const config = {
      ...looks,
      background: null,
      font: "system-ui, sans-serif",
      axis: { ...looks.axis, ...lines, labelLimit: 0.35 * wide },
      legend: { ...looks.legend, labelColor: ink, titleColor: quiet, orient: wide < 560 ? "bottom" : "right", labelLimit: 0.35 * wide },
    };
    const spec = JSON.parse(plot.querySelector("script").textContent.replaceAll("#000000", ink));
    const place = { width: "container", height: "container", autosize: { type: "fit", contains: "padding" } };
    const tooltip = { theme: dark.matches ? "dark" : "light" };
    // The policy of the page forbids evaluation of text as code: `ast` does without.
    await vegaEmbed(plot.querySelector(".drawing"), { ...spec, ...place }, { actions: false, ast: true, config, renderer: plot.dataset.renderer, tooltip });
  }
  document.documentElement.dataset.drawn = "yes";
};
dark.addEventListener("change", draw);
let width = innerWidth;
let waiting;
addEventListener("resize", () => {
  if (innerWidth === width) return;
  width = innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(draw, 150);
});
draw();
