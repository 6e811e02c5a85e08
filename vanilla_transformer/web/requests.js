// The engine of a server: it is asked for everything. It has the functions of translator.js.
async function ask(path, values, signal) {
  const headers = { "Content-Type": "application/json" };
  const body = values instanceof FormData ? { body: values } : { body: JSON.stringify(values), headers };
  const answer = await fetch(path, values && { method: "POST", signal, ...body }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server does not answer.");
  });
  const found = await answer.json().catch((error) => {  // a proxy in front of the server has pages of its own
    throw error.name === "AbortError" ? error : new Error(`The server answers with status ${answer.status}.`);
  });
  if (!answer.ok) throw new Error(found.error);
  return found;
}

// The places of marks count an emoji as one character.
function inUnits(text, marks) {
  const places = [0];
  for (const sign of text) places.push(places.at(-1) + sign.length);
  return marks.map(({ begin, end, kind }) => ({ begin: places[begin], end: places[end], kind }));
}

const WORDS = new Intl.Segmenter("en", { granularity: "word" });

// Another output of a line, with the marks of the parts that it has as well.
function replaced({ source, text: before, marks: old, others }, text) {
  let place = 0;
  const marks = old.flatMap(({ begin, end, kind }) => {
    const at = text.indexOf(before.slice(begin, end), place);
    return at < 0 ? [] : [{ begin: at, end: place = at + end - begin, kind }];
  });
  return { source, text, marks, doubts: [], quality: null, others };
}

export async function load() {
  const [found, languages] = await Promise.all([ask("frontend/settings"), ask("languages")]);
  return {
    settings: {
      ...found, languages, help: "docs", source: found.language.source.code, formats: found.supportedFilesFormat,
      detects: true, delay: 400,
    },
    async translate(text, { source, target, glossary, key, signal }) {
      const pieces = text.split(/(\n+)/), lines = pieces.filter((piece) => piece.trim());
      const values = { q: lines, source, target, glossary, api_key: key, marks: true, quality: true };
      const answer = await ask("translate", values, signal);
      let line = -1;
      const parts = pieces.map((piece) => {
        if (!piece.trim()) return piece;
        const output = answer.translatedText[++line], marks = inUnits(output, answer.marks[line]);
        return { source: piece, text: output, marks, quality: answer.quality[line], doubts: answer.doubts[line] };
      });
      const memory = lines.length === 1 ? answer.fromMemory?.[0] : undefined;
      const all = parts.map((part) => part.text ?? part).join("");
      return { text: all, parts, memory, detected: answer.detectedLanguage?.[0] };
    },
    async alternatives(part, place, { source, target, glossary, key, signal }) {
      const values = { q: part.source, source, target, glossary, api_key: key, alternatives: found.maxAlternatives };
      if (!part.others) {
        const { translatedText, alternatives } = await ask("translate", values, signal);
        part.others = [translatedText, ...alternatives];
      }
      const wordOf = (text) => WORDS.segment(text).containing(place)?.segment;
      const isOther = (text) => text.startsWith(part.text.slice(0, place)) && wordOf(text) !== wordOf(part.text);
      return part.others.filter(isOther).slice(0, 3).map((text) => replaced(part, text));
    },
    async translateFile(file, { source, target, glossary, key }) {
      const values = new FormData();
      const fields = { file, source, target, glossary, api_key: key };
      for (const [name, value] of Object.entries(fields)) values.append(name, value);
      const { translatedFileUrl, texts, fromMemory, doubtful } = await ask("translate_file", values);
      const path = translatedFileUrl.split("/").slice(-3);  // also behind a proxy with a path of its own
      const notes = [fromMemory && `${fromMemory} from the memory`, doubtful && `${doubtful} marked as doubtful`];
      return { name: decodeURIComponent(path.at(-1)), address: path.join("/"), texts, notes };
    },
    correct: (text, correction, { source, target, key }) =>
      ask("suggest", { q: text, s: correction, source, target, api_key: key }),
  };
}
