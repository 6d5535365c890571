// Buttons that copy the text of an element to the clipboard, or select it. Gives offerCopy(button).

function offerCopy(button) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.textContent;
  button.addEventListener("click", async () => {
    const isCopied = await copyText(source.textContent);
    if (!isCopied) {
      selectText(source);
    }
    button.textContent = isCopied ? "Copied" : "Selected";
    setTimeout(() => {
      button.textContent = label;
    }, 2000);
  });
  button.hidden = false;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // No permission, or a page opened from a file.
  }
}

function selectText(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  const selection = getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
}
