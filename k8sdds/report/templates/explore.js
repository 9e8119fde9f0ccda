// The interactive figure: choices, drawing with Vega-Lite, and the table of its values.
async function unpacked(id) {
  const text = document.getElementById(id)?.textContent.trim();
  if (!text) return null;
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

async function loadVega() {
  // The policy of the page allows this script by its hash.
  if (!globalThis.vegaFigures) document.head.append(element("script", { textContent: await unpacked("vega") }));
  return globalThis.vegaFigures;
}

function chooser(label, change) {
  const select = element("select");
  const field = element("label", {}, `${label} `, select);
  select.addEventListener("change", change);
  return {
    field,
    get value() { return select.value; },
    hide() { field.hidden = true; },
    // Keeps the choice if it is still possible.
    offer(options) {
      const before = select.value;
      select.replaceChildren(...options.map(([value, text]) => element("option", { value, textContent: text })));
      if (options.some(([value]) => value === before)) select.value = before;
      field.hidden = options.length < 2;
    },
  };
}

function toggle(label, checked, change) {
  const box = element("input", { type: "checkbox", checked });
  box.addEventListener("change", change);
  return { box, field: element("label", {}, box, label) };
}

async function explore() {
  const section = document.getElementById("explore")?.closest("section");
  const data = section && JSON.parse((await unpacked("explore-data")) ?? "null");
  if (!data) return;
  for (const { trials } of data.settings) {
    const seen = {};
    // Quantities have one value for each trial of their test.
    for (const trial of trials) trial.order = (seen[trial.test] = (seen[trial.test] ?? -1) + 1);
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chart = element("div", { className: "chart" });
  const tip = element("div", { className: "tip", hidden: true });
  const status = element("p", { className: "note" });
  status.setAttribute("role", "status");
  const list = element("tbody");
  const figure = chooser("Figure", offer), setting = chooser("Setting", offer);
  const choosers = {
    quantity: chooser("Quantity", offer), against: chooser("Against", offer), shown: chooser("Show", draw),
    axis: chooser("Along", offer), fixed: chooser("At", draw), point: chooser("At", draw), series: chooser("At", draw),
  };
  let touched = false;
  const toggles = { log: toggle(" Logarithmic axis", false, draw), single: toggle(" Single trials", true, draw) };
  const networks = data.networks.map((network) => {
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = dark.matches ? network.dark : network.light;
    const { box, field } = toggle("", true, draw);
    field.append(" ", swatch, network.label);
    return { box, field };
  });
  toggles.log.box.addEventListener("change", () => { touched = true; });
  let view = null, generation = 0;

  const sizes = (points) => [...new Set(points.map((point) => point.payload))].sort((a, b) => a - b);
  const counts = (points) => [...new Set(points.map((point) => point.subscribers))].sort((a, b) => a - b);
  const current = () => FIGURES[figure.value];
  const chosen = () => data.settings[Number(setting.value)];
  const quantities = () => chosen().quantities;
  const quantity = () => quantities()[Number(choosers.quantity.value)] ?? quantities()[0];
  // Quantities with a value at a point where the chosen one has one, too: headline metrics first.
  const others = () => quantities().map((one, index) => [index, one]).filter(([, one]) => one !== quantity()
    && one.points.some((point) => quantity().points.some((other) => pointKey(point) === pointKey(other)))).sort((a, b) => b[1].headline - a[1].headline);
  const against = () => quantities()[Number(choosers.against.value)] ?? others()[0][1];

  // What each chooser offers for the current figure, in an order in which later ones depend on earlier ones.
  const options = {
    quantity: () => quantities().map((one, index) => [String(index), `${one.title} (${one.test})`]),
    against: () => others().map(([index, one]) => [String(index), `${one.title} (${one.test})`]),
    shown() {
      const some = quantity().points.some((point) => point.overhead);
      return [["level", "measured values"], ...(some ? [["overhead", `overhead relative to ${data.baseline}`]] : [])];
    },
    axis() {
      const axes = [["payload", "payload"], ["subscribers", "number of subscribers"]], { points } = quantity();
      const both = sizes(points).length > 1 && counts(points).length > 1;
      return both ? axes : [axes[sizes(points).length === 1 && counts(points).length > 1 ? 1 : 0]];
    },
    fixed: () => (choosers.axis.value === "payload"
      ? counts(quantity().points).map((count) => [String(count), subscribersText(count)])
      : sizes(quantity().points).map((size) => [String(size), data.payloads[size]])),
    point() {
      const there = new Set(against().points.map(pointKey));
      const both = quantity().points.filter((point) => there.has(pointKey(point)));
      return [...new Map(both.map((point) => [pointKey(point), pointText(data, point)]))];
    },
    series() {
      const trials = chosen().trials.filter((trial) => trial[current().series]);
      return [...new Map(trials.map((trial) => [`${trial.test}|${pointKey(trial)}`, `${pointText(data, trial)} (${trial.test})`]))];
    },
  };

  function possible(kind) {
    if (kind.series) return chosen().trials.some((trial) => trial[kind.series]);
    return kind !== tradeOff || others().length > 0;
  }

  function offer() {
    const means = quantity().points.map((point) => point.level[0]).filter((mean) => mean > 0);
    // As in the static figures, until the reader chooses.
    if (!touched) toggles.log.box.checked = Math.max(...means) >= 10 * Math.min(...means);
    setting.offer(data.settings.map((one, index) => [String(index), one.title]).filter(([i]) => data.settings[i].quantities.length));
    figure.offer(Object.entries(FIGURES).filter(([, kind]) => possible(kind)).map(([name, kind]) => [name, kind.name]));
    const { uses } = current();
    for (const [name, one] of Object.entries(choosers)) {
      if (uses.includes(name)) one.offer(options[name]());
      else one.hide();
    }
    draw();
  }

  // What the choices mean, for the functions of the figures.
  function context() {
    const { uses } = current(), style = getComputedStyle(document.documentElement);
    const relative = uses.includes("shown") && choosers.shown.value === "overhead";
    return {
      data, setting: chosen(), quantity: quantity(), against: uses.includes("against") ? against() : null, relative,
      byPayload: choosers.axis.value === "payload", fixed: choosers.fixed.value, point: choosers.point.value, series: choosers.series.value,
      logarithmic: uses.includes("log") && toggles.log.box.checked, single: toggles.single.box.checked, dark: dark.matches,
      chosen: new Set(networks.flatMap(({ box }, index) => (box.checked ? [index] : []))),
      unit: current().unit ?? (relative ? "%" : quantity().unit),
      title: relative ? `${quantity().title}: overhead relative to ${data.baseline}, %` : `${quantity().title}, ${quantity().unit}`,
      color: (name) => style.getPropertyValue(name).trim(),
    };
  }

  function specification(c, rows) {
    return {
      width: Math.max(chart.clientWidth - 16, 240), height: 320, autosize: { type: "fit", contains: "padding" }, background: "transparent",
      description: `${current().name}: ${current().series ? c.unit : c.title}: ${c.setting.title}`,
      ...current().draw(c, rows),
      config: {
        font: "system-ui, sans-serif", view: { stroke: null },
        axis: { labelColor: c.color("--ink"), titleColor: c.color("--ink"), gridColor: c.color("--grid"), domainColor: c.color("--muted"),
          tickColor: c.color("--muted"), titleFontWeight: "normal" },
      },
    };
  }

  function describe(c, rows) {
    list.replaceChildren(...rows.map((row) => {
      const button = element("button", { type: "button", textContent: "Show trials" });
      button.setAttribute("aria-label", `Show the trials of ${row.network} at ${row.at}`);
      button.addEventListener("click", () => showTrials(row.trials, `${row.network}, ${row.at}`));
      const name = element("th", { scope: "row", textContent: row.network });
      return element("tr", {}, name, ...[row.at, row.value, row.interval, row.n].map((text) => element("td", { textContent: text })),
        element("td", {}, ...(row.trials.length ? [button] : [])));
    }));
    const left = c.logarithmic && current() === levels ? rows.filter((row) => row.mean <= 0).length : 0;
    status.textContent = `${rows.length} rows, unit ${c.unit}. ${left ? `${left} are not above 0 and not shown. ` : ""}`
      + (rows.length ? "Click a point to see its trials." : "Select a network.");
  }

  async function draw() {
    const mine = ++generation, { uses } = current(), c = context(), rows = current().rows(c);
    toggles.log.field.hidden = !uses.includes("log") || c.relative;
    toggles.single.field.hidden = !uses.includes("single");
    describe(c, rows);
    tip.hidden = true;
    const vega = await loadVega();
    if (mine !== generation) return;
    view?.finalize();
    view = null;
    chart.replaceChildren();
    if (!rows.length) return;
    const runtime = vega.parse(vega.compile(specification(c, rows)).spec, null, { ast: true });
    view = new vega.View(runtime, { expr: vega.expressionInterpreter, renderer: "svg", container: chart, hover: true });
    view.tooltip((handler, event, item, value) => hint(event, value));
    view.addEventListener("click", (event, item) => item?.datum?.trials?.length && showTrials(item.datum.trials, item.datum.text.split("\n")[0]));
    await view.runAsync();
  }

  function hint(event, value) {
    tip.hidden = value === null || value === undefined || value === "";
    if (tip.hidden) return;
    tip.textContent = value;
    const box = section.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth))}px`;
    tip.style.top = `${event.clientY - box.top + 14}px`;
  }

  const legend = element("fieldset", {}, element("legend", { textContent: "Networks" }), ...networks.map(({ field }) => field));
  const heads = ["network", "at", "value", "95 % interval", "n", "trials"].map((head) => element("th", { scope: "col", textContent: head }));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), list);
  section.hidden = false;
  document.querySelector("nav .interactive")?.removeAttribute("hidden");
  section.querySelector(".explorer").append(
    element("div", { className: "controls" }, ...[figure, setting, ...Object.values(choosers), ...Object.values(toggles)].map(({ field }) => field)),
    legend, chart, tip, status,
    element("details", {}, element("summary", { textContent: "Values of this figure" }), element("div", { className: "scroll" }, table)),
  );
  dark.addEventListener("change", draw);
  let width = 0;
  new ResizeObserver(() => {
    if (chart.clientWidth !== width) draw();
    width = chart.clientWidth;
  }).observe(chart);
  offer();
  const first = quantities().findIndex((one) => one.headline);
  if (first > 0) choosers.quantity.field.querySelector("select").value = String(first);
  offer();
}

explore();
