// The interactive figure: any measured quantity by payload or subscribers, drawn with Vega-Lite.
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

function precise(value) {
  return value === null ? "–" : String(Number(value.toPrecision(4)));
}

function chooser(label, change) {
  const select = element("select");
  const field = element("label", {}, `${label} `, select);
  select.addEventListener("change", change);
  return {
    field,
    get value() { return select.value; },
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
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const chart = element("div", { className: "chart" });
  const tip = element("div", { className: "tip", hidden: true });
  const status = element("p", { className: "note" });
  status.setAttribute("role", "status");
  const list = element("tbody");
  const setting = chooser("Setting", offer), quantity = chooser("Quantity", offer), shown = chooser("Show", draw);
  const axis = chooser("Along", offer), fixed = chooser("At", draw);
  const log = toggle(" Logarithmic axis", false, draw), single = toggle(" Single trials", true, draw);
  const networks = data.networks.map((network) => {
    const swatch = element("span", { className: "swatch" });
    swatch.style.background = dark.matches ? network.dark : network.light;
    const { box, field } = toggle("", true, draw);
    field.append(" ", swatch, network.label);
    return { box, field };
  });
  let view = null, generation = 0;

  const sizes = (points) => [...new Set(points.map((point) => point.payload))].sort((a, b) => a - b);
  const counts = (points) => [...new Set(points.map((point) => point.subscribers))].sort((a, b) => a - b);
  const subscribers = (count) => (count === 1 ? "1 subscriber" : `${count} subscribers`);
  const measured = () => data.settings[Number(setting.value)].quantities;
  const current = () => measured()[Number(quantity.value)] ?? measured()[0];

  function offer() {
    setting.offer(data.settings.map((one, index) => [String(index), one.title]).filter(([i]) => data.settings[i].quantities.length));
    quantity.offer(measured().map((one, index) => [String(index), `${one.title} (${one.test})`]));
    const points = current().points;
    const some = points.some((point) => point.overhead);
    shown.offer([["level", "measured values"], ...(some ? [["overhead", `overhead relative to ${data.baseline}`]] : [])]);
    const axes = [["payload", "payload"], ["subscribers", "number of subscribers"]];
    const both = sizes(points).length > 1 && counts(points).length > 1;
    axis.offer(both ? axes : [axes[sizes(points).length === 1 && counts(points).length > 1 ? 1 : 0]]);
    fixed.offer(axis.value === "payload"
      ? counts(points).map((count) => [String(count), subscribers(count)])
      : sizes(points).map((size) => [String(size), data.payloads[size]]));
    draw();
  }

  function selected() {
    const byPayload = axis.value === "payload", relative = shown.value === "overhead";
    const points = current().points.filter((point) => networks[point.network].box.checked
      && String(byPayload ? point.subscribers : point.payload) === fixed.value && (!relative || point.overhead));
    return points.map((point) => {
      const [mean, low, high] = relative ? point.overhead : point.level;
      const at = byPayload ? data.payloads[point.payload] : String(point.subscribers);
      return {
        network: data.networks[point.network].label, order: byPayload ? point.payload : point.subscribers, at, mean, low, high,
        n: relative ? point.pairs : point.n, trials: point.trials,
        values: (relative ? point.ratios : point.values).filter((value) => value !== null),
      };
    }).filter((row) => row.mean !== null).sort((a, b) => a.order - b.order);
  }

  function text(row, unit) {
    const interval = row.low === null || row.high === null ? "" : `\n95 % interval ${precise(row.low)} to ${precise(row.high)}`;
    return `${row.network}, ${row.at}\n${precise(row.mean)} ${unit}${interval}\nn = ${row.n}`;
  }

  // The axis shows all trials. An interval may extend it by 60 %, as in the static figures.
  function reach(rows, logarithmic) {
    const forward = logarithmic ? Math.log : (value) => value;
    const finite = (values) => values.filter((value) => value !== null && (!logarithmic || value > 0)).map(forward);
    const values = finite(rows.flatMap((row) => [row.mean, ...(single.box.checked ? row.values : [])]));
    const bounds = finite(rows.flatMap((row) => [row.low, row.high]));
    let low = Math.min(...values), high = Math.max(...values);
    const room = 0.6 * Math.max(high - low, 0.02 * Math.max(Math.abs(low), Math.abs(high)));
    low = Math.max(Math.min(low, ...bounds), low - room);
    high = Math.min(Math.max(high, ...bounds), high + room);
    const pad = 0.05 * (high - low || 1);
    if (logarithmic) return [Math.exp(low - pad), Math.exp(high + pad)];
    return [Math.min(0, low < 0 ? low - pad : 0), Math.max(0, high + pad)];
  }

  function specification(rows, unit) {
    const logarithmic = log.box.checked && shown.value === "level";
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const labels = data.networks.map((network) => network.label);
    const order = [...new Set(rows.map((row) => row.at))];
    const title = shown.value === "overhead" ? `overhead relative to ${data.baseline}, %` : `${current().title}, ${unit}`;
    const y = { type: "quantitative", scale: { type: logarithmic ? "log" : "linear", domain: reach(rows, logarithmic), nice: false } };
    const singles = rows.flatMap((row) => row.values.map((value, index) => {
      const trial = row.trials.length === row.values.length ? row.trials[index] : null;
      return { network: row.network, at: row.at, mean: value, trials: trial ? [trial] : row.trials,
        text: `${row.network}, ${row.at}\n${precise(value)} ${unit}\nsingle trial${trial ? ` ${trial}` : ""}` };
    }));
    const tooltip = { field: "text", type: "nominal" };
    const positive = (row) => !logarithmic || row.mean > 0;
    return {
      width: Math.max(chart.clientWidth - 16, 240), height: 320, autosize: { type: "fit", contains: "padding" },
      background: "transparent", description: `${title}: ${data.settings[Number(setting.value)].title}`,
      data: { values: rows.filter(positive).map((row) => ({ ...row, text: text(row, unit),
        low: row.low === null || (logarithmic && row.low <= 0) ? row.mean : row.low, high: row.high ?? row.mean })) },
      encoding: {
        x: { field: "at", type: "ordinal", sort: order, title: axis.value === "payload" ? "payload" : "subscribers", axis: { labelAngle: 0 } },
        xOffset: { field: "network", type: "nominal", sort: labels },
        color: { field: "network", type: "nominal", legend: null,
          scale: { domain: labels, range: data.networks.map((network) => (dark.matches ? network.dark : network.light)) } },
      },
      layer: [
        ...(single.box.checked ? [{ data: { values: singles.filter(positive) }, mark: { type: "circle", clip: true, size: 14, opacity: 0.55 },
          encoding: { y: { ...y, field: "mean" }, tooltip } }] : []),
        { mark: { type: "rule", clip: true, strokeWidth: 1.6 }, encoding: { y: { ...y, field: "low" }, y2: { field: "high" } } },
        { mark: { type: "point", filled: true, size: 70, opacity: 1, cursor: "pointer" },
          encoding: { y: { ...y, field: "mean", title }, tooltip, description: tooltip } },
      ],
      config: {
        font: "system-ui, sans-serif", view: { stroke: null },
        axis: { labelColor: color("--ink"), titleColor: color("--ink"), gridColor: color("--grid"), domainColor: color("--muted"),
          tickColor: color("--muted"), titleFontWeight: "normal" },
      },
    };
  }

  function describe(rows, unit) {
    list.replaceChildren(...rows.map((row) => {
      const button = element("button", { type: "button", textContent: "Show trials" });
      button.setAttribute("aria-label", `Show the trials of ${row.network} at ${row.at}`);
      button.addEventListener("click", () => showTrials(row.trials));
      const name = element("th", { scope: "row", textContent: row.network });
      const cells = [row.at, precise(row.mean), row.low === null ? "–" : `${precise(row.low)} to ${precise(row.high)}`, row.n];
      return element("tr", {}, name, ...cells.map((cell) => element("td", { textContent: cell })),
        element("td", {}, ...(row.trials.length ? [button] : [])));
    }));
    const left = log.box.checked ? rows.filter((row) => row.mean <= 0).length : 0;
    status.textContent = `${rows.length} points, unit ${unit}. ${left ? `${left} are not above 0 and not shown. ` : ""}`
      + (rows.length ? "Click a point to see its trials." : "Select a network.");
  }

  async function draw() {
    const mine = ++generation;
    log.field.hidden = shown.value === "overhead";
    const rows = selected(), unit = shown.value === "overhead" ? "%" : current().unit;
    describe(rows, unit);
    tip.hidden = true;
    const vega = await loadVega();
    if (mine !== generation) return;
    view?.finalize();
    view = null;
    chart.replaceChildren();
    if (!rows.length) return;
    const runtime = vega.parse(vega.compile(specification(rows, unit)).spec, null, { ast: true });
    view = new vega.View(runtime, { expr: vega.expressionInterpreter, renderer: "svg", container: chart, hover: true });
    view.tooltip((handler, event, item, value) => hint(event, value));
    view.addEventListener("click", (event, item) => item?.datum?.trials?.length && showTrials(item.datum.trials));
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
    element("div", { className: "controls" }, ...[setting, quantity, shown, axis, fixed, log, single].map(({ field }) => field)),
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
  const first = measured().findIndex((one) => one.headline);
  if (first > 0) quantity.field.querySelector("select").value = String(first);
  offer();
}

explore();
