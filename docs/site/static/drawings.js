// Renders the drawings of a page, light or dark as the page is. Mermaid (5 MB) is loaded only where there is a drawing.
"use strict";

const library = new URL("mermaid.min.js", document.currentScript.src).href;

function isDark() {
  const theme = document.body.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
}

async function render(drawings) {
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", theme: isDark() ? "dark" : "neutral" });
  for (const drawing of drawings) {
    drawing.place.innerHTML = (await mermaid.render(drawing.id, drawing.source)).svg;
  }
}

function replace(block, number) {
  const place = document.createElement("div");
  place.className = "drawing";
  block.replaceWith(place);
  return { id: `drawing-${number}`, source: block.textContent, place };
}

document.addEventListener("DOMContentLoaded", () => {
  const blocks = [...document.querySelectorAll(".mermaid-source")];
  if (!blocks.length) return;
  const script = document.createElement("script");
  script.src = library;
  script.onload = () => {
    const drawings = blocks.map(replace);
    const again = () => render(drawings);
    again();
    new MutationObserver(again).observe(document.body, { attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  };
  document.head.append(script);
});
