"use strict";
{
  const form = document.getElementById("filters");
  const probes = [...document.querySelectorAll(".probe")].map((node) => ({
    node,
    verdict: node.dataset.verdict,
    tags: (node.dataset.tags || "").split(" "),
    engine: node.closest("[data-engine]").dataset.engine,
    text: null,
  }));
  const around = ["run", "scenario"].map((kind) => [...document.querySelectorAll(`.${kind}`)]);
  const rows = [...document.querySelectorAll(".matrix tbody tr")];
  const scenarios = around[1];

  // Build the text to search in on the first search only.
  const textOf = (probe) => {
    if (probe.text === null) {
      const scenario = probe.node.closest(".scenario");
      const run = probe.node.closest(".run").querySelector("h3");
      probe.text = [scenario.querySelector("h2"), run, probe.node].map((each) => each.textContent).join(" ").toLowerCase();
    }
    return probe.text;
  };

  const apply = () => {
    const words = form.elements.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const verdicts = new Set([...form.querySelectorAll("[name=verdict]:checked")].map((each) => each.value));
    const engine = form.elements.engine ? form.elements.engine.value : "";
    const tag = form.elements.tag ? form.elements.tag.value : "";
    let shown = 0;
    for (const probe of probes) {
      const fits =
        verdicts.has(probe.verdict) &&
        (!engine || probe.engine === engine) &&
        (!tag || probe.tags.includes(tag)) &&
        words.every((word) => textOf(probe).includes(word));
      probe.node.hidden = !fits;
      shown += fits;
    }
    for (const group of around) {
      for (const node of group) node.hidden = !node.querySelector(".probe:not([hidden])");
    }
    rows.forEach((row, number) => { row.hidden = scenarios[number].hidden; });
    for (const cell of document.querySelectorAll(".matrix [data-engine]")) {
      cell.hidden = Boolean(engine) && cell.dataset.engine !== engine;
    }
    document.getElementById("nothing").hidden = shown > 0;
    form.elements.shown.value = `${shown} of ${probes.length} probes`;
  };

  const setAll = (open) => {
    for (const probe of probes) if (!probe.node.hidden || !open) probe.node.open = open;
  };

  // A link to a section opens its first probe that did not pass.
  const arrive = () => {
    const target = document.getElementById(location.hash.slice(1));
    if (!target) return;
    const worst = target.querySelector(".probe:not([hidden]):not([data-verdict=pass])") || target.querySelector(".probe");
    if (worst) worst.open = true;
  };

  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.elements.open.addEventListener("click", () => setAll(true));
  form.elements.close.addEventListener("click", () => setAll(false));
  addEventListener("hashchange", arrive);
  addEventListener("beforeprint", () => setAll(true));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.closest("input, select")) return;
    event.preventDefault();
    form.elements.text.focus();
  });
  form.hidden = false;
  apply();
  arrive();
}
