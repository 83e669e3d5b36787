// Functions that an sdk adapter maps: one object of parameters in, JSON out.
const split = (text) => text.split(/\s+/).filter(Boolean);

export function words({ text }) {
  return { words: split(text).length, characters: [...text].length };
}

export async function longest({ text }) {
  const found = split(text);
  if (found.length === 0) throw new RangeError("the text has no word");
  return found.reduce((best, each) => (each.length > best.length ? each : best));
}
