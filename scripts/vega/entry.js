// What report.js uses of Vega and Vega-Lite, as the global object `vegaFigures`.
export { View, parse } from "vega";
export { compile } from "vega-lite";
export { expressionInterpreter } from "vega-interpreter";
