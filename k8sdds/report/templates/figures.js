// The choices of the interactive figure: each returns the rows of its table, and marks for Vega-Lite.
// A row has network, at, value, interval, n and trials. A mark also has the text that is shown when it is hovered.

function precise(value) {
  return value === null ? "–" : String(Number(value.toPrecision(4)));
}

const bounds = (low, high) => (low === null || high === null ? "–" : `${precise(low)} to ${precise(high)}`);
const subscribersText = (count) => (count === 1 ? "1 subscriber" : `${count} subscribers`);
const pointKey = ({ subscribers, payload }) => `${subscribers}|${payload}`;
const pointText = (data, { subscribers, payload }) => `${data.payloads[payload]}, ${subscribersText(subscribers)}`;
const POINT = { type: "point", filled: true, size: 70, opacity: 1, cursor: "pointer" };
const TOOLTIP = { field: "text", type: "nominal" };

// The trials behind a point, with their values of a quantity.
function behind(setting, quantity, point) {
  return setting.trials.filter((trial) => trial.test === quantity.test && trial.network === point.network
    && pointKey(trial) === pointKey(point)).map((trial) => ({ id: trial.id, value: quantity.values[trial.order] }));
}

// The axis shows all values. An interval may extend it by 60 %, as in the static figures.
function reach(values, limits, logarithmic) {
  const forward = logarithmic ? Math.log : (value) => value;
  const finite = (numbers) => numbers.filter((value) => value !== null && (!logarithmic || value > 0)).map(forward);
  const [inside, outside] = [finite(values), finite(limits)];
  let low = Math.min(...inside), high = Math.max(...inside);
  const room = 0.6 * Math.max(high - low, 0.02 * Math.max(Math.abs(low), Math.abs(high)));
  low = Math.max(Math.min(low, ...outside), low - room);
  high = Math.min(Math.max(high, ...outside), high + room);
  const pad = 0.05 * (high - low || 1);
  if (logarithmic) return [Math.exp(low - pad), Math.exp(high + pad)];
  return [Math.min(0, low < 0 ? low - pad : 0), Math.max(0, high + pad)];
}

function axisOf(field, title, domain, logarithmic) {
  return { field, title, type: "quantitative", axis: { tickCount: 8 },
    scale: { type: logarithmic ? "log" : "linear", domain, nice: false } };
}

function networksOf(c) {
  const labels = c.data.networks.map((network) => network.label);
  const of = (range) => ({ field: "network", type: "nominal", legend: null, scale: { domain: labels, range } });
  return { labels, color: of(c.data.networks.map((network) => (c.dark ? network.dark : network.light))),
    shape: of(c.data.networks.map((network) => network.shape)) };
}

function cell(c, point) {
  const [mean, low, high] = c.relative ? point.overhead : point.level;
  const at = c.byPayload ? c.data.payloads[point.payload] : String(point.subscribers);
  const trials = behind(c.setting, c.quantity, point);
  const network = c.data.networks[point.network].label, n = c.relative ? point.pairs : point.n;
  const unit = c.relative ? "%" : c.quantity.unit, interval = bounds(low, high);
  const known = interval === "–" ? "" : `\n95 % interval ${interval}`;
  return {
    network, at, mean, low, high, n, unit, interval, order: c.byPayload ? point.payload : point.subscribers,
    value: precise(mean), trials: trials.map((trial) => trial.id),
    singles: c.relative ? point.ratios.map((value) => ({ id: null, value })) : trials,
    text: `${network}, ${at}\n${precise(mean)} ${unit}${known}\nn = ${n}`,
  };
}

// Points of the chosen networks at the chosen number of subscribers or payload.
function cells(c) {
  return c.quantity.points.filter((point) => c.chosen.has(point.network) && (!c.relative || point.overhead)
    && String(c.byPayload ? point.subscribers : point.payload) === c.fixed)
    .map((point) => cell(c, point)).filter((row) => row.mean !== null).sort((a, b) => a.order - b.order);
}

const levels = {
  name: "along payload or subscribers", uses: ["quantity", "shown", "axis", "fixed", "log", "single"],
  rows: cells,
  draw(c, rows) {
    const { labels, color, shape } = networksOf(c), logarithmic = c.logarithmic && !c.relative;
    const positive = (mark) => !logarithmic || mark.mean > 0;
    const marks = rows.filter(positive).map((row) => ({ ...row,
      low: row.low === null || (logarithmic && row.low <= 0) ? row.mean : row.low, high: row.high ?? row.mean }));
    const singles = (c.single ? rows : []).flatMap((row) => row.singles.filter(({ value }) => value !== null).map(({ id, value }) => ({
      network: row.network, at: row.at, mean: value, trials: id ? [id] : row.trials,
      text: `${row.network}, ${row.at}\n${precise(value)} ${row.unit}\nsingle trial${id ? ` ${id}` : ""}`,
    }))).filter(positive);
    const domain = reach([...rows, ...singles].map((mark) => mark.mean), rows.flatMap((row) => [row.low, row.high]), logarithmic);
    const y = (field) => axisOf(field, c.title, domain, logarithmic);
    return {
      data: { values: marks },
      encoding: {
        x: { field: "at", type: "ordinal", sort: [...new Set(rows.map((row) => row.at))], axis: { labelAngle: 0 },
          title: c.byPayload ? "payload" : "subscribers" },
        xOffset: { field: "network", type: "nominal", sort: labels }, color,
      },
      layer: [
        { data: { values: singles }, mark: { type: "circle", clip: true, size: 14, opacity: 0.55 }, encoding: { y: y("mean"), tooltip: TOOLTIP } },
        { mark: { type: "rule", clip: true, strokeWidth: 1.6 }, encoding: { y: y("low"), y2: { field: "high" } } },
        { mark: POINT, encoding: { y: y("mean"), shape, tooltip: TOOLTIP, description: TOOLTIP } },
      ],
    };
  },
};

const heatmap = {
  name: "networks × payloads or subscribers", uses: ["quantity", "shown", "axis", "fixed"],
  rows: cells,
  draw(c, rows) {
    const largest = Math.max(...rows.map((row) => row.mean), 0) || 1;
    const common = { tooltip: TOOLTIP };
    return {
      height: 60 + 34 * new Set(rows.map((row) => row.network)).size,
      data: { values: rows.map((row) => ({ ...row, shade: 0.05 + 0.35 * Math.max(row.mean, 0) / largest })) },
      encoding: {
        x: { field: "at", type: "ordinal", sort: [...new Set(rows.map((row) => row.at))], title: c.title, axis: { labelAngle: 0, orient: "top" } },
        y: { field: "network", type: "nominal", sort: networksOf(c).labels, title: null },
      },
      layer: [
        { mark: { type: "rect", cursor: "pointer", fill: c.color("--muted") },
          encoding: { ...common, description: TOOLTIP, fillOpacity: { field: "shade", type: "quantitative", scale: null } } },
        { mark: { type: "text", cursor: "pointer", fill: c.color("--ink") }, encoding: { ...common, text: { field: "value" } } },
      ],
    };
  },
};

const tradeOff = {
  name: "one quantity against another", uses: ["quantity", "against", "point", "log"],
  rows(c) {
    const others = new Map(c.against.points.filter((point) => pointKey(point) === c.point).map((point) => [point.network, point]));
    const here = c.quantity.points.filter((point) => pointKey(point) === c.point && c.chosen.has(point.network) && others.has(point.network));
    return here.map((point) => {
      const other = others.get(point.network), network = c.data.networks[point.network].label;
      const side = ({ level: [mean, low, high] }, { unit, title }) => `${title}: ${precise(mean)} ${unit}`
        + (low === null ? "" : ` (${bounds(low, high)})`);
      const n = point.n === other.n ? point.n : `${point.n} and ${other.n}`;
      const trials = [...behind(c.setting, c.quantity, point), ...behind(c.setting, c.against, other)].map((trial) => trial.id);
      const [y, yLow, yHigh] = point.level, [x, xLow, xHigh] = other.level;
      return {
        network, at: pointText(c.data, point), n, trials: [...new Set(trials)], x, y,
        xLow: xLow ?? x, xHigh: xHigh ?? x, yLow: yLow ?? y, yHigh: yHigh ?? y,
        value: `${precise(y)} ${c.quantity.unit} at ${precise(x)} ${c.against.unit}`, interval: `${bounds(yLow, yHigh)}; ${bounds(xLow, xHigh)}`,
        text: `${network}\n${side(point, c.quantity)}\n${side(other, c.against)}\nn = ${n}`,
      };
    }).filter((row) => row.x !== null && row.y !== null && (!c.logarithmic || Math.min(row.x, row.y) > 0));
  },
  draw(c, rows) {
    const scale = (field, title) => {
      const domain = reach(rows.map((row) => row[field]), rows.flatMap((row) => [row[`${field}Low`], row[`${field}High`]]), c.logarithmic);
      return (name) => axisOf(name, title, domain, c.logarithmic);
    };
    const x = scale("x", `${c.against.title}, ${c.against.unit}`), y = scale("y", c.title), lower = c.logarithmic ? 1e-9 : -Infinity;
    const values = rows.map((row) => ({ ...row, xLow: Math.max(row.xLow, lower), yLow: Math.max(row.yLow, lower) }));
    const rule = { type: "rule", clip: true, strokeWidth: 1.2 };
    return {
      data: { values },
      encoding: { color: networksOf(c).color },
      layer: [
        { mark: rule, encoding: { x: x("x"), y: y("yLow"), y2: { field: "yHigh" } } },
        { mark: rule, encoding: { y: y("y"), x: x("xLow"), x2: { field: "xHigh" } } },
        { mark: POINT, encoding: { x: x("x"), y: y("y"), shape: networksOf(c).shape, tooltip: TOOLTIP, description: TOOLTIP } },
      ],
    };
  },
};

// Trials with a list of values, such as the rates over time, at the chosen point.
function listed(c, key) {
  return c.setting.trials.filter((trial) => trial[key] && c.chosen.has(trial.network) && `${trial.test}|${pointKey(trial)}` === c.series)
    .map((trial) => ({ ...trial, label: c.data.networks[trial.network].label }));
}

const fairness = {
  name: "subscribers of a trial", uses: ["series"], series: "shares", unit: "% of the mean of the trial",
  rows: (c) => listed(c, "shares").map((trial) => ({
    network: trial.label, at: trial.id, n: trial.shares.length, trials: [trial.id], shares: trial.shares, interval: "–",
    value: `${precise(Math.min(...trial.shares))} to ${precise(Math.max(...trial.shares))}`,
  })),
  draw(c, rows) {
    const values = rows.flatMap((row) => row.shares.map((share, index) => ({
      network: row.network, share, trials: row.trials,
      text: `${row.network}, subscriber ${index}\n${precise(share)} % of the mean of the trial\ntrial ${row.at}\nn = ${row.n} subscribers`,
    })));
    const farthest = 1.1 * Math.max(1, ...values.map((value) => Math.abs(value.share - 100)));
    const { labels, color } = networksOf(c);
    return {
      height: 60 + 30 * new Set(rows.map((row) => row.network)).size,
      data: { values },
      mark: { type: "tick", thickness: 3, size: 18, cursor: "pointer" },
      encoding: {
        x: axisOf("share", "samples relative to the mean of the trial, %", [100 - farthest, 100 + farthest], false),
        y: { field: "network", type: "nominal", sort: labels, title: null }, color, tooltip: TOOLTIP, description: TOOLTIP,
      },
    };
  },
};

const timeline = {
  name: "over the time of a trial", uses: ["series"], series: "rates", unit: "Mbit/s",
  rows: (c) => listed(c, "rates").map((trial) => ({
    network: trial.label, at: trial.id, n: trial.rates.length, trials: [trial.id], rates: trial.rates, interval: "–",
    value: `${precise(Math.min(...trial.rates.map(([, rate]) => rate)))} to ${precise(Math.max(...trial.rates.map(([, rate]) => rate)))}`,
  })),
  draw(c, rows) {
    const values = rows.flatMap((row) => row.rates.map(([end, rate]) => ({
      network: row.network, trial: row.at, end, rate, trials: row.trials,
      text: `${row.network}, until ${precise(end)} s\n${precise(rate)} Mbit/s\ntrial ${row.at}\nn = ${row.n} steps`,
    })));
    return {
      data: { values },
      encoding: {
        x: axisOf("end", "s", [0, Math.max(...values.map((value) => value.end))], false),
        y: axisOf("rate", "Mbit/s", [0, 1.05 * Math.max(...values.map((value) => value.rate))], false),
        color: networksOf(c).color, detail: { field: "trial", type: "nominal" },
      },
      layer: [
        { mark: { type: "line", strokeWidth: 1.2, opacity: 0.7 } },
        { mark: { ...POINT, size: 28 }, encoding: { tooltip: TOOLTIP } },
      ],
    };
  },
};

const FIGURES = { levels, heatmap, tradeOff, fairness, timeline };
