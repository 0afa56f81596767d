"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("figures").textContent);
  const plots = new Map(); // of those that are drawn, element by id
  const hidden = new Set(); // names of legs
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const coarse = matchMedia("(pointer: coarse)");
  const from = document.getElementById("from");
  const to = document.getElementById("to");
  let range = null; // of steps; null is all of them

  const steps = Object.values(specs).flatMap((spec) => spec.data)
    .filter((trace) => trace.type !== "heatmap").flatMap((trace) => [trace.x[0], trace.x[trace.x.length - 1]]);
  const ends = [Math.min(...steps), Math.max(...steps)];

  // A figure with the colours of the theme in place of their names. Arrays of numbers are taken as they are.
  function themed(value, style) {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) {
      return typeof value[0] === "object" && !Array.isArray(value[0]) ? value.map((one) => themed(one, style)) : value;
    }
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, themed(one, style)]));
  }

  function figure(spec) {
    const style = getComputedStyle(document.documentElement);
    const { data, layout } = themed(spec, style);
    const colour = (name) => style.getPropertyValue(name).trim();
    const map = data[0].type === "heatmap";
    for (const trace of data) {
      if (trace.colorbar) trace.colorbar.tickfont = { color: colour("--text") };
      trace.visible = !hidden.has(trace.meta?.leg);
    }
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: colour("--grid"), linecolor: colour("--rule"), tickfont: { size: 12 } });
    }
    if (!map) layout.xaxis.range = range ? [...range] : undefined;
    Object.assign(layout, {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("--text"), family: getComputedStyle(document.body).fontFamily, size: 12 },
      hoverlabel: { bgcolor: colour("--raised"), bordercolor: colour("--rule"), font: { color: colour("--text") },
        align: "left", namelength: -1 },
      dragmode: coarse.matches || map ? false : "zoom",
    });
    return { data, layout };
  }

  function draw(element) {
    const { data, layout } = figure(specs[element.id]);
    const config = { displayModeBar: false, responsive: true, doubleClick: "autosize" };
    const first = !plots.has(element.id);
    plots.set(element.id, element);
    const done = first ? Plotly.newPlot(element, data, layout, config) : Plotly.react(element, data, layout, config);
    done.then(() => { document.documentElement.dataset.drawn = plots.size; });
    if (!first || data[0].type === "heatmap") return;
    element.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) zoom([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
      else if (change["xaxis.autorange"] && range) zoom(null);
    });
  }

  function zoom(wanted) {
    if (String(wanted) === String(range)) return;
    range = wanted;
    for (const element of plots.values()) {
      if (specs[element.id].data[0].type === "heatmap") continue;
      Plotly.relayout(element, range ? { "xaxis.range": [...range] } : { "xaxis.autorange": true });
    }
    from.value = range ? Math.ceil(range[0]) : ends[0];
    to.value = range ? Math.floor(range[1]) : ends[1];
  }

  // The keyboard's mouse: from step to step, or from cell to cell, with what is there told below.
  function walk(event) {
    const element = event.currentTarget;
    const keys = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity, ArrowUp: -1, ArrowDown: 1 };
    if (!(event.key in keys) || !plots.has(element.id) || event.ctrlKey || event.altKey || event.metaKey) return;
    const data = element.data;
    const map = data[0].type === "heatmap";
    const upright = event.key === "ArrowUp" || event.key === "ArrowDown";
    if (upright && !map) return;
    event.preventDefault();
    const trace = map ? data[0] : data.findLast((one) => one.customdata && one.mode !== "markers" && one.visible !== false);
    if (!trace) return;
    const move = keys[event.key] * (event.shiftKey ? 10 : 1);
    const clamp = (at, count) => Math.min(Math.max(at, 0), count - 1);
    const at = element.at ?? { x: -1, y: 0 };
    if (upright) at.y = clamp(at.y + move, trace.z.length);
    else at.x = clamp(at.x + move, trace.x.length);
    at.x = Math.max(at.x, 0);
    element.at = at;
    const output = element.parentElement.querySelector("output");
    if (map) {
      output.textContent = trace.customdata[at.y][at.x].replaceAll("<br>", ", ");
      Plotly.Fx.hover(element, [{ curveNumber: 0, pointNumber: [at.y, at.x] }]);
      return;
    }
    const step = trace.x[at.x];
    const told = data.filter((one) => one.customdata && one.visible !== false)
      .map((one) => one.customdata[one.x.indexOf(step)]).filter(Boolean);
    output.textContent = `step ${step}: ${told.join("; ")}`;
    Plotly.Fx.hover(element, [{ curveNumber: data.indexOf(trace), pointNumber: at.x }]);
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "300px" });
  for (const element of document.querySelectorAll(".plot")) {
    element.addEventListener("keydown", walk);
    element.addEventListener("blur", () => plots.has(element.id) && Plotly.Fx.unhover(element));
    seen.observe(element);
  }

  dark.addEventListener("change", () => plots.forEach(draw));

  const shown = document.getElementById("shown");
  if (shown) {
    shown.hidden = false;
    shown.addEventListener("change", ({ target }) => {
      if (target.checked) hidden.delete(target.value);
      else hidden.add(target.value);
      for (const element of plots.values()) {
        const which = element.data.map((one, index) => (one.meta?.leg === target.value ? index : -1)).filter((at) => at >= 0);
        if (which.length) Plotly.restyle(element, { visible: target.checked }, which);
      }
    });
  }

  const form = document.getElementById("zoom");
  if (form && steps.length) {
    form.hidden = false;
    [from.value, to.value] = ends;
    form.addEventListener("change", () => {
      const wanted = [Number(from.value), Number(to.value)];
      if (wanted[0] < wanted[1]) zoom(wanted);
    });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.getElementById("all").addEventListener("click", () => zoom(null));
  }
  document.documentElement.dataset.ready = Object.keys(specs).length;
})();
