// Elements from text: nothing of a plan is ever parsed as markup.

type Child = globalThis.Node | string | null;

/** An element with attributes and children; strings become text. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  for (const child of children) if (child !== null) made.append(child);
  return made;
}

export function button(text: string, pressed: () => void, attributes: Record<string, string> = {}): HTMLButtonElement {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", pressed);
  return made;
}

/** A table that scrolls by itself where the page is too narrow; `numbers` are the columns that align right. */
export function table(columns: string[], rows: (Child | Child[])[][], numbers: number[] = [], label = ""): HTMLElement {
  const right = (column: number): Record<string, string> => (numbers.includes(column) ? { class: "number" } : {});
  const head = element("tr", {}, ...columns.map((name, i) => element("th", { scope: "col", ...right(i) }, name)));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, i) => element("td", right(i), ...(Array.isArray(cell) ? cell : [cell])))),
  );
  const made = element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label || columns.join(", ") }, made);
}

/** Names and values, one below the other. */
export function facts(pairs: [string, Child | Child[]][]): HTMLElement {
  const list = element("dl");
  for (const [name, value] of pairs) {
    list.append(element("dt", {}, name), element("dd", {}, ...(Array.isArray(value) ? value : [value])));
  }
  return list;
}

/** What is shown on demand. */
export function fold(name: string, inside: HTMLElement): HTMLElement {
  return element("details", {}, element("summary", {}, name), inside);
}

export function section(title: string, id: string, ...children: Child[]): HTMLElement {
  return element("section", { id, "aria-labelledby": `${id}-title` }, element("h2", { id: `${id}-title` }, title), ...children);
}
