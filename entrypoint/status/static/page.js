// Live sections: the server sends the HTML of what changed, named by the id it belongs to. Without this file the page
// refreshes itself. What a reader has opened, selected or is typing into is left as it is.
"use strict";
const stream = new EventSource("/events");
stream.addEventListener("sections", (event) => {
  const { title, html } = JSON.parse(event.data);
  document.title = title;
  for (const [id, text] of Object.entries(html)) {
    const place = document.getElementById(id);
    if (!place || busy(place)) continue;
    const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.id));
    const scrolled = [...place.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    place.innerHTML = text;
    for (const one of place.querySelectorAll("details")) one.open = open.has(one.id);
    place.querySelectorAll(".scroll").forEach((one, index) => { one.scrollLeft = scrolled[index] || 0; });
  }
});
stream.addEventListener("error", () => { document.title = "No answer · " + document.title.replace(/^No answer · /, ""); });

function busy(place) {
  const selection = document.getSelection();
  const selected = selection && !selection.isCollapsed && place.contains(selection.anchorNode);
  return selected || place.querySelector(":focus-visible") !== null;
}
