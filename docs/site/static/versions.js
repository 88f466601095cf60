// A menu of the versions beside which this site lies (e2e/site.py). A site alone has none.
"use strict";

document.addEventListener("DOMContentLoaded", async () => {
  const site = new URL(document.documentElement.dataset.content_root, document.location);
  const brand = document.querySelector(".sidebar-brand");
  const answer = await fetch(new URL("../versions.json", site)).catch(() => null);
  if (!answer?.ok || !brand) return;
  const own = site.pathname.split("/").at(-2);
  const page = document.location.href.slice(site.href.length);
  const menu = document.createElement("select");
  menu.className = "versions";
  menu.ariaLabel = "Version";
  menu.append(...(await answer.json()).map((version) => new Option(version, version, false, version === own)));
  menu.addEventListener("change", async () => {
    const other = new URL(`../${menu.value}/`, site);
    const same = new URL(page, other);
    const found = await fetch(same, { method: "HEAD" }).catch(() => null);
    document.location = found?.ok ? same : new URL("docs/index.html", other);
  });
  brand.after(menu);
});
