// The engine of a folder with a model: a worker beside the page. As a library:
// await (await load(".")).translate("...").
export async function load(base = ".", { onProgress = () => {} } = {}) {
  if (!globalThis.WebAssembly) {
    throw new Error("This browser has no WebAssembly, which the model needs: use another one.");
  }
  const worker = new Worker(new URL(`${base}/worker.js`, import.meta.url), { type: "module" });
  const waiting = new Map();
  let last = 0;
  worker.onmessage = ({ data }) => {
    if (data.progress !== undefined) return onProgress(data.progress);
    const { resolve, reject, onPart } = waiting.get(data.number);
    if (data.parts) return onPart(data.parts, data.done);
    waiting.delete(data.number);
    return data.error === undefined ? resolve(data.answer) : reject(new Error(data.error));
  };
  worker.onerror = ({ message }) => {
    const error = new Error(`The model cannot be loaded: ${message || "a script is missing"}.`);
    for (const { reject } of waiting.values()) reject(error);
  };
  const ask = (work, values, { signal, onPart = () => {} } = {}) => new Promise((resolve, reject) => {
    const number = ++last;
    waiting.set(number, { resolve, reject, onPart });
    signal?.addEventListener("abort", () => { worker.postMessage({ abort: number }); reject(signal.reason); });
    worker.postMessage({ ...values, work, number });
  });
  const { directions, notice, name, description } = await ask("begin").catch((error) => {
    worker.terminate();
    throw error;
  });
  const targets = (code) => directions.filter(({ source }) => source === code).map(({ target }) => target);
  const nameOf = (code) => {
    if (code === "any") return "Any";
    try { return new Intl.DisplayNames(["en"], { type: "language" }).of(code); } catch { return code; }
  };
  const codes = new Set(directions.flatMap(({ source, target }) => [source, target]));
  return {
    settings: {
      languages: [...codes].map((code) => ({ code, name: nameOf(code), targets: targets(code) })),
      delay: 150, source: directions[0].source, models: [{ name, description }],
      notice: `This page computes in your browser: no text leaves it. ${notice}`,
      formats: [".txt", ".md", ".csv", "text/*"],
    },
    async translate(text, { source, target, ...options } = {}) {
      const parts = await ask("translate", { text, source, target }, options);
      return { text: parts.map((part) => part.text ?? part).join(""), parts };
    },
    alternatives: (part, place, { source, target, signal } = {}) =>
      ask("alternatives", { part, place, source, target }, { signal }),
    async translateFile(file, options) {
      const { text, parts } = await this.translate(await file.text(), options);
      const name = file.name.replace(/(\.[^.]*)?$/, `.${options.target}$1`);
      const count = parts.filter((part) => part.text !== undefined).length;
      return { name, address: URL.createObjectURL(new Blob([text])), texts: count };
    },
  };
}
