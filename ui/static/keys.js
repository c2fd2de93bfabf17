// Keys press the buttons that carry them, once: data-key="3". A field that is being typed in keeps its keys; Escape leaves it.
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
  if (event.target.matches("input:not([type=hidden]), textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const key = CSS.escape(event.key);
  const button = document.querySelector(`button[data-key="${key}"]:not(:disabled)`);
  const field = document.querySelector(`[data-focus="${key}"]`);
  if (button || field) event.preventDefault();
  if (button) button.click();
  else if (field) field.focus();
});
