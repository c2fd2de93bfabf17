// The sliders of the signals write the mode that their weights make, and the list is asked for again.
"use strict";

const SLIDERS = ".slider input";

document.querySelectorAll(".slider").forEach((each) => { each.hidden = false; });
document.addEventListener("input", (event) => {
  const moved = event.target;
  if (!moved.matches(SLIDERS)) return;
  moved.nextElementSibling.value = Number(moved.value).toFixed(2);
  const weights = [...moved.form.querySelectorAll(SLIDERS)]
    .filter((each) => each.dataset.mode === moved.dataset.mode && each.value > 0)
    .map((each) => `${each.dataset.signal}:${each.value}`);
  if (!weights.length) return;
  moved.form.elements[moved.dataset.mode].value = `${weights.join(",")}@${moved.dataset.fusion}`;
  htmx.trigger(moved.form, "weights");
});
